/* Checkpoints of torch.distributed.checkpoint: a folder with `.metadata`, a pickle that says which boxes of
 * which tensors lie where in the files `*.distcp` beside it. Each box is a torch.save of its own there, and
 * so is each object that is no tensor. Nothing is executed (pickle.h).
 *
 * The format: torch/distributed/checkpoint/metadata.py (Metadata, TensorStorageMetadata,
 * ChunkStorageMetadata, MetadataIndex) and filesystem.py (_StorageInfo), PyTorch 2.0 to 2.11. */
#define _GNU_SOURCE /* memmem */
#include "bench/tensorfile/assembled.h"
#include "bench/tensorfile/json_scan.h"
#include "bench/tensorfile/pickle.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { NAME = 4096, LOOK = 256 };

/* An object that is no tensor. */
typedef struct object {
    const ab_tensorfile *file; /* its torch.save */
    char *name;                /* owned */
} object;

typedef struct dcp {
    ab_assembled set; /* first, as ab_assembled_release is given it */
    object *object;
    int objects;
} dcp;

/* An item of storage_data, by its name in the pickle. */
typedef struct stored {
    const uint8_t *name;
    uint32_t bytes, pair;
} stored;

typedef struct reader {
    ab_tensorfile *file;
    dcp *to;
    ab_pickle tree;
    uint32_t tensors, places; /* state_dict_metadata, storage_data: dicts */
    stored *stored;           /* owned; sorted */
    size_t items;
} reader;

/* ---- the pickle ------------------------------------------------------------------------------- */

static uint32_t state_of(const reader *r, uint32_t id) {
    return ab_pickle_part_of(&r->tree, id, AB_PICKLE_STATE);
}

/* The value of an object's attribute; 0: none. */
static uint32_t attribute(const reader *r, uint32_t id, const char *name) {
    return ab_pickle_value(&r->tree, state_of(r, id), name);
}

static bool is_object(const reader *r, uint32_t id, const char *class) {
    return ab_pickle_at(&r->tree, id)->kind == AB_PICKLE_CALL &&
           ab_pickle_is_global(&r->tree, ab_pickle_part_of(&r->tree, id, AB_PICKLE_FUNCTION), class);
}

static bool integer(const reader *r, uint32_t id, int64_t *value) {
    const ab_pickle_node *node = ab_pickle_at(&r->tree, id);
    *value = node->as.integer;
    return node->kind == AB_PICKLE_INTEGER;
}

/* A text of the pickle in text[NAME]; false: it is none, too long or not printable as UTF-8. */
static bool text_of(const reader *r, uint32_t id, char text[NAME]) {
    const ab_pickle_node *node = ab_pickle_at(&r->tree, id);
    if (node->kind != AB_PICKLE_TEXT || node->count >= NAME || memchr(node->as.bytes, 0, node->count))
        return false;
    memcpy(text, node->as.bytes, node->count);
    text[node->count] = '\0';
    return ab_utf8_valid(text, node->count, NULL);
}

/* torch.Size: *ndim and dim[]; false: it is none. */
static bool size_of(const reader *r, uint32_t id, int *ndim, int64_t *dim) {
    if (!is_object(r, id, "torch.Size")) return false;
    const uint32_t list = ab_pickle_item(&r->tree, ab_pickle_part_of(&r->tree, id, AB_PICKLE_ARGUMENTS), 0);
    const uint32_t count = ab_pickle_at(&r->tree, list)->count;
    if (ab_pickle_at(&r->tree, list)->kind != AB_PICKLE_TUPLE || count > AB_TENSORFILE_MAX_DIMS) return false;
    *ndim = (int)count;
    for (uint32_t d = 0; d < count; d++)
        if (!integer(r, ab_pickle_item(&r->tree, list, d), &dim[d])) return false;
    return true;
}

/* ---- where pieces lie ------------------------------------------------------------------------- */

/* Opens the torch.save that a _StorageInfo names. */
static ab_status open_place(reader *r, uint32_t info, ab_tensorfile **part) {
    char name[NAME], path[NAME];
    int64_t offset, length;
    ab_tensorfile *whole;
    if (!text_of(r, attribute(r, info, "relative_path"), name) ||
        !integer(r, attribute(r, info, "offset"), &offset) ||
        !integer(r, attribute(r, info, "length"), &length))
        return ab_fail(AB_INPUT, "expected a file, an offset and a length of every stored item");
    AB_TRY(ab_assembled_open(&r->to->set, r->file->path, name, true, &whole));
    if (offset < 0 || length < 0 || offset > whole->size || length > whole->size - offset)
        return ab_fail(AB_INPUT, "%s: expected %" PRId64 " bytes at %" PRId64 ", found the end at %" PRId64,
                       name, length, offset, whole->size);
    if (!ab_text_fits(path, sizeof path, "%s+%" PRId64, whole->path, offset))
        return ab_fail(AB_INPUT, "the path of \"%s\" is too long", ab_text_brief(name, 80));
    AB_TRY(ab_tensorfile_open_part_memory(path, whole->map + offset, length, part));
    return ab_assembled_keep(&r->to->set, *part);
}

/* Whether a MetadataIndex is of the item `name`, of a tensor's at `offset`; of an object's: NULL. */
static bool is_index(const reader *r, uint32_t index, const char *name, int ndim, const int64_t *offset) {
    int64_t here[AB_TENSORFILE_MAX_DIMS];
    int dims = 0;
    if (!ab_pickle_is_text(&r->tree, attribute(r, index, "fqn"), name)) return false;
    const bool placed = size_of(r, attribute(r, index, "offset"), &dims, here);
    if (!placed || !offset) return placed == (offset != NULL);
    for (int d = 0; d < dims && dims == ndim; d++)
        if (here[d] != offset[d]) return false;
    return dims == ndim;
}

static int by_name(const void *a, const void *b) {
    const stored *x = a, *y = b;
    const uint32_t n = x->bytes, m = y->bytes;
    const int order = memcmp(x->name, y->name, n < m ? n : m);
    if (order != 0) return order;
    return n != m ? (n > m) - (n < m) : (x->pair > y->pair) - (x->pair < y->pair);
}

/* The stored items by their names. */
static ab_status sort_places(reader *r) {
    const uint32_t pairs = ab_pickle_at(&r->tree, r->places)->count / 2;
    r->stored = calloc((size_t)pairs + 1, sizeof *r->stored);
    if (!r->stored) return ab_fail(AB_NO_MEMORY, "out of memory for %u stored items", (unsigned)pairs);
    for (uint32_t i = 0; i < pairs; i++) {
        const ab_pickle_node *name =
            ab_pickle_at(&r->tree, attribute(r, ab_pickle_item(&r->tree, r->places, 2 * i), "fqn"));
        if (name->kind == AB_PICKLE_TEXT) r->stored[r->items++] = (stored){name->as.bytes, name->count, i};
    }
    if (r->items > 0) qsort(r->stored, r->items, sizeof *r->stored, by_name);
    return AB_OK;
}

/* The place of a tensor's piece, or of an object (offset NULL); 0: none. */
static uint32_t find_place(const reader *r, const char *name, int ndim, const int64_t *offset) {
    const stored wanted = {(const uint8_t *)name, (uint32_t)strlen(name), 0};
    size_t low = 0, high = r->items;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_name(&r->stored[middle], &wanted) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < r->items && r->stored[low].bytes == wanted.bytes &&
           memcmp(r->stored[low].name, name, wanted.bytes) == 0;
         low++) {
        const uint32_t pair = r->stored[low].pair;
        if (is_index(r, ab_pickle_item(&r->tree, r->places, 2 * pair), name, ndim, offset))
            return ab_pickle_item(&r->tree, r->places, 2 * pair + 1);
    }
    return 0;
}

/* ---- tensors ---------------------------------------------------------------------------------- */

static ab_status add_piece(reader *r, const char *name, uint32_t chunk, ab_assembly *assembly) {
    ab_piece piece = {.first = 0};
    ab_tensorfile *part;
    int dims, sizes;
    if (!size_of(r, attribute(r, chunk, "offsets"), &dims, piece.offset) ||
        !size_of(r, attribute(r, chunk, "sizes"), &sizes, piece.size) || dims != sizes ||
        dims != assembly->ndim)
        return ab_fail(AB_INPUT, "tensor \"%s\": expected offsets and sizes of its pieces",
                       ab_text_brief(name, 80));
    const uint32_t place = find_place(r, name, dims, piece.offset);
    if (!place)
        return ab_fail(AB_INPUT, "tensor \"%s\": no file has one of its pieces", ab_text_brief(name, 80));
    AB_TRY(open_place(r, place, &part));
    if (part->count != 1)
        return ab_fail(AB_INPUT, "tensor \"%s\": expected one tensor in a piece, found %d",
                       ab_text_brief(name, 80), part->count);
    piece.file = part;
    piece.entry = &part->tensor[0];
    return ab_assembly_add(assembly, &piece);
}

static ab_status add_tensor(reader *r, const char *name, uint32_t about) {
    int ndim;
    int64_t dim[AB_TENSORFILE_MAX_DIMS];
    ab_assembly *assembly;
    const uint32_t chunks = attribute(r, about, "chunks");
    if (!size_of(r, attribute(r, about, "size"), &ndim, dim) ||
        ab_pickle_at(&r->tree, chunks)->kind != AB_PICKLE_LIST)
        return ab_fail(AB_INPUT, "tensor \"%s\": expected its size and pieces", ab_text_brief(name, 80));
    AB_TRY(ab_assembled_add(&r->to->set, r->file, name, ndim, dim, &assembly));
    for (uint32_t i = 0; i < ab_pickle_at(&r->tree, chunks)->count; i++)
        AB_TRY(add_piece(r, name, ab_pickle_item(&r->tree, chunks, i), assembly));
    return ab_assembled_finish(&r->to->set, r->file);
}

static ab_status add_object(reader *r, const char *name) {
    ab_tensorfile *part;
    const uint32_t place = find_place(r, name, 0, NULL);
    if (!place) return AB_OK;
    AB_TRY(open_place(r, place, &part));
    object *grown = realloc(r->to->object, (size_t)(r->to->objects + 1) * sizeof *grown);
    char *copy = grown ? ab_text_new("%s", name) : NULL;
    if (grown) r->to->object = grown;
    if (!copy) return ab_fail(AB_NO_MEMORY, "out of memory for the objects of a checkpoint");
    r->to->object[r->to->objects++] = (object){part, copy};
    return AB_OK;
}

static ab_status list_all(reader *r) {
    char name[NAME];
    for (uint32_t i = 0; i + 1 < ab_pickle_at(&r->tree, r->tensors)->count; i += 2) {
        const uint32_t about = ab_pickle_item(&r->tree, r->tensors, i + 1);
        if (!text_of(r, ab_pickle_item(&r->tree, r->tensors, i), name))
            return ab_fail(AB_INPUT, "expected names of tensors below %d bytes", NAME);
        if (is_object(r, about, "torch.distributed.checkpoint.metadata.TensorStorageMetadata"))
            AB_TRY(add_tensor(r, name, about));
        else
            AB_TRY(add_object(r, name));
    }
    return AB_OK;
}

/* ---- the reader ------------------------------------------------------------------------------- */

static bool recognise(const uint8_t *bytes, int64_t size) {
    static const char mark[] = "torch.distributed.checkpoint.metadata";
    return size > 2 && bytes[0] == 0x80 &&
           memmem(bytes, (size_t)(size < LOOK ? size : LOOK), mark, strlen(mark)) != NULL;
}

static ab_status read_tree(reader *r) {
    int64_t at = 0;
    uint32_t root;
    AB_TRY(ab_pickle_read(&r->tree, r->file->map, r->file->size, &at, &root));
    r->tensors = attribute(r, root, "state_dict_metadata");
    r->places = attribute(r, root, "storage_data");
    if (ab_pickle_at(&r->tree, r->tensors)->kind != AB_PICKLE_DICT ||
        ab_pickle_at(&r->tree, r->places)->kind != AB_PICKLE_DICT)
        return ab_fail(AB_INPUT,
                       "expected the tensors and their places, as torch.distributed.checkpoint writes them");
    AB_TRY(sort_places(r));
    return list_all(r);
}

static ab_status list(ab_tensorfile *file) {
    reader r = {.file = file, .to = calloc(1, sizeof *r.to)};
    if (!r.to) return ab_fail(AB_NO_MEMORY, "out of memory for a checkpoint");
    file->reader_data = r.to;
    const ab_status status = read_tree(&r);
    free(r.stored);
    ab_pickle_free(&r.tree);
    return status;
}

/* Values of an object below its name. */
typedef struct below {
    const char *name;
    ab_value_visitor visit;
    void *context;
} below;

static ab_status see_value(void *context, const char *name, const ab_tensor_value *value) {
    const below *b = context;
    char whole[NAME];
    if (!ab_text_fits(whole, sizeof whole, name[0] ? "%s.%s" : "%s%s", b->name, name)) return AB_OK;
    return b->visit(b->context, whole, value);
}

static ab_status values(const ab_tensorfile *file, ab_value_visitor visit, void *context) {
    const dcp *d = file->reader_data;
    for (int i = 0; i < d->objects; i++) {
        below b = {d->object[i].name, visit, context};
        AB_TRY(ab_tensorfile_values(d->object[i].file, see_value, &b));
    }
    return AB_OK;
}

static void release(ab_tensorfile *file) {
    dcp *d = file->reader_data;
    if (!d) return;
    for (int i = 0; i < d->objects; i++) free(d->object[i].name);
    free(d->object);
    ab_assembled_release(file);
}

const ab_tensor_reader ab_tensor_reader_dcp = {
    .name = "torch.distributed.checkpoint",
    .suffix = ".metadata",
    .text = "the .metadata of torch.distributed.checkpoint, beside its *.distcp",
    .recognise = recognise,
    .list = list,
    .elsewhere = ab_assembled_elsewhere,
    .files = ab_assembled_files,
    .unpack_begin = ab_assembled_begin,
    .unpack = ab_assembled_next,
    .unpack_end = ab_assembled_end,
    .values = values,
    .release = release,
};
