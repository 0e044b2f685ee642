/* Sets of files, pieces of tensors, and reading them in the order of the indices. */
#include "bench/tensorfile/assembled.h"

#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_TEXT = 4096 };

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "out of memory for the tensors of a set"); }

/* ---- files ------------------------------------------------------------------------------------ */

ab_status ab_assembled_keep(ab_assembled *set, ab_tensorfile *file) {
    if (set->files == set->file_room) {
        const int room = set->file_room ? 2 * set->file_room : 16;
        ab_tensorfile **grown = realloc(set->file, (size_t)room * sizeof *grown);
        if (!grown) {
            ab_tensorfile_close(file);
            return no_memory();
        }
        set->file = grown;
        set->file_room = room;
    }
    set->file[set->files++] = file;
    return AB_OK;
}

static ab_status path_beside(const char *beside, const char *name, char path[PATH_TEXT]) {
    const char *slash = strrchr(beside, '/');
    const int folder = slash ? (int)(slash - beside) + 1 : 0;
    if (!name[0] || strchr(name, '/') || strcmp(name, "..") == 0 || strcmp(name, ".") == 0)
        return ab_fail(AB_INPUT, "expected the name of a file beside it, found \"%s\"",
                       ab_text_brief(name, 80));
    if (!ab_text_fits(path, PATH_TEXT, "%.*s%s", folder, beside, name))
        return ab_fail(AB_INPUT, "the path of \"%s\" is too long", ab_text_brief(name, 80));
    return AB_OK;
}

ab_status ab_assembled_open(ab_assembled *set, const char *beside, const char *name, bool mapped,
                            ab_tensorfile **file) {
    char path[PATH_TEXT];
    AB_TRY(path_beside(beside, name, path));
    for (int i = set->nameds - 1; i >= 0; i--) {
        ab_tensorfile *known = set->file[set->named[i]];
        if (strcmp(known->path, path) != 0 || (known->reader == NULL) != mapped) continue;
        *file = known;
        return AB_OK;
    }
    int *grown = realloc(set->named, (size_t)(set->nameds + 1) * sizeof *grown);
    if (!grown) return no_memory();
    set->named = grown;
    AB_TRY(mapped ? ab_tensorfile_map(path, file) : ab_tensorfile_open_part(path, file));
    AB_TRY(ab_assembled_keep(set, *file));
    set->named[set->nameds++] = set->files - 1;
    return AB_OK;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static ab_status grow(ab_assembled *set) {
    if (set->count < set->room) return AB_OK;
    const int room = set->room ? 2 * set->room : 64;
    ab_assembly *grown = realloc(set->of, (size_t)room * sizeof *grown);
    if (!grown) return no_memory();
    set->of = grown;
    set->room = room;
    return AB_OK;
}

ab_status ab_assembled_add(ab_assembled *set, ab_tensorfile *file, const char *name, int ndim,
                           const int64_t *dim, ab_assembly **assembly) {
    if (ndim > AB_TENSORFILE_MAX_DIMS)
        return ab_fail(AB_INPUT, "expected at most %d dimensions, found %d", AB_TENSORFILE_MAX_DIMS, ndim);
    AB_TRY(grow(set));
    ab_tensor_entry entry = {.name = ab_text_new("%s", name),
                             .element = ab_element_at(AB_ELEMENT_fp32),
                             .ndim = ndim,
                             .dim = malloc((size_t)(ndim > 0 ? ndim : 1) * sizeof *dim),
                             .offset = set->count,
                             .packed = 1};
    if (!entry.name || !entry.dim) {
        ab_tensor_entry_clear(&entry);
        return no_memory();
    }
    if (ndim > 0) memcpy(entry.dim, dim, (size_t)ndim * sizeof *dim);
    const ab_status status = ab_tensor_entry_measure(&entry, 64);
    if (status != AB_OK) {
        ab_tensor_entry_clear(&entry);
        return status;
    }
    *assembly = &set->of[set->count++];
    **assembly = (ab_assembly){.ndim = ndim};
    if (ndim > 0) memcpy((*assembly)->dim, dim, (size_t)ndim * sizeof *dim);
    return ab_tensorfile_add(file, &entry);
}

ab_status ab_assembly_add(ab_assembly *assembly, const ab_piece *piece) {
    if (assembly->pieces == assembly->room) {
        const int room = assembly->room ? 2 * assembly->room : 1;
        ab_piece *grown = realloc(assembly->piece, (size_t)room * sizeof *grown);
        if (!grown) return no_memory();
        assembly->piece = grown;
        assembly->room = room;
    }
    assembly->piece[assembly->pieces++] = *piece;
    return AB_OK;
}

/* ---- checks ----------------------------------------------------------------------------------- */

/* Elements of a piece; -1: it reaches beyond the tensor or its entry. */
static int64_t elements_of(const ab_assembly *a, const ab_piece *p) {
    int64_t count = 1;
    for (int d = 0; d < a->ndim; d++) {
        if (p->offset[d] < 0 || p->size[d] < 0 || p->size[d] > a->dim[d] ||
            p->offset[d] > a->dim[d] - p->size[d])
            return -1;
        count *= p->size[d]; /* at most the tensor's, which were counted */
    }
    return p->first >= 0 && count <= p->entry->count && p->first <= p->entry->count - count ? count : -1;
}

static ab_status bad(const ab_tensor_entry *entry, const char *what) {
    char name[AB_TENSORFILE_TEXT];
    return ab_fail(AB_INPUT, "tensor \"%s\": %s", ab_tensor_printable(entry->name, name), what);
}

ab_status ab_assembled_finish(const ab_assembled *set, ab_tensorfile *file) {
    ab_tensor_entry *entry = &file->tensor[file->count - 1];
    const ab_assembly *a = &set->of[entry->offset];
    int64_t count = 0;
    for (int i = 0; i < a->pieces; i++) {
        const ab_piece *p = &a->piece[i];
        const int64_t n = elements_of(a, p);
        if (n < 0) return bad(entry, "a piece of it reaches beyond the tensor or its file");
        if (p->entry->packed && n != entry->count)
            return bad(entry, "expected its pieces stored, found one compressed");
        if (p->entry->element != a->piece[0].entry->element ||
            p->entry->big_endian != a->piece[0].entry->big_endian)
            return bad(entry, "expected pieces of one element type, found several");
        count += n;
    }
    if (count != entry->count) return bad(entry, "its pieces do not have all of its elements, once each");
    if (a->pieces == 0) return AB_OK;
    entry->element = a->piece[0].entry->element;
    entry->big_endian = a->piece[0].entry->big_endian;
    memcpy(entry->dtype, a->piece[0].entry->dtype, sizeof entry->dtype);
    return ab_tensor_entry_measure(entry, entry->element->bits);
}

ab_status ab_assembled_build(const char *path, const ab_tensor_reader *reader, void *data,
                             ab_status (*build)(void *context, ab_tensorfile *file), void *context,
                             ab_tensorfile **file) {
    ab_tensorfile *made;
    ab_status status = data ? ab_tensorfile_new(path, reader, &made) : no_memory();
    if (status != AB_OK) {
        free(data);
        return status;
    }
    made->reader_data = data;
    status = build(context, made);
    if (status == AB_OK) {
        *file = made;
        return AB_OK;
    }
    status = ab_fail_prefix(status, "%s", path);
    ab_tensorfile_close(made);
    return status;
}

/* ---- reading ---------------------------------------------------------------------------------- */

typedef struct walk {
    const ab_assembly *a;
    int64_t width, at; /* bytes of an element; the next element */
    int last;          /* piece that was read last */
} walk;

bool ab_assembled_elsewhere(const ab_tensorfile *file, const ab_tensor_entry *entry,
                            const ab_tensorfile **other, const ab_tensor_entry **there) {
    const ab_assembled *set = file->reader_data;
    const ab_assembly *a = &set->of[entry->offset];
    if (a->pieces != 1 || a->piece[0].entry->count != entry->count) return false;
    *other = a->piece[0].file;
    *there = a->piece[0].entry;
    return true;
}

int ab_assembled_files(const ab_tensorfile *file) {
    const ab_assembled *set = file->reader_data;
    return set->nameds;
}

ab_status ab_assembled_begin(const ab_tensorfile *file, const ab_tensor_entry *entry, void **state) {
    const ab_assembled *set = file->reader_data;
    walk *w = malloc(sizeof *w);
    if (!w) return no_memory();
    *w = (walk){.a = &set->of[entry->offset], .width = entry->element->bits / 8};
    *state = w;
    return AB_OK;
}

static bool contains(const walk *w, int piece, const int64_t *index) {
    const ab_piece *p = &w->a->piece[piece];
    for (int d = 0; d < w->a->ndim; d++)
        if (index[d] < p->offset[d] || index[d] >= p->offset[d] + p->size[d]) return false;
    return true;
}

static const ab_piece *find(walk *w, const int64_t *index) {
    for (int i = 0; i < w->a->pieces; i++) {
        const int piece = (w->last + i) % w->a->pieces;
        if (!contains(w, piece, index)) continue;
        w->last = piece;
        return &w->a->piece[piece];
    }
    return NULL;
}

/* The byte at which element k of an entry, in the order of its indices, is. */
static int64_t place_of(const ab_tensor_entry *entry, int64_t k, int64_t width) {
    if (!entry->stride) return entry->offset + k * width;
    int64_t at = 0;
    for (int d = entry->ndim - 1; d >= 0; d--) {
        at += k % entry->dim[d] * entry->stride[d];
        k /= entry->dim[d];
    }
    return entry->offset + at * width;
}

static void copy(const ab_piece *p, int64_t k, int64_t n, int64_t width, uint8_t *dst) {
    const int64_t run = p->entry->stride ? 1 : n;
    for (int64_t i = 0; i < n; i += run)
        memcpy(dst + i * width, p->file->map + place_of(p->entry, k + i, width), (size_t)(run * width));
}

/* Copies the elements of one row that one piece has, at most `most`; returns how many. 0: none has them. */
static int64_t copy_row(walk *w, int64_t most, uint8_t *dst) {
    const ab_assembly *a = w->a;
    int64_t index[AB_TENSORFILE_MAX_DIMS], rest = w->at, k = 0;
    for (int d = a->ndim - 1; d >= 0; d--) {
        index[d] = rest % a->dim[d];
        rest /= a->dim[d];
    }
    const ab_piece *p = find(w, index);
    if (!p) return 0;
    for (int d = 0; d < a->ndim; d++) k = k * p->size[d] + index[d] - p->offset[d];
    const int last = a->ndim - 1;
    const int64_t row = a->ndim > 0 ? p->offset[last] + p->size[last] - index[last] : 1;
    const int64_t n = row < most ? row : most;
    copy(p, p->first + k, n, w->width, dst);
    return n;
}

ab_status ab_assembled_next(void *state, uint8_t *dst, int64_t bytes) {
    walk *w = state;
    for (int64_t left = bytes / w->width; left > 0;) {
        const int64_t n = copy_row(w, left, dst);
        if (n == 0) return ab_fail(AB_INPUT, "no file has its element %" PRId64, w->at);
        w->at += n;
        dst += n * w->width;
        left -= n;
    }
    return AB_OK;
}

ab_status ab_assembled_end(void *state, bool complete) {
    (void)complete;
    free(state);
    return AB_OK;
}

void ab_assembled_release(ab_tensorfile *file) {
    ab_assembled *set = file->reader_data;
    if (!set) return;
    for (int i = 0; i < set->count; i++) free(set->of[i].piece);
    for (int i = set->files - 1; i >= 0; i--) ab_tensorfile_close(set->file[i]); /* parts before wholes */
    free(set->of);
    free(set->named);
    free(set->file);
    free(set);
}
