/* Micro-batches' gradients from files. */
#include "bench/ranks/gradients.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static const ab_tensor_entry *entry_of(const ab_gradients *g, int tensor, int file) {
    return g->entry[(size_t)tensor * (size_t)g->files + (size_t)file];
}

/* Whether two entries have the same dims; else AB_INPUT. */
static ab_status check_shape(const ab_gradients *g, int file, const ab_tensor_entry *first,
                             const ab_tensor_entry *other) {
    bool same =
        first->ndim == other->ndim &&
        (first->ndim == 0 || memcmp(first->dim, other->dim, (size_t)first->ndim * sizeof *first->dim) == 0);
    if (same) return AB_OK;
    char name[AB_TENSORFILE_TEXT], expected[AB_TENSORFILE_TEXT], found[AB_TENSORFILE_TEXT];
    return ab_fail(AB_INPUT, "%s: \"%s\": expected shape %s, as in %s, found %s", g->file[file]->path,
                   ab_tensor_printable(first->name, name), ab_tensor_shape_text(first, expected),
                   g->file[0]->path, ab_tensor_shape_text(other, found));
}

static ab_status match(ab_gradients *g, const ab_tensor_entry *first) {
    const ab_tensor_entry **row = g->entry + (size_t)g->tensors * (size_t)g->files;
    row[0] = first;
    for (int f = 1; f < g->files; f++) {
        bool single = g->file[0]->count == 1 && g->file[f]->count == 1; /* .npy: named after the file */
        if (single)
            row[f] = &g->file[f]->tensor[0];
        else
            AB_TRY(ab_tensorfile_find(g->file[f], first->name, &row[f]));
        AB_TRY(check_shape(g, f, first, row[f]));
    }
    g->tensors++;
    return AB_OK;
}

static ab_status match_all(ab_gradients *g) {
    const ab_tensorfile *first = g->file[0];
    g->entry = calloc((size_t)first->count * (size_t)g->files + 1, sizeof *g->entry);
    if (!g->entry) return ab_fail(AB_NO_MEMORY, "out of memory for %d tensors", first->count);
    for (int t = 0; t < first->count; t++) {
        if (!first->tensor[t].element->format)
            g->skipped++;
        else if (first->tensor[t].count > 0)
            AB_TRY(match(g, &first->tensor[t]));
    }
    if (g->tensors > 0) return AB_OK;
    return ab_fail(AB_INPUT, "%s: expected gradients in a floating-point format, found none", first->path);
}

ab_status ab_gradients_open(const char *const *path, int files, ab_gradients *gradients) {
    assert(files > 0);
    *gradients = (ab_gradients){0};
    gradients->file = calloc((size_t)files, sizeof(ab_tensorfile *));
    if (!gradients->file) return ab_fail(AB_NO_MEMORY, "out of memory for %d files", files);
    for (int f = 0; f < files; f++) {
        AB_TRY(ab_tensorfile_open(path[f], &gradients->file[f]));
        gradients->files++;
    }
    return match_all(gradients);
}

void ab_gradients_close(ab_gradients *gradients) {
    for (int f = 0; f < gradients->files; f++) ab_tensorfile_close(gradients->file[f]);
    free(gradients->file);
    free(gradients->entry);
    *gradients = (ab_gradients){0};
}

const ab_format *ab_gradients_format(const ab_gradients *gradients, int tensor) {
    const ab_format *format = entry_of(gradients, tensor, 0)->element->format;
    return format == &ab_format_fp16 || format == &ab_format_bf16 ? format : &ab_format_fp32;
}

const char *ab_gradients_name(const ab_gradients *gradients, int tensor) {
    return entry_of(gradients, tensor, 0)->name;
}

int64_t ab_gradients_count(const ab_gradients *gradients, int tensor) {
    return entry_of(gradients, tensor, 0)->count;
}

int64_t ab_gradients_largest(const ab_gradients *gradients) {
    int64_t largest = 0;
    for (int t = 0; t < gradients->tensors; t++)
        if (ab_gradients_count(gradients, t) > largest) largest = ab_gradients_count(gradients, t);
    return largest;
}

ab_status ab_gradients_read(const ab_gradients *gradients, int tensor, float *value) {
    int64_t count = ab_gradients_count(gradients, tensor);
    for (int f = 0; f < gradients->files; f++)
        AB_TRY(ab_tensorfile_read(gradients->file[f], entry_of(gradients, tensor, f), value + f * count));
    return AB_OK;
}
