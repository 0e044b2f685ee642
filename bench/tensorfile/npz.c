/* .npz: a zip archive of .npy members, stored or deflated. Stored members are read in place, after their
 * checksum; that of a deflated member is known when it was read. Members that are not arrays are ignored. */
#include "bench/tensorfile/npy.h"
#include "bench/tensorfile/zip.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* One array. reader_data is a list of these with the indices of file->tensor. */
typedef struct member {
    ab_zip_member zip;
    int64_t npy_header; /* bytes of the .npy header among zip.size */
} member;

/* ---- unpacking ------------------------------------------------------------------------------- */

static ab_status unpack(void *state, uint8_t *dst, int64_t bytes) { return ab_zip_read(state, dst, bytes); }

static ab_status unpack_end(void *state, bool complete) {
    ab_status status = complete ? ab_zip_check_end(state) : AB_OK;
    ab_zip_close(state);
    return status;
}

/* Skips the header: the caller reads elements. */
static ab_status unpack_begin(const ab_tensorfile *file, const ab_tensor_entry *entry, void **state) {
    const member *m = (const member *)file->reader_data + (entry - file->tensor);
    ab_zip_stream *stream = NULL;
    uint8_t header[256];
    AB_TRY(ab_zip_open(file->map, &m->zip, &stream));
    ab_status status = AB_OK;
    for (int64_t left = m->npy_header; left > 0 && status == AB_OK; left -= (int64_t)sizeof header)
        status = ab_zip_read(stream, header, left < (int64_t)sizeof header ? left : (int64_t)sizeof header);
    if (status == AB_OK)
        *state = stream;
    else
        ab_zip_close(stream);
    return status;
}

/* The checksum of a stored member, header and all. */
static ab_status check(const ab_tensorfile *file, const ab_tensor_entry *entry) {
    enum { PART = 4 << 20 };
    const member *m = (const member *)file->reader_data + (entry - file->tensor);
    const int64_t end = m->zip.data + m->zip.size;
    uint32_t crc = 0;
    for (int64_t at = m->zip.data; at < end; at += PART) {
        const int64_t part = end - at < PART ? end - at : PART;
        crc = ab_zip_crc(crc, file->map + at, part);
        ab_tensorfile_release(file, at, at + part);
    }
    return ab_zip_check_crc(&m->zip, crc);
}

/* ---- members as tensors ---------------------------------------------------------------------- */

/* Reads the header of `bytes` bytes, the first n of which are in `prefix`. */
static ab_status unpack_rest(ab_zip_stream *stream, const uint8_t *prefix, int64_t n, int64_t bytes,
                             uint8_t **header) {
    *header = malloc((size_t)bytes);
    if (!*header) return ab_fail(AB_NO_MEMORY, "out of memory for a header of %" PRId64 " bytes", bytes);
    memcpy(*header, prefix, (size_t)n);
    return ab_zip_read(stream, *header + n, bytes - n);
}

/* Unpacks the member's first bytes; memory is limited to the longest .npy header accepted. */
static ab_status deflated_header(const ab_tensorfile *file, const ab_zip_member *m, uint8_t **header,
                                 int64_t *bytes) {
    ab_zip_stream *stream = NULL;
    uint8_t prefix[AB_NPY_PREFIX];
    int64_t n = m->size < AB_NPY_PREFIX ? m->size : AB_NPY_PREFIX;
    AB_TRY(ab_zip_open(file->map, m, &stream));
    ab_status status = ab_zip_read(stream, prefix, n);
    if (status == AB_OK) status = ab_npy_header_bytes(prefix, n, bytes);
    if (status == AB_OK && (*bytes > m->size || *bytes < n))
        status = ab_fail(AB_INPUT, "npy header: expected %" PRId64 " bytes, found %" PRId64, *bytes, m->size);
    if (status == AB_OK) status = unpack_rest(stream, prefix, n, *bytes, header);
    ab_zip_close(stream);
    return status;
}

static ab_status stored_header(const ab_tensorfile *file, const ab_zip_member *m, const uint8_t **header,
                               int64_t *bytes) {
    *header = file->map + m->data;
    AB_TRY(ab_npy_header_bytes(*header, m->size, bytes));
    if (*bytes <= m->size) return AB_OK;
    return ab_fail(AB_INPUT, "npy header: expected %" PRId64 " bytes, found %" PRId64, *bytes, m->size);
}

static ab_status fill_entry(const ab_tensorfile *file, const ab_zip_member *m, ab_tensor_entry *entry,
                            int64_t *npy_header) {
    uint8_t *unpacked = NULL;
    const uint8_t *header = NULL;
    ab_status status = m->deflated ? deflated_header(file, m, &unpacked, npy_header)
                                   : stored_header(file, m, &header, npy_header);
    entry->packed = m->deflated ? m->packed : 0;
    entry->offset = m->deflated ? m->data : m->data + *npy_header;
    if (status == AB_OK)
        status = ab_npy_header(m->deflated ? unpacked : header, *npy_header, m->size - *npy_header, entry);
    free(unpacked);
    return status;
}

static ab_status add_tensor(ab_tensorfile *file, const ab_zip_member *m, int64_t *npy_header) {
    enum { SUFFIX_BYTES = 4 }; /* ".npy" */
    ab_tensor_entry entry = {.name = calloc(1, m->name_bytes - SUFFIX_BYTES + 1)};
    if (!entry.name) return ab_fail(AB_NO_MEMORY, "out of memory for a name");
    memcpy(entry.name, m->name, m->name_bytes - SUFFIX_BYTES);
    ab_status status = fill_entry(file, m, &entry, npy_header);
    if (status == AB_OK) return ab_tensorfile_add(file, &entry);
    char name[AB_TENSORFILE_TEXT];
    status = ab_fail_prefix(status, "member \"%s.npy\"", ab_tensor_printable(entry.name, name));
    ab_tensor_entry_clear(&entry);
    return status;
}

/* ---- the archive ----------------------------------------------------------------------------- */

/* Whether the name ends in `suffix` after at least one character. */
static bool ends_with(const ab_zip_member *m, const char *suffix) {
    size_t n = strlen(suffix);
    return m->name_bytes > n && memcmp(m->name + m->name_bytes - n, suffix, n) == 0;
}

static ab_status add_tensors(ab_tensorfile *file, const ab_zip_member *zip, int64_t count) {
    member *members = calloc((size_t)(count > 0 ? count : 1), sizeof *members);
    if (!members) return ab_fail(AB_NO_MEMORY, "out of memory for %" PRId64 " members", count);
    file->reader_data = members;
    for (int64_t i = 0; i < count; i++) {
        if (!ends_with(&zip[i], ".npy")) continue;
        members[file->count].zip = zip[i];
        AB_TRY(add_tensor(file, &zip[i], &members[file->count].npy_header));
    }
    if (file->count > 0) return AB_OK;
    return ab_fail(AB_INPUT, "expected .npy members, found none");
}

static ab_status list(ab_tensorfile *file) {
    ab_zip_member *zip = NULL;
    int64_t count = 0;
    AB_TRY(ab_zip_list(file->map, file->size, &zip, &count));
    ab_status status = add_tensors(file, zip, count);
    free(zip);
    return status;
}

/* An archive with a pickle is PyTorch's. */
static bool recognise(const uint8_t *bytes, int64_t size) {
    return ab_zip_recognise(bytes, size) && ab_zip_names(bytes, size, "") &&
           !ab_zip_names(bytes, size, "data.pkl");
}

static void release(ab_tensorfile *file) { free(file->reader_data); }

const ab_tensor_reader ab_tensor_reader_npz = {
    .name = "npz",
    .suffix = ".npz",
    .text = "numpy archive: .npy members, stored or deflated",
    .recognise = recognise,
    .list = list,
    .check = check,
    .unpack_begin = unpack_begin,
    .unpack = unpack,
    .unpack_end = unpack_end,
    .release = release,
};
