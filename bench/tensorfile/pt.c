/* .pt, .pth, .bin, .ckpt: what torch.save writes: a zip archive with a pickle and the bytes of every storage,
 * or, before PyTorch 1.6, pickles followed by the storages. Nothing is executed: the pickle is read as data
 * (pickle.h). Stored storages are read in place, without their checksums, which PyTorch may leave out.
 *
 * A tensor may have any strides and share its storage with others. Bytes that several tensors share are
 * listed once, under the name of the largest, first one; the others are aliases, which are found by name. */
#include "bench/tensorfile/pt_walk.h"
#include "bench/tensorfile/zip.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    NOTED = 6,
    NOTE_TEXT = 900,
    SHORT_NAME = 64,
    MOST_UNPACKED = 1 << 28,
    TAR_MAGIC = 257,
    MOST_REPEATED = 1024
};

/* The bytes that tensors lie in. */
typedef struct storage {
    const uint8_t *key; /* its name, in the file */
    uint32_t key_bytes;
    int64_t data, size;          /* offset in the file, bytes unpacked */
    const ab_zip_member *packed; /* NULL: stored as it is */
} storage;

/* Which bytes of its storage a tensor has. */
typedef struct extent {
    const storage *of;
    int64_t begin, end;
    int index;  /* of the tensor */
    bool dense; /* it has all of these bytes, once */
} extent;

typedef struct pt {
    ab_tensorfile *file;
    ab_pickle tree;
    uint32_t root;
    ab_zip_member *member;
    int64_t members;
    uint8_t *unpacked; /* the pickle, if it is deflated */
    storage *storage;  /* sorted by key */
    int64_t storages;
    extent *extent; /* by tensor, while listing */
    int extents, extent_room;
    char noted[NOTED][SHORT_NAME]; /* objects that are no tensors, while listing */
    int notes, unnoted;
    bool big_endian;
} pt;

/* ---- storages -------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b) {
    const storage *x = a, *y = b;
    const uint32_t n = x->key_bytes, m = y->key_bytes;
    const int order = memcmp(x->key, y->key, n < m ? n : m);
    return order != 0 ? order : n < m ? -1 : n > m;
}

static const storage *find_storage(const pt *p, const uint8_t *key, uint32_t key_bytes) {
    const storage wanted = {.key = key, .key_bytes = key_bytes};
    if (p->storages == 0) return NULL;
    return bsearch(&wanted, p->storage, (size_t)p->storages, sizeof wanted, by_key);
}

static ab_status bad(const char *name, const char *format, ...) AB_PRINTF(2, 3);

/* Always fails: tensor "name": what the format says. */
static ab_status bad(const char *name, const char *format, ...) {
    char shown[AB_TENSORFILE_TEXT], what[AB_TENSORFILE_TEXT];
    va_list args;
    va_start(args, format);
    ab_text_show_args(what, sizeof what, format, args);
    va_end(args);
    return ab_fail(AB_INPUT, "tensor \"%s\": %s", ab_tensor_printable(name, shown), what);
}

/* ---- a tensor -------------------------------------------------------------------------------- */

/* Position of the last element, in elements from the first; false if it does not fit or a stride is negative.
 */
static bool last_element(const ab_pt_tensor *t, int64_t *last) {
    *last = 0;
    for (int d = 0; d < t->ndim; d++) {
        const int64_t steps = t->dim[d] - 1;
        if (t->dim[d] < 0 || t->stride[d] < 0) return false;
        if (steps <= 0) continue;
        if (t->stride[d] > 0 && steps > (INT64_MAX - *last) / t->stride[d]) return false;
        *last += steps * t->stride[d];
    }
    return true;
}

/* Whether elements in the order of their indices lie side by side. */
static bool is_in_order(const ab_pt_tensor *t) {
    int64_t expected = 1;
    for (int d = t->ndim - 1; d >= 0; d--) {
        if (t->dim[d] != 1 && t->stride[d] != expected) return false;
        expected *= t->dim[d];
    }
    return true;
}

static ab_status fill_dims(const ab_pt_tensor *t, ab_tensor_entry *entry) {
    const size_t bytes = (size_t)(t->ndim > 0 ? t->ndim : 1) * sizeof *entry->dim;
    entry->ndim = t->ndim;
    entry->dim = malloc(bytes);
    if (!entry->dim) return ab_fail(AB_NO_MEMORY, "out of memory for a shape");
    memcpy(entry->dim, t->dim, (size_t)t->ndim * sizeof *entry->dim);
    AB_TRY(ab_tensor_entry_measure(entry, entry->element->bits));
    if (entry->count <= 1 || is_in_order(t)) return AB_OK;
    entry->stride = malloc(bytes);
    if (!entry->stride) return ab_fail(AB_NO_MEMORY, "out of memory for strides");
    memcpy(entry->stride, t->stride, (size_t)t->ndim * sizeof *entry->stride);
    return AB_OK;
}

/* Checks that all elements are in the storage, and where the storage is. */
static ab_status place(const pt *p, const char *name, const ab_pt_tensor *t, ab_tensor_entry *entry,
                       extent *e) {
    const int64_t width = entry->element->bits / 8;
    const storage *s = find_storage(p, t->key, t->key_bytes);
    int64_t last;
    if (!s)
        return bad(name, "expected its storage \"%.*s\" in the file, found none",
                   (int)(t->key_bytes < SHORT_NAME ? t->key_bytes : SHORT_NAME), (const char *)t->key);
    if (t->stored > s->size / width)
        return bad(name, "expected a storage of %" PRId64 " elements, found %" PRId64 " bytes", t->stored,
                   s->size);
    if (!last_element(t, &last) || t->offset < 0)
        return bad(name, "expected an offset, sizes and strides from 0 on that fit in 63 bits");
    if (t->view > t->stored || t->offset > t->stored - t->view ||
        (entry->count > 0 && last >= t->stored - t->view - t->offset))
        return bad(name, "reaches beyond its storage of %" PRId64 " elements", t->stored);
    if (entry->count / MOST_REPEATED > t->stored) /* strides of 0 */
        return bad(name, "repeats the elements of its storage more than %d times", MOST_REPEATED);
    const int64_t begin = (t->view + t->offset) * width;
    *e = (extent){s, begin, entry->count > 0 ? begin + (last + 1) * width : begin, p->file->count,
                  last + 1 == entry->count};
    entry->offset = s->packed ? s->data : s->data + begin;
    entry->packed = s->packed ? s->packed->packed : 0;
    entry->skip = s->packed ? begin : 0;
    if (!s->packed || !entry->stride) return AB_OK;
    return bad(name, "expected elements side by side in a deflated storage, found strides");
}

static ab_status keep_extent(pt *p, const extent *e) {
    if (p->extents == p->extent_room) {
        const int room = p->extent_room ? 2 * p->extent_room : 64;
        extent *grown = realloc(p->extent, (size_t)room * sizeof *grown);
        if (!grown) return ab_fail(AB_NO_MEMORY, "out of memory for %d tensors", room);
        p->extent = grown;
        p->extent_room = room;
    }
    p->extent[p->extents++] = *e;
    return AB_OK;
}

static ab_status see_tensor(void *context, const char *name, const ab_pt_tensor *t) {
    pt *p = context;
    extent e;
    ab_tensor_entry entry = {.name = ab_text_new("%s", name),
                             .element = ab_element_at(t->type->element),
                             .big_endian = p->big_endian};
    ab_status status = entry.name ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory for a name");
    ab_text_exact(entry.dtype, sizeof entry.dtype, "%s", t->type->shown);
    if (status == AB_OK) status = fill_dims(t, &entry);
    if (status == AB_OK) status = place(p, name, t, &entry, &e);
    if (status == AB_OK) status = keep_extent(p, &e);
    if (status == AB_OK) return ab_tensorfile_add(p->file, &entry);
    ab_tensor_entry_clear(&entry);
    return status;
}

/* ---- tensors that share bytes ---------------------------------------------------------------- */

static int by_bytes(const void *a, const void *b) {
    const extent *x = a, *y = b;
    if (x->of != y->of) return x->of < y->of ? -1 : 1;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end > y->end ? -1 : 1;
    if (x->dense != y->dense) return x->dense ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

/* Marks with index -1 the tensors whose bytes a larger or earlier one of the same type has. */
static int mark_shared(pt *p, bool *shared) {
    const ab_tensor_entry *tensor = p->file->tensor;
    const extent *all = NULL; /* the last that has all of its bytes */
    int count = 0;
    qsort(p->extent, (size_t)p->extents, sizeof *p->extent, by_bytes);
    for (int i = 0; i < p->extents; i++) {
        const extent *e = &p->extent[i];
        const bool inside = all && all->of == e->of && e->begin >= all->begin && e->end <= all->end &&
                            tensor[e->index].element == tensor[all->index].element && e->end > e->begin;
        if (inside)
            shared[e->index] = true;
        else if (e->dense)
            all = e;
        count += inside;
    }
    return count;
}

/* Moves the tensors that share bytes to the aliases. */
static ab_status set_aliases(pt *p) {
    ab_tensorfile *file = p->file;
    ab_status status = AB_OK;
    int kept = 0;
    bool *shared = calloc((size_t)file->count + 1, sizeof *shared);
    if (!shared) return ab_fail(AB_NO_MEMORY, "out of memory for %d tensors", file->count);
    const int count = p->extents > 0 ? mark_shared(p, shared) : 0;
    if (count > 0 && !(file->alias = calloc((size_t)count, sizeof *file->alias)))
        status = ab_fail(AB_NO_MEMORY, "out of memory for %d tensors", count);
    for (int i = 0; i < file->count && count > 0 && status == AB_OK; i++) {
        if (shared[i])
            file->alias[file->aliases++] = file->tensor[i];
        else
            file->tensor[kept++] = file->tensor[i];
    }
    if (count > 0 && status == AB_OK) file->count = kept;
    free(shared);
    return status;
}

static int by_name(const void *a, const void *b) {
    const ab_tensor_entry *const *x = a, *const *y = b;
    const int order = strcmp((*x)->name, (*y)->name);
    return order != 0 ? order : *x < *y ? -1 : 1;
}

/* Names that occur again, as those of {"a.b": ..., "a": {"b": ...}}, get a number: "a.b~2". */
static ab_status number_names(ab_tensorfile *file) {
    ab_tensor_entry **entry = malloc((size_t)(file->count > 0 ? file->count : 1) * sizeof *entry);
    if (!entry) return ab_fail(AB_NO_MEMORY, "out of memory for %d names", file->count);
    for (int i = 0; i < file->count; i++) entry[i] = &file->tensor[i];
    if (file->count > 0) qsort(entry, (size_t)file->count, sizeof *entry, by_name);
    ab_status status = AB_OK;
    for (int i = 1, first = 0; i < file->count && status == AB_OK; i++) {
        if (strcmp(entry[first]->name, entry[i]->name) != 0) {
            first = i;
            continue;
        }
        char *name = ab_text_new("%s~%d", entry[i]->name, i - first + 1);
        if (!name) status = ab_fail(AB_NO_MEMORY, "out of memory for a name");
        if (name) {
            free(entry[i]->name);
            entry[i]->name = name;
        }
    }
    free(entry);
    return status;
}

/* ---- what is no tensor ----------------------------------------------------------------------- */

static ab_status see_value(void *context, const char *name, const ab_tensor_value *value) {
    pt *p = context;
    char text[SHORT_NAME], shown[AB_TENSORFILE_TEXT];
    (void)name;
    if (value->kind != AB_VALUE_CALL) return AB_OK;
    ab_text_show(text, sizeof text, "%s", ab_tensor_printable(value->text, shown));
    for (int i = 0; i < p->notes; i++)
        if (strcmp(p->noted[i], text) == 0) return AB_OK;
    if (p->notes == NOTED)
        p->unnoted++;
    else
        memcpy(p->noted[p->notes++], text, sizeof text);
    return AB_OK;
}

static ab_status set_note(pt *p) {
    char text[NOTE_TEXT];
    size_t length = 0;
    if (p->notes == 0) return AB_OK;
    length = ab_text_show(text, sizeof text, p->notes > 1 ? "not tensors: " : "not a tensor: ");
    for (int i = 0; i < p->notes; i++)
        length = ab_text_append(text, sizeof text, "%s%s", i > 0 ? ", " : "", p->noted[i]);
    if (p->unnoted > 0) length = ab_text_append(text, sizeof text, " and others");
    (void)length;
    p->file->note = ab_text_new("%s (not executed)", text);
    return p->file->note ? AB_OK : ab_fail(AB_NO_MEMORY, "out of memory for a note");
}

/* ---- zip archives ---------------------------------------------------------------------------- */

static bool ends_with(const ab_zip_member *m, const char *suffix) {
    const size_t n = strlen(suffix);
    return m->name_bytes >= n && memcmp(m->name + m->name_bytes - n, suffix, n) == 0;
}

/* The member `name` in the same folder as the pickle. */
static const ab_zip_member *beside(const pt *p, const ab_zip_member *pickle, const char *name) {
    const size_t folder = pickle->name_bytes - strlen("data.pkl"), n = strlen(name);
    for (int64_t i = 0; i < p->members; i++) {
        const ab_zip_member *m = &p->member[i];
        if (m->name_bytes == folder + n && memcmp(m->name, pickle->name, folder) == 0 && ends_with(m, name))
            return m;
    }
    return NULL;
}

static const ab_zip_member *find_pickle(const pt *p) {
    const ab_zip_member *found = NULL;
    for (int64_t i = 0; i < p->members; i++)
        if (ends_with(&p->member[i], "data.pkl") && (!found || p->member[i].name_bytes < found->name_bytes))
            found = &p->member[i];
    return found;
}

/* The members FOLDER/data/KEY. */
static ab_status list_storages(pt *p, const ab_zip_member *pickle) {
    static const char inside[] = "data/";
    const size_t folder = pickle->name_bytes - strlen("data.pkl"), n = folder + strlen(inside);
    p->storage = calloc((size_t)(p->members > 0 ? p->members : 1), sizeof *p->storage);
    if (!p->storage) return ab_fail(AB_NO_MEMORY, "out of memory for %" PRId64 " members", p->members);
    for (int64_t i = 0; i < p->members; i++) {
        const ab_zip_member *m = &p->member[i];
        if (m->name_bytes <= n || memcmp(m->name, pickle->name, folder) != 0 ||
            memcmp(m->name + folder, inside, strlen(inside)) != 0)
            continue;
        p->storage[p->storages++] = (storage){.key = (const uint8_t *)m->name + n,
                                              .key_bytes = (uint32_t)(m->name_bytes - n),
                                              .data = m->data,
                                              .size = m->size,
                                              .packed = m->deflated ? m : NULL};
    }
    qsort(p->storage, (size_t)p->storages, sizeof *p->storage, by_key);
    return AB_OK;
}

/* The bytes of a member: in the file, or unpacked. */
static ab_status contents(pt *p, const ab_zip_member *m, const uint8_t **bytes) {
    ab_zip_stream *stream = NULL;
    *bytes = p->file->map + m->data;
    if (!m->deflated) return AB_OK;
    if (m->size > MOST_UNPACKED)
        return ab_fail(AB_INPUT, "expected a pickle of at most %d bytes in a deflated member, found %" PRId64,
                       MOST_UNPACKED, m->size);
    p->unpacked = malloc((size_t)m->size + 1);
    if (!p->unpacked)
        return ab_fail(AB_NO_MEMORY, "out of memory for a pickle of %" PRId64 " bytes", m->size);
    *bytes = p->unpacked;
    AB_TRY(ab_zip_open(p->file->map, m, &stream));
    ab_status status = ab_zip_read(stream, p->unpacked, m->size);
    if (status == AB_OK) status = ab_zip_check_end(stream);
    ab_zip_close(stream);
    return status;
}

static ab_status read_zip(pt *p) {
    const uint8_t *bytes;
    int64_t at = 0;
    AB_TRY(ab_zip_list(p->file->map, p->file->size, &p->member, &p->members));
    const ab_zip_member *pickle = find_pickle(p);
    if (!pickle) return ab_fail(AB_INPUT, "expected a member data.pkl, as torch.save writes it, found none");
    const ab_zip_member *order = beside(p, pickle, "byteorder");
    p->big_endian =
        order && !order->deflated && order->size == 3 && memcmp(p->file->map + order->data, "big", 3) == 0;
    AB_TRY(list_storages(p, pickle));
    AB_TRY(contents(p, pickle, &bytes));
    return ab_pickle_read(&p->tree, bytes, pickle->size, &at, &p->root);
}

/* ---- files before PyTorch 1.6 ---------------------------------------------------------------- */

/* 0x1950a86a20f9469cfc6c, the first pickle of such a file. */
static const uint8_t magic[] = {0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};

static bool is_magic(const pt *p, uint32_t id) {
    const ab_pickle_node *node = ab_pickle_at(&p->tree, id);
    return node->kind == AB_PICKLE_LONG && node->count == sizeof magic &&
           memcmp(node->as.bytes, magic, sizeof magic) == 0;
}

/* Every storage that the tree names, by key, with the size of an element in `data`. */
static ab_status list_named(const pt *p, storage **named, size_t *count) {
    *count = 0;
    *named = calloc((size_t)p->tree.nodes + 1, sizeof **named);
    if (!*named) return ab_fail(AB_NO_MEMORY, "out of memory for storages");
    for (uint32_t id = 1; id <= p->tree.nodes; id++) {
        ab_pt_tensor t;
        if (!ab_pt_storage(&p->tree, id, &t)) continue;
        (*named)[(*count)++] = (storage){.key = t.key,
                                         .key_bytes = t.key_bytes,
                                         .data = t.type ? ab_element_at(t.type->element)->bits / 8 : 1};
    }
    if (*count > 0) qsort(*named, *count, sizeof **named, by_key);
    return AB_OK;
}

/* The storage at `at`: its number of elements, then these. */
static ab_status read_old_storage(pt *p, const storage *named, size_t count, uint32_t key, int64_t *at) {
    const ab_pickle_node *node = ab_pickle_at(&p->tree, key);
    const storage wanted = {.key = node->as.bytes, .key_bytes = node->count};
    const storage *type = node->kind != AB_PICKLE_TEXT || count == 0
                              ? NULL
                              : bsearch(&wanted, named, count, sizeof wanted, by_key);
    uint64_t elements = 0;
    if (!type) return ab_fail(AB_INPUT, "expected the keys of storages that tensors have");
    if (p->file->size - *at < 8)
        return ab_fail(AB_INPUT, "expected a storage at %" PRId64 ", found the end", *at);
    for (int i = 7; i >= 0; i--) elements = elements << 8 | p->file->map[*at + i];
    *at += 8;
    if (elements > (uint64_t)((p->file->size - *at) / type->data))
        return ab_fail(AB_INPUT,
                       "expected a storage of %" PRIu64 " elements at %" PRId64 ", found %" PRId64 " bytes",
                       elements, *at, p->file->size - *at);
    p->storage[p->storages++] = (storage){
        .key = node->as.bytes, .key_bytes = node->count, .data = *at, .size = (int64_t)elements * type->data};
    *at += (int64_t)elements * type->data;
    return AB_OK;
}

static ab_status read_old_storages(pt *p, uint32_t keys, int64_t at) {
    const uint32_t count = ab_pickle_at(&p->tree, keys)->count;
    storage *named = NULL;
    size_t types = 0;
    ab_status status = list_named(p, &named, &types);
    p->storage = calloc((size_t)count + 1, sizeof *p->storage);
    if (status == AB_OK && !p->storage)
        status = ab_fail(AB_NO_MEMORY, "out of memory for %u storages", (unsigned)count);
    for (uint32_t i = 0; i < count && status == AB_OK; i++)
        status = read_old_storage(p, named, types, ab_pickle_item(&p->tree, keys, i), &at);
    if (p->storage) qsort(p->storage, (size_t)p->storages, sizeof *p->storage, by_key);
    free(named);
    return status;
}

/* Magic number, protocol, system, the object, keys of the storages, the storages. Or a single pickle, which
 * has none. */
static ab_status read_pickles(pt *p) {
    uint32_t first, keys;
    int64_t at = 0;
    AB_TRY(ab_pickle_read(&p->tree, p->file->map, p->file->size, &at, &first));
    p->root = first;
    if (!is_magic(p, first)) return AB_OK;
    for (int i = 0; i < 3; i++) AB_TRY(ab_pickle_read(&p->tree, p->file->map, p->file->size, &at, &p->root));
    AB_TRY(ab_pickle_read(&p->tree, p->file->map, p->file->size, &at, &keys));
    if (ab_pickle_at(&p->tree, keys)->kind != AB_PICKLE_LIST)
        return ab_fail(AB_INPUT, "expected a list of storages");
    return read_old_storages(p, keys, at);
}

/* ---- the reader ------------------------------------------------------------------------------ */

static bool is_pickle(const uint8_t *bytes, int64_t size) {
    return size > 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
}

static bool recognise(const uint8_t *bytes, int64_t size) {
    enum { LOOK = 40 };
    if (ab_zip_recognise(bytes, size)) return ab_zip_names(bytes, size, "data.pkl");
    for (int64_t i = 0; is_pickle(bytes, size) && i < LOOK && i + (int64_t)sizeof magic <= size; i++)
        if (memcmp(bytes + i, magic, sizeof magic) == 0) return true;
    return false;
}

static ab_status read_tree(pt *p) {
    const ab_tensorfile *file = p->file;
    if (ab_zip_recognise(file->map, file->size)) return read_zip(p);
    if (is_pickle(file->map, file->size)) return read_pickles(p);
    if (file->size > TAR_MAGIC + 5 && memcmp(file->map + TAR_MAGIC, "ustar", 5) == 0)
        return ab_fail(AB_INPUT, "a tar archive of PyTorch 0.1: load it in PyTorch and save it again");
    return ab_fail(AB_INPUT, "expected what torch.save writes: a zip archive or a pickle");
}

static ab_status list(ab_tensorfile *file) {
    pt *p = calloc(1, sizeof *p);
    if (!p) return ab_fail(AB_NO_MEMORY, "out of memory for a pickle");
    file->reader_data = p;
    p->file = file;
    const ab_pt_visitor visitor = {p, see_tensor, see_value};
    ab_status status = read_tree(p);
    if (status == AB_OK) status = ab_pt_walk(&p->tree, p->root, &visitor);
    if (status == AB_OK) status = set_aliases(p);
    if (status == AB_OK) status = number_names(file);
    if (status == AB_OK) status = set_note(p);
    free(p->extent);
    p->extent = NULL;
    return status;
}

static ab_status values(const ab_tensorfile *file, ab_value_visitor visit, void *context) {
    const pt *p = file->reader_data;
    const ab_pt_visitor visitor = {context, NULL, visit};
    return ab_pt_walk(&p->tree, p->root, &visitor);
}

static void release(ab_tensorfile *file) {
    pt *p = file->reader_data;
    if (!p) return;
    ab_pickle_free(&p->tree);
    free(p->member);
    free(p->unpacked);
    free(p->storage);
    free(p->extent);
    free(p);
}

/* ---- deflated storages ----------------------------------------------------------------------- */

typedef struct unpacking {
    ab_zip_stream *stream;
    int64_t left; /* bytes of the storage that were not read */
} unpacking;

static ab_status drop(unpacking *u, int64_t bytes) {
    uint8_t block[1 << 12];
    while (bytes > 0) {
        const int64_t part = bytes < (int64_t)sizeof block ? bytes : (int64_t)sizeof block;
        AB_TRY(ab_zip_read(u->stream, block, part));
        u->left -= part;
        bytes -= part;
    }
    return AB_OK;
}

static ab_status unpack(void *state, uint8_t *dst, int64_t bytes) {
    unpacking *u = state;
    u->left -= bytes;
    return ab_zip_read(u->stream, dst, bytes);
}

static ab_status unpack_end(void *state, bool complete) {
    unpacking *u = state;
    ab_status status = complete ? drop(u, u->left) : AB_OK;
    if (complete && status == AB_OK) status = ab_zip_check_end(u->stream);
    ab_zip_close(u->stream);
    free(u);
    return status;
}

static ab_status unpack_begin(const ab_tensorfile *file, const ab_tensor_entry *entry, void **state) {
    const pt *p = file->reader_data;
    const ab_zip_member *m = p->member;
    while (m->data != entry->offset || !m->deflated) m++; /* place() found it there */
    unpacking *u = calloc(1, sizeof *u);
    if (!u) return ab_fail(AB_NO_MEMORY, "out of memory for zlib");
    u->left = m->size;
    ab_status status = ab_zip_open(file->map, m, &u->stream);
    if (status != AB_OK) {
        free(u);
        return status;
    }
    status = drop(u, entry->skip);
    if (status == AB_OK)
        *state = u;
    else
        (void)unpack_end(u, false);
    return status;
}

const ab_tensor_reader ab_tensor_reader_pt = {
    .name = "pt",
    .suffix = ".pt",
    .also = " .pth .bin .ckpt .th .tar .model ",
    .text = "torch.save: .pt, .pth, .bin, .ckpt; nothing in it is executed",
    .recognise = recognise,
    .list = list,
    .unpack_begin = unpack_begin,
    .unpack = unpack,
    .unpack_end = unpack_end,
    .values = values,
    .release = release,
};
