/* Reads and checks the header of a .safetensors file. The data is not encoded. */
#include "bench/tensorfile/safetensors.h"

#include "bench/tensorfile/json_scan.h"
#include "kernels/core/text.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_BYTES = 8, HEADER_LIMIT = 100000000 };

static const char metadata_key[] = AB_SAFETENSORS_METADATA;

/* Names of the element types in the file. */
static const struct dtype_row {
    const char *name;
    ab_element_id element;
} dtypes[] = {
    {"F64", AB_ELEMENT_fp64},
    {"F32", AB_ELEMENT_fp32},
    {"F16", AB_ELEMENT_fp16},
    {"BF16", AB_ELEMENT_bf16},
    {"F8_E4M3", AB_ELEMENT_fp8_e4m3},
    {"F8_E5M2", AB_ELEMENT_fp8_e5m2},
    {"F8_E4M3FNUZ", AB_ELEMENT_fp8_e4m3fnuz},
    {"F8_E5M2FNUZ", AB_ELEMENT_fp8_e5m2fnuz},
    {"F8_E8M0", AB_ELEMENT_fp8_e8m0},
    {"F6_E2M3", AB_ELEMENT_fp6_e2m3},
    {"F6_E3M2", AB_ELEMENT_fp6_e3m2},
    {"F4", AB_ELEMENT_fp4_e2m1},
    {"C64", AB_ELEMENT_complex64},
    {"BOOL", AB_ELEMENT_bool},
    {"I8", AB_ELEMENT_int8},
    {"U8", AB_ELEMENT_uint8},
    {"I16", AB_ELEMENT_int16},
    {"U16", AB_ELEMENT_uint16},
    {"I32", AB_ELEMENT_int32},
    {"U32", AB_ELEMENT_uint32},
    {"I64", AB_ELEMENT_int64},
    {"U64", AB_ELEMENT_uint64},
};

/* ---- reading --------------------------------------------------------------------------------- */

static uint64_t get_u64(const uint8_t *bytes) {
    uint64_t value = 0;
    for (int i = 7; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

/* State of reading a tensor's header entry. */
typedef struct draft {
    ab_tensor_entry entry;
    bool has_dtype, has_shape, has_offsets;
    int64_t begin, end;
} draft;

static ab_status twice(const draft *d, const char *key) {
    char name[AB_TENSORFILE_TEXT];
    return ab_fail(AB_INPUT, "tensor \"%s\": expected \"%s\" once, found it again",
                   ab_tensor_printable(d->entry.name, name), key);
}

static ab_status read_dtype(ab_json_scan *scan, draft *d) {
    if (d->has_dtype) return twice(d, "dtype");
    char *text = NULL;
    AB_TRY(ab_json_string(scan, &text));
    for (size_t i = 0; i < AB_COUNT_OF(dtypes); i++)
        if (strcmp(dtypes[i].name, text) == 0) {
            d->entry.element = ab_element_at(dtypes[i].element);
            ab_text_show(d->entry.dtype, sizeof d->entry.dtype, "%s", text);
            d->has_dtype = true;
        }
    ab_status status = AB_OK;
    char name[AB_TENSORFILE_TEXT], shown[AB_TENSORFILE_TEXT];
    if (!d->has_dtype)
        status =
            ab_fail(AB_INPUT, "tensor \"%s\": expected a dtype such as F32, F16, BF16, F8_E4M3, found \"%s\"",
                    ab_tensor_printable(d->entry.name, name), ab_tensor_printable(text, shown));
    free(text);
    return status;
}

static ab_status read_shape(ab_json_scan *scan, draft *d) {
    if (d->has_shape) return twice(d, "shape");
    int64_t dim[AB_TENSORFILE_MAX_DIMS], index = 0;
    int n = 0;
    AB_TRY(ab_json_open(scan, '['));
    for (bool more = true;; n++) {
        AB_TRY(ab_json_more(scan, ']', &index, &more));
        if (!more) break;
        if (n == AB_TENSORFILE_MAX_DIMS)
            return ab_fail(AB_INPUT, "JSON header, byte %zu: expected at most %d dims, found more", scan->at,
                           AB_TENSORFILE_MAX_DIMS);
        AB_TRY(ab_json_natural(scan, &dim[n]));
    }
    d->has_shape = true;
    d->entry.ndim = n;
    d->entry.dim = malloc((size_t)(n ? n : 1) * sizeof *dim);
    if (!d->entry.dim) return ab_fail(AB_NO_MEMORY, "out of memory for a shape");
    memcpy(d->entry.dim, dim, (size_t)n * sizeof *dim);
    return AB_OK;
}

static ab_status read_offsets(ab_json_scan *scan, draft *d) {
    if (d->has_offsets) return twice(d, "data_offsets");
    int64_t offset[3] = {0}, index = 0;
    bool more = true;
    AB_TRY(ab_json_open(scan, '['));
    for (int n = 0; n < 3; n++) {
        AB_TRY(ab_json_more(scan, ']', &index, &more));
        if (more == (n == 2))
            return ab_fail(AB_INPUT, "JSON header, byte %zu: expected data_offsets [begin, end], found %s",
                           scan->at, more ? "more" : "less");
        if (more) AB_TRY(ab_json_natural(scan, &offset[n]));
    }
    d->begin = offset[0];
    d->end = offset[1];
    d->has_offsets = true;
    return AB_OK;
}

static ab_status read_field(ab_json_scan *scan, draft *d) {
    static const struct {
        const char *key;
        ab_status (*read)(ab_json_scan *scan, draft *d);
    } fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    char *key = NULL;
    AB_TRY(ab_json_key(scan, &key));
    size_t i = 0;
    while (i < AB_COUNT_OF(fields) && strcmp(fields[i].key, key) != 0) i++;
    free(key);
    return i < AB_COUNT_OF(fields) ? fields[i].read(scan, d) : ab_json_skip(scan);
}

/* Type, shape and extent must agree with each other; check_cover compares the extents of different
 * tensors. */
static ab_status check_draft(draft *d, int64_t data_bytes) {
    char name[AB_TENSORFILE_TEXT], shape[AB_TENSORFILE_TEXT];
    ab_tensor_printable(d->entry.name, name);
    const char *missing = !d->has_dtype     ? "dtype"
                          : !d->has_shape   ? "shape"
                          : !d->has_offsets ? "data_offsets"
                                            : NULL;
    if (missing) return ab_fail(AB_INPUT, "tensor \"%s\": expected \"%s\", found none", name, missing);
    AB_TRY(ab_tensor_entry_measure(&d->entry, d->entry.element->bits));
    if (d->entry.count * d->entry.element->bits % 8 != 0)
        return ab_fail(AB_INPUT, "tensor \"%s\": expected whole bytes, found %" PRId64 " elements of %d bits",
                       name, d->entry.count, d->entry.element->bits);
    if (d->begin > d->end || d->end > data_bytes)
        return ab_fail(AB_INPUT,
                       "tensor \"%s\": expected data_offsets within 0..%" PRId64 ", found [%" PRId64
                       ", %" PRId64 "]",
                       name, data_bytes, d->begin, d->end);
    if (d->end - d->begin != d->entry.bytes)
        return ab_fail(
            AB_INPUT, "tensor \"%s\": expected %" PRId64 " bytes for %s of shape %s, found %" PRId64, name,
            d->entry.bytes, d->entry.dtype, ab_tensor_shape_text(&d->entry, shape), d->end - d->begin);
    return AB_OK;
}

static ab_status read_tensor(ab_json_scan *scan, draft *d, int64_t data_bytes) {
    int64_t index = 0;
    bool more = true;
    AB_TRY(ab_json_open(scan, '{'));
    for (;;) {
        AB_TRY(ab_json_more(scan, '}', &index, &more));
        if (!more) return check_draft(d, data_bytes);
        AB_TRY(read_field(scan, d));
    }
}

/* __metadata__: maps text to text. Only its syntax is checked. */
static ab_status read_metadata(ab_json_scan *scan) {
    int64_t index = 0;
    bool more = true;
    AB_TRY(ab_json_open(scan, '{'));
    for (;;) {
        AB_TRY(ab_json_more(scan, '}', &index, &more));
        if (!more) return AB_OK;
        char *text = NULL;
        AB_TRY(ab_json_key(scan, &text));
        free(text);
        AB_TRY(ab_json_string(scan, &text));
        free(text);
    }
}

/* Reads one member of the header's object. */
static ab_status read_member(ab_json_scan *scan, ab_tensorfile *file, int64_t data_begin, bool *metadata) {
    draft d = {0};
    AB_TRY(ab_json_key(scan, &d.entry.name));
    ab_status status = AB_OK;
    if (strcmp(d.entry.name, metadata_key) == 0) {
        status =
            *metadata ? ab_fail(AB_INPUT, "expected one %s, found two", metadata_key) : read_metadata(scan);
        *metadata = true;
        ab_tensor_entry_clear(&d.entry);
        return status;
    }
    status = read_tensor(scan, &d, file->size - data_begin);
    if (status != AB_OK) {
        ab_tensor_entry_clear(&d.entry);
        return status;
    }
    d.entry.offset = data_begin + d.begin;
    return ab_tensorfile_add(file, &d.entry);
}

static int by_offset(const void *a, const void *b) {
    const ab_tensor_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? -1 : 1; /* empty tensors before others at the same offset */
    return strcmp(x->name, y->name);
}

/* The tensors, in order of their offsets, must follow each other from the first byte of data to the last. */
static ab_status check_cover(const ab_tensorfile *file, int64_t data_begin) {
    int64_t at = data_begin;
    for (int i = 0; i < file->count; i++) {
        const ab_tensor_entry *entry = &file->tensor[i];
        char name[AB_TENSORFILE_TEXT];
        if (entry->offset != at)
            return ab_fail(AB_INPUT,
                           "tensor \"%s\": expected its data at offset %" PRId64 ", found %" PRId64 " (%s)",
                           ab_tensor_printable(entry->name, name), at - data_begin,
                           entry->offset - data_begin, entry->offset < at ? "overlap" : "hole");
        at += entry->bytes;
    }
    if (at != file->size)
        return ab_fail(AB_INPUT, "expected %" PRId64 " bytes of data as the header says, found %" PRId64,
                       at - data_begin, file->size - data_begin);
    return AB_OK;
}

static ab_status check_names(const ab_tensorfile *file) {
    if (file->count == 0) return AB_OK;
    const char **names = malloc((size_t)file->count * sizeof *names);
    if (!names) return ab_fail(AB_NO_MEMORY, "out of memory for %d names", file->count);
    for (int i = 0; i < file->count; i++) names[i] = file->tensor[i].name;
    const char *name = ab_tensor_duplicate(names, file->count);
    char text[AB_TENSORFILE_TEXT];
    ab_status status = AB_OK;
    if (name)
        status =
            ab_fail(AB_INPUT, "tensor \"%s\": expected once, found twice", ab_tensor_printable(name, text));
    free(names);
    return status;
}

static bool recognise(const uint8_t *bytes, int64_t size) {
    return size > PREFIX_BYTES && bytes[PREFIX_BYTES] == '{' && get_u64(bytes) <= (uint64_t)size;
}

static ab_status list(ab_tensorfile *file) {
    if (file->size < PREFIX_BYTES)
        return ab_fail(AB_INPUT, "expected an 8-byte header length, found a file of %" PRId64 " bytes",
                       file->size);
    uint64_t stated = get_u64(file->map), left = (uint64_t)file->size - PREFIX_BYTES;
    if (stated > left)
        return ab_fail(AB_INPUT, "expected a header of %" PRIu64 " bytes, found %" PRIu64 " after its length",
                       stated, left);
    if (stated > HEADER_LIMIT)
        return ab_fail(AB_INPUT, "expected a header of at most %d bytes, found %" PRIu64, HEADER_LIMIT,
                       stated);
    if (stated > 0 && file->map[PREFIX_BYTES] != '{') /* README of safetensors, "Format": it MUST begin so */
        return ab_fail(AB_INPUT, "JSON header, byte 0: expected an object '{', found byte 0x%02x",
                       file->map[PREFIX_BYTES]);
    ab_json_scan scan;
    AB_TRY(ab_json_begin(&scan, (const char *)file->map + PREFIX_BYTES, (size_t)stated));
    AB_TRY(ab_json_open(&scan, '{'));
    int64_t data_begin = PREFIX_BYTES + (int64_t)stated, index = 0;
    bool metadata = false;
    for (bool more = true;;) {
        AB_TRY(ab_json_more(&scan, '}', &index, &more));
        if (!more) break;
        AB_TRY(read_member(&scan, file, data_begin, &metadata));
    }
    AB_TRY(ab_json_end(&scan));
    if (file->count > 0) qsort(file->tensor, (size_t)file->count, sizeof *file->tensor, by_offset);
    AB_TRY(check_names(file));
    return check_cover(file, data_begin);
}

ab_status ab_safetensors_open(const char *path, ab_tensorfile **file) {
    ab_tensorfile *opened = NULL;
    AB_TRY(ab_tensorfile_open(path, &opened));
    if (opened->reader == &ab_tensor_reader_safetensors) {
        *file = opened;
        return AB_OK;
    }
    ab_status status =
        ab_fail(AB_INPUT, "%s: expected a safetensors file, found %s", path, opened->reader->name);
    ab_tensorfile_close(opened);
    return status;
}

const ab_tensor_reader ab_tensor_reader_safetensors = {
    .name = "safetensors",
    .suffix = ".safetensors",
    .text = "Hugging Face safetensors: F64 F32 F16 BF16 F8_E4M3 F8_E5M2",
    .recognise = recognise,
    .list = list,
};

/* Reads __metadata__ of a safetensors file, whose header was checked when it was opened. */

/* Bytes of the header; 0 if the file is too short for it. */
static size_t header_length(const ab_tensorfile *file) {
    uint64_t length = 0;
    if (file->size < PREFIX_BYTES) return 0;
    for (int b = 0; b < PREFIX_BYTES; b++) length |= (uint64_t)file->map[b] << (8 * b);
    return length <= (uint64_t)file->size - PREFIX_BYTES ? (size_t)length : 0;
}

ab_status ab_safetensors_metadata(const ab_tensorfile *file, const char *key, char **value) {
    *value = NULL;
    cJSON *header = cJSON_ParseWithLength((const char *)file->map + PREFIX_BYTES, header_length(file));
    if (!header) return ab_fail(AB_INPUT, "%s: its header cannot be read again", file->path);
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(header, AB_SAFETENSORS_METADATA);
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(metadata, key));
    ab_status status = AB_OK;
    if (text) {
        size_t size = strlen(text) + 1;
        *value = malloc(size);
        if (*value)
            memcpy(*value, text, size);
        else
            status = ab_fail(AB_NO_MEMORY, "%s: out of memory", file->path);
    }
    cJSON_Delete(header);
    return status;
}
