/* .npy: one array after a header that is a Python literal, e.g. {'descr': '<f4', 'fortran_order': False,
 * 'shape': (3, 4), }. The literal is parsed here, never evaluated; object arrays (pickles) are rejected. */
#define _POSIX_C_SOURCE 200809L /* strndup */

#include "bench/tensorfile/npy.h"

#include "bench/tensorfile/json_scan.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAGIC_BYTES = 6, DESCR_TEXT = 16, ITEM_LIMIT = 1 << 30 };

static const uint8_t magic[MAGIC_BYTES] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* ---- the Python literal ---------------------------------------------------------------------- */

typedef struct literal {
    const char *at, *end;
} literal;

static int next(literal *text) {
    while (text->at < text->end && (*text->at == ' ' || *text->at == '\n' || *text->at == '\t')) text->at++;
    return text->at < text->end ? (unsigned char)*text->at : -1;
}

static bool take(literal *text, char c) {
    if (next(text) != c) return false;
    text->at++;
    return true;
}

static bool take_word(literal *text, const char *word) {
    size_t n = strlen(word);
    if (next(text) < 0 || (size_t)(text->end - text->at) < n || memcmp(text->at, word, n) != 0) return false;
    text->at += n;
    return true;
}

static ab_status expected(literal *text, const char *what) {
    int c = next(text);
    if (c < 0) return ab_fail(AB_INPUT, "npy header: expected %s, found its end", what);
    return ab_fail(AB_INPUT, "npy header: expected %s, found '%c'", what, c > ' ' && c < 0x7F ? c : '?');
}

/* A quoted string without escapes, of at most DESCR_TEXT - 1 bytes. */
static ab_status take_string(literal *text, const char *what, char string[DESCR_TEXT]) {
    char quote = next(text) == '"' ? '"' : '\'';
    if (!take(text, quote)) return expected(text, what);
    size_t n = 0;
    while (text->at < text->end && *text->at != quote && *text->at >= ' ' && *text->at < 0x7F &&
           n < DESCR_TEXT - 1)
        string[n++] = *text->at++;
    string[n] = '\0';
    if (text->at < text->end && *text->at == quote) {
        text->at++;
        return AB_OK;
    }
    return ab_fail(AB_INPUT, "npy header: expected %s, found \"%s...\"", what, string);
}

static ab_status take_natural(literal *text, int64_t *number) {
    int64_t value = 0;
    int c = next(text);
    if (c < '0' || c > '9') return expected(text, "a dimension of 0 or more");
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
        int digit = *text->at - '0';
        if (value > (INT64_MAX - digit) / 10)
            return ab_fail(AB_INPUT, "npy header: expected a dimension below 2^63, found a larger one");
        value = value * 10 + digit;
    }
    if (text->at < text->end && *text->at == 'L') text->at++; /* suffix of Python 2 longs */
    *number = value;
    return AB_OK;
}

/* ---- its three members ----------------------------------------------------------------------- */

/* kind and size as numpy writes them; other types are listed as `other` */
static const struct {
    const char *name;
    ab_element_id element;
} dtypes[] = {
    {"f2", AB_ELEMENT_fp16},        {"f4", AB_ELEMENT_fp32},        {"f8", AB_ELEMENT_fp64},
    {"f12", AB_ELEMENT_longdouble}, {"f16", AB_ELEMENT_longdouble}, {"c8", AB_ELEMENT_complex64},
    {"c16", AB_ELEMENT_complex128}, {"b1", AB_ELEMENT_bool},        {"i1", AB_ELEMENT_int8},
    {"u1", AB_ELEMENT_uint8},       {"i2", AB_ELEMENT_int16},       {"u2", AB_ELEMENT_uint16},
    {"i4", AB_ELEMENT_int32},       {"u4", AB_ELEMENT_uint32},      {"i8", AB_ELEMENT_int64},
    {"u8", AB_ELEMENT_uint64},
};

/* State of reading a header. */
typedef struct draft {
    ab_tensor_entry *entry;
    int64_t item_bytes;
} draft;

static ab_status unknown_dtype(const char *descr) {
    return ab_fail(AB_INPUT, "npy header: expected a dtype such as '<f4', '>f2' or '<f8', found '%s'", descr);
}

/* Reads the size in bytes after the kind; strings count characters of four bytes. */
static ab_status item_size(const char *descr, const char *kind, int64_t *bytes) {
    char *end = NULL;
    if (kind[1] < '0' || kind[1] > '9') return unknown_dtype(descr);
    long size = strtol(kind + 1, &end, 10);
    bool dated = strchr("mM", kind[0]) && *end == '['; /* 'M8[ns]' */
    if ((*end && !dated) || size < 0 || size > ITEM_LIMIT) return unknown_dtype(descr);
    *bytes = kind[0] == 'U' ? 4 * (int64_t)size : size;
    return AB_OK;
}

static ab_status read_descr(literal *text, draft *d) {
    char descr[DESCR_TEXT];
    if (next(text) == '[' || next(text) == '(')
        return ab_fail(AB_INPUT, "npy header: expected one number type, found a structured dtype (records)");
    AB_TRY(take_string(text, "a dtype such as '<f4'", descr));
    const char *kind = descr + (descr[0] && strchr("<>|=", descr[0]) ? 1 : 0);
    if (*kind == 'O')
        return ab_fail(AB_INPUT,
                       "expected numbers, found an object array ('%s': pickled Python objects, never loaded)",
                       descr);
    if (!*kind || !strchr("fciubSUVmM", *kind)) return unknown_dtype(descr);
    AB_TRY(item_size(descr, kind, &d->item_bytes));
    d->entry->element = NULL;
    for (size_t i = 0; i < AB_COUNT_OF(dtypes); i++)
        if (strcmp(dtypes[i].name, kind) == 0) d->entry->element = ab_element_at(dtypes[i].element);
    if (!d->entry->element && strchr("fciub", *kind)) return unknown_dtype(descr);
    if (!d->entry->element) d->entry->element = ab_element_at(AB_ELEMENT_other);
    d->entry->big_endian = descr[0] == '>';
    ab_text_show(d->entry->dtype, sizeof d->entry->dtype, "%s", descr);
    return AB_OK;
}

static ab_status read_order(literal *text, draft *d) {
    d->entry->fortran = take_word(text, "True");
    return d->entry->fortran || take_word(text, "False") ? AB_OK : expected(text, "True or False");
}

static ab_status read_shape(literal *text, draft *d) {
    int64_t dim[AB_TENSORFILE_MAX_DIMS];
    int n = 0;
    if (!take(text, '(')) return expected(text, "a shape '('");
    while (!take(text, ')')) {
        if (n == AB_TENSORFILE_MAX_DIMS)
            return ab_fail(AB_INPUT, "npy header: expected at most %d dims, found more",
                           AB_TENSORFILE_MAX_DIMS);
        AB_TRY(take_natural(text, &dim[n++]));
        if (!take(text, ',') && next(text) != ')') return expected(text, "',' or ')'");
    }
    d->entry->dim = malloc((size_t)(n ? n : 1) * sizeof *dim);
    if (!d->entry->dim) return ab_fail(AB_NO_MEMORY, "out of memory for a shape");
    memcpy(d->entry->dim, dim, (size_t)n * sizeof *dim);
    d->entry->ndim = n;
    return AB_OK;
}

static const struct member {
    const char *key;
    ab_status (*read)(literal *text, draft *d);
} members[] = {{"descr", read_descr}, {"fortran_order", read_order}, {"shape", read_shape}};

static ab_status read_member(literal *text, draft *d, unsigned *seen) {
    char key[DESCR_TEXT];
    AB_TRY(take_string(text, "'descr', 'fortran_order' or 'shape'", key));
    if (!take(text, ':')) return expected(text, "':'");
    for (size_t i = 0; i < AB_COUNT_OF(members); i++) {
        if (strcmp(members[i].key, key) != 0) continue;
        if (*seen & 1u << i) return ab_fail(AB_INPUT, "npy header: expected '%s' once, found it again", key);
        *seen |= 1u << i;
        return members[i].read(text, d);
    }
    return ab_fail(AB_INPUT, "npy header: expected 'descr', 'fortran_order' or 'shape', found '%s'", key);
}

static ab_status read_literal(literal *text, draft *d) {
    unsigned seen = 0;
    if (!take(text, '{')) return expected(text, "'{'");
    while (!take(text, '}')) {
        AB_TRY(read_member(text, d, &seen));
        if (!take(text, ',') && next(text) != '}') return expected(text, "',' or '}'");
    }
    for (size_t i = 0; i < AB_COUNT_OF(members); i++)
        if (!(seen & 1u << i))
            return ab_fail(AB_INPUT, "npy header: expected '%s', found none", members[i].key);
    return next(text) < 0 ? AB_OK : expected(text, "its end");
}

/* ---- the header ------------------------------------------------------------------------------ */

/* Bytes before the literal: magic, version, length. */
static int64_t prefix_bytes(const uint8_t *bytes) { return bytes[MAGIC_BYTES] == 1 ? 10 : 12; }

ab_status ab_npy_header_bytes(const uint8_t *bytes, int64_t size, int64_t *header_bytes) {
    if (size < 10 || memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return ab_fail(AB_INPUT, "expected a .npy array (\\x93NUMPY), found something else");
    int major = bytes[MAGIC_BYTES], minor = bytes[MAGIC_BYTES + 1];
    if (major < 1 || major > 3 || minor != 0)
        return ab_fail(AB_INPUT, "expected npy format 1.0, 2.0 or 3.0, found %d.%d", major, minor);
    int64_t prefix = prefix_bytes(bytes), length = 0;
    if (size < prefix)
        return ab_fail(AB_INPUT, "npy header: expected %" PRId64 " bytes, found %" PRId64, prefix, size);
    for (int64_t i = prefix - 1; i >= MAGIC_BYTES + 2; i--) length = length << 8 | bytes[i];
    if (prefix + length > AB_NPY_HEADER_LIMIT)
        return ab_fail(AB_INPUT, "npy header: expected at most %d bytes, found %" PRId64, AB_NPY_HEADER_LIMIT,
                       prefix + length);
    *header_bytes = prefix + length;
    return AB_OK;
}

ab_status ab_npy_header(const uint8_t *bytes, int64_t header_bytes, int64_t data_bytes,
                        ab_tensor_entry *entry) {
    literal text = {(const char *)bytes + prefix_bytes(bytes), (const char *)bytes + header_bytes};
    draft d = {.entry = entry};
    AB_TRY(read_literal(&text, &d));
    if (bytes[header_bytes - 1] != '\n') /* numpy/lib/format.py: "terminated by a newline" */
        return ab_fail(AB_INPUT, "npy header: expected a line break at its end, found byte 0x%02x",
                       bytes[header_bytes - 1]);
    AB_TRY(ab_tensor_entry_measure(entry, 8 * d.item_bytes));
    char shape[AB_TENSORFILE_TEXT];
    if (entry->bytes != data_bytes)
        return ab_fail(AB_INPUT, "expected %" PRId64 " bytes of data for %s of shape %s, found %" PRId64,
                       entry->bytes, entry->dtype, ab_tensor_shape_text(entry, shape), data_bytes);
    return AB_OK;
}

/* ---- the file -------------------------------------------------------------------------------- */

/* The file's name without folders and ".npy", as valid UTF-8; owned by the caller, NULL if out of memory. */
static char *stem(const char *path) {
    const char *slash = strrchr(path, '/'), *start = slash ? slash + 1 : path;
    size_t n = strlen(start), bad = 0;
    if (n > 4 && strcmp(start + n - 4, ".npy") == 0) n -= 4;
    char *name = strndup(start, n);
    while (name && !ab_utf8_valid(name, n, &bad)) name[bad] = '?';
    return name;
}

static bool recognise(const uint8_t *bytes, int64_t size) {
    return size >= MAGIC_BYTES && memcmp(bytes, magic, MAGIC_BYTES) == 0;
}

static ab_status list(ab_tensorfile *file) {
    int64_t header_bytes = 0;
    AB_TRY(ab_npy_header_bytes(file->map, file->size, &header_bytes));
    if (header_bytes > file->size)
        return ab_fail(AB_INPUT, "npy header: expected %" PRId64 " bytes, found a file of %" PRId64,
                       header_bytes, file->size);
    ab_tensor_entry entry = {.name = stem(file->path), .offset = header_bytes};
    if (!entry.name) return ab_fail(AB_NO_MEMORY, "out of memory for a name");
    ab_status status = ab_npy_header(file->map, header_bytes, file->size - header_bytes, &entry);
    if (status == AB_OK) return ab_tensorfile_add(file, &entry);
    ab_tensor_entry_clear(&entry);
    return status;
}

const ab_tensor_reader ab_tensor_reader_npy = {
    .name = "npy",
    .suffix = ".npy",
    .text = "numpy array, format 1.0 to 3.0, either byte order: f2 f4 f8",
    .recognise = recognise,
    .list = list,
};
