/* Fuzz targets: the readers of tensor files. Whatever an accepted file promises is read and checked: extents
 * lie in the file, every element comes once. */
#include "tests/fuzz/fuzz.h"

#include "bench/inspect/inspect.h"
#include "bench/tensorfile/json_scan.h"
#include "bench/tensorfile/tensorfile.h"

#include <stdlib.h>
#include <string.h>

enum { FUZZ_EXPANDED = 1 << 20 };

typedef struct tally {
    int chunk;
    int64_t next;
    uint64_t sum; /* of all stored bytes: makes the sanitizer see each */
} tally;

static void see(void *context, int chunk, const ab_tensor_block *block) {
    tally *t = context;
    fuzz_insist(chunk >= t->chunk && chunk < AB_TENSORFILE_CHUNKS && block->first == t->next && block->n > 0);
    t->chunk = chunk;
    t->next += block->n;
    const uint8_t *bytes = block->data;
    for (int64_t i = 0; i < block->n * block->format->storage_bytes; i++) t->sum += bytes[i];
}

static void check_entry(const ab_tensorfile *file, const ab_tensor_entry *entry) {
    char text[AB_TENSORFILE_TEXT];
    fuzz_insist(strlen(ab_tensor_printable(entry->name, text)) < AB_TENSORFILE_TEXT &&
                ab_utf8_valid(text, strlen(text), NULL));
    fuzz_insist(strlen(ab_tensor_shape_text(entry, text)) < AB_TENSORFILE_TEXT);
    fuzz_insist(entry->count >= 0 && entry->bytes >= 0 && entry->offset >= 0 && entry->offset <= file->size);
    fuzz_insist(entry->packed || entry->stride || entry->bytes <= file->size - entry->offset);
    if (entry->stride && entry->count > FUZZ_EXPANDED) return; /* a stride of 0 repeats one element at will */
    if (!entry->element->format) return;
    tally t = {0};
    ab_block_visitor visitor = {.context = &t, .see = see};
    if (ab_tensorfile_stream(file, entry, &visitor) == AB_OK) fuzz_insist(t.next == entry->count);
}

static ab_status see_value(void *context, const char *name, const ab_tensor_value *value) {
    (void)context;
    fuzz_insist(ab_utf8_valid(name, strlen(name), NULL));
    if (value->kind == AB_VALUE_CLASS || value->kind == AB_VALUE_CALL)
        fuzz_insist(ab_utf8_valid(value->text, value->bytes, NULL));
    return AB_OK;
}

static void try_tensorfile(const char *path, const uint8_t *data, size_t size) {
    ab_tensorfile *file = NULL;
    if (ab_tensorfile_open_memory(path, data, (int64_t)size, &file) != AB_OK) return;
    fuzz_passed();
    for (int i = 0; i < file->count; i++) check_entry(file, &file->tensor[i]);
    for (int i = 0; i < file->aliases; i++) check_entry(file, &file->alias[i]);
    fuzz_insist(ab_tensorfile_values(file, see_value, NULL) == AB_OK);
    ab_tensorfile_close(file);
}

/* The suffix chooses the reader where the first bytes do not. */
void fuzz_npy(const uint8_t *data, size_t size) { try_tensorfile("input.npy", data, size); }
void fuzz_npz(const uint8_t *data, size_t size) { try_tensorfile("input.npz", data, size); }
void fuzz_safetensors(const uint8_t *data, size_t size) { try_tensorfile("input.safetensors", data, size); }

/* The format of before PyTorch 1.6 has no checksums that a mutation would have to put right. */
void fuzz_pt(const uint8_t *data, size_t size) { try_tensorfile("input.pt", data, size); }

/* An index of shards or .metadata, and two files beside it. */
void fuzz_shards(const uint8_t *data, size_t size) {
    static const char *const names[] = {"set/.metadata", "set/__0_0.distcp", "set/a.bin"};
    const uint8_t *at = data;
    const fuzz_part index = fuzz_next_part(&at, data + size);
    for (size_t i = 1; i < AB_COUNT_OF(names); i++) {
        const fuzz_part part = fuzz_next_part(&at, data + size);
        fuzz_file(names[i], part.byte, part.size);
    }
    try_tensorfile(names[0], index.byte, index.size);
    try_tensorfile("set/a.index.json", index.byte, index.size);
}

/* ---- inspect --------------------------------------------------------------------------------- */

static void inspect(const ab_inspect_request *request, const ab_inspect_selection *selection) {
    ab_inspect_result *result = calloc(1, sizeof *result);
    const char *note;
    fuzz_insist(result != NULL);
    if (ab_inspect_run(request, selection, fuzz_sink(false), result) == AB_OK) {
        fuzz_passed();
        ab_inspect_print(fuzz_sink(true), result, true);
        fuzz_insist(ab_inspect_plot(result, "plots", &note) == AB_OK);
    }
    ab_inspect_result_free(result);
    free(result);
}

/* Two files; their first bytes choose the readers. */
void fuzz_inspect(const uint8_t *data, size_t size) {
    static const char *names[] = {"a.npy", "b.npz"};
    const ab_inspect_request request = {
        .file = names,
        .files = 2,
        .question = {.format = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp8_e4m3, &ab_format_fp8_e5m2},
                     .formats = 4,
                     .scale = 1024,
                     .goal = {0.001, 1, AB_FTZ_NONE, AB_INSPECT_MIN, AB_INSPECT_MAX}}};
    ab_inspect_selection selection = {0};
    const uint8_t *at = data;
    for (int i = 0; i < 2; i++) {
        fuzz_part part = fuzz_next_part(&at, data + size);
        fuzz_file(names[i], part.byte, part.size);
    }
    if (ab_inspect_select(&request, &selection) == AB_OK) inspect(&request, &selection);
    ab_inspect_selection_free(&selection);
}
