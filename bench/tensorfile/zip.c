/* The directory of a zip archive and the unpacking of its members. See zip.h for what is rejected. */
#define ZLIB_CONST /* zlib promises not to write to its input */

#include "bench/tensorfile/zip.h"

#include "bench/tensorfile/json_scan.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_BYTES = 30,
    CENTRAL_BYTES = 46,
    END_BYTES = 22,
    END64_BYTES = 56,
    LOCATOR_BYTES = 20,
    COMMENT_LIMIT = 65535,
    DEFLATE_RATIO = 1032, /* 258 bytes for two bits */
    METHOD_STORED = 0,
    METHOD_DEFLATED = 8,
    FLAGS_ENCRYPTED = 1 << 0 | 1 << 6 | 1 << 13, /* encrypted, strongly, headers masked */
    FLAG_PATCH = 1 << 5,
    EXTRA_ZIP64 = 1
};

static const uint32_t local_magic = 0x04034b50, central_magic = 0x02014b50, end_magic = 0x06054b50,
                      end64_magic = 0x06064b50, locator_magic = 0x07064b50;

typedef struct archive {
    const uint8_t *map;
    int64_t size;
} archive;

/* ---- the directory at the end ---------------------------------------------------------------- */

static uint64_t get(const uint8_t *bytes, int width) {
    uint64_t value = 0;
    for (int i = width - 1; i >= 0; i--) value = value << 8 | bytes[i];
    return value;
}

static bool has_magic(const archive *file, int64_t at, int64_t bytes, uint32_t magic) {
    return at >= 0 && at <= file->size - bytes && get(file->map + at, 4) == magic;
}

typedef struct directory {
    uint64_t begin, bytes, entries;
    int64_t end; /* required end: the end record's offset */
} directory;

/* Offset of the end record: the last one whose comment ends at the end of the file. -1 if there is none. */
static int64_t find_end(const archive *file) {
    int64_t last = file->size - END_BYTES, first = last > COMMENT_LIMIT ? last - COMMENT_LIMIT : 0;
    for (int64_t at = last; at >= first; at--)
        if (has_magic(file, at, END_BYTES, end_magic) && (int64_t)get(file->map + at + 20, 2) == last - at)
            return at;
    return -1;
}

/* The zip64 end record replaces numbers that do not fit in the plain one. */
static ab_status find_directory64(const archive *file, directory *d) {
    int64_t locator = d->end - LOCATOR_BYTES;
    if (!has_magic(file, locator, LOCATOR_BYTES, locator_magic)) return AB_OK;
    uint64_t at = get(file->map + locator + 8, 8);
    if (at > (uint64_t)file->size || !has_magic(file, (int64_t)at, END64_BYTES, end64_magic))
        return ab_fail(AB_INPUT, "zip: expected a zip64 end record at %" PRIu64 ", found none", at);
    const uint8_t *record = file->map + at;
    *d = (directory){get(record + 48, 8), get(record + 40, 8), get(record + 32, 8), (int64_t)at};
    return AB_OK;
}

static ab_status find_directory(const archive *file, directory *d) {
    int64_t at = find_end(file);
    if (at < 0) return ab_fail(AB_INPUT, "zip: expected an end record, found none (truncated?)");
    const uint8_t *record = file->map + at;
    *d = (directory){get(record + 16, 4), get(record + 12, 4), get(record + 10, 2), at};
    if (get(record + 4, 2) != 0 && get(record + 4, 2) != 0xFFFF)
        return ab_fail(AB_INPUT, "zip: expected a single volume, found volume %" PRIu64, get(record + 4, 2));
    AB_TRY(find_directory64(file, d));
    if (d->begin > (uint64_t)d->end || d->bytes != (uint64_t)d->end - d->begin)
        return ab_fail(AB_INPUT,
                       "zip: expected a directory that ends at %" PRId64 ", found %" PRIu64
                       " bytes at %" PRIu64,
                       d->end, d->bytes, d->begin);
    return AB_OK;
}

/* ---- one entry of the directory -------------------------------------------------------------- */

/* Members are not written to disk, but a name that leaves the folder indicates a malicious file. */
static const char *unsafe_name(const char *name, size_t n) {
    if (n == 0) return "an empty name";
    if (!ab_utf8_valid(name, n, NULL)) return "a name that is not UTF-8";
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7F) return "a control character";
    if (name[0] == '/' || memchr(name, '\\', n) || (n > 1 && name[1] == ':'))
        return "an absolute path or a backslash";
    for (size_t i = 0; i + 1 < n; i++) {
        bool starts = i == 0 || name[i - 1] == '/', ends = i + 2 == n || name[i + 2] == '/';
        if (starts && ends && name[i] == '.' && name[i + 1] == '.') return "\"..\"";
    }
    return NULL;
}

/* The 64-bit numbers of the extra field with id 1, in the order of those that the plain entry marks as too
 * large. */
static ab_status read_zip64(const uint8_t *extra, size_t bytes, int64_t *const fields[], int count) {
    while (bytes >= 4) {
        uint64_t id = get(extra, 2), length = get(extra + 2, 2);
        if (length > bytes - 4) break;
        if (id == EXTRA_ZIP64 && length >= 8u * (unsigned)count) {
            for (int i = 0; i < count; i++) {
                uint64_t value = get(extra + 4 + 8 * i, 8);
                if (value > INT64_MAX)
                    return ab_fail(AB_INPUT, "zip: expected a size below 2^63, found %" PRIu64, value);
                *fields[i] = (int64_t)value;
            }
            return AB_OK;
        }
        extra += 4 + length;
        bytes -= 4 + length;
    }
    return count == 0 ? AB_OK : ab_fail(AB_INPUT, "zip: expected a zip64 field, found none");
}

/* Checks the entry's local header and finds its data, which must lie before the directory. */
static ab_status read_local(const archive *file, const directory *d, ab_zip_member *m) {
    if (m->local > (int64_t)d->begin || !has_magic(file, m->local, LOCAL_BYTES, local_magic))
        return ab_fail(AB_INPUT, "zip: expected a local header at %" PRId64 ", found none", m->local);
    const uint8_t *record = file->map + m->local;
    size_t name_bytes = (size_t)get(record + 26, 2);
    m->data = m->local + LOCAL_BYTES + (int64_t)name_bytes + (int64_t)get(record + 28, 2);
    if (m->data > (int64_t)d->begin || m->packed > (int64_t)d->begin - m->data)
        return ab_fail(AB_INPUT,
                       "zip: expected %" PRId64 " bytes of data at %" PRId64
                       ", found the directory at %" PRIu64,
                       m->packed, m->data, d->begin);
    bool same = name_bytes == m->name_bytes && memcmp(record + LOCAL_BYTES, m->name, name_bytes) == 0;
    if (!same || get(record + 6, 2) & (FLAGS_ENCRYPTED | FLAG_PATCH) ||
        (int)get(record + 8, 2) != (m->deflated ? METHOD_DEFLATED : METHOD_STORED))
        return ab_fail(AB_INPUT, "zip: the local header at %" PRId64 " contradicts the directory", m->local);
    return AB_OK;
}

static ab_status check_sizes(const ab_zip_member *m) {
    if (!m->deflated && m->size != m->packed)
        return ab_fail(AB_INPUT, "zip: expected %" PRId64 " stored bytes, found %" PRId64, m->size,
                       m->packed);
    if (m->size / DEFLATE_RATIO > m->packed)
        return ab_fail(AB_INPUT,
                       "zip: %" PRId64 " bytes cannot come from %" PRId64 " deflated ones (a zip bomb?)",
                       m->size, m->packed);
    return AB_OK;
}

/* Reads the entry at `at` (at least CENTRAL_BYTES are available) and its length. */
static ab_status read_central(const archive *file, const directory *d, int64_t at, ab_zip_member *m,
                              int64_t *bytes) {
    const uint8_t *record = file->map + at;
    size_t name_bytes = (size_t)get(record + 28, 2), extra_bytes = (size_t)get(record + 30, 2);
    *bytes = CENTRAL_BYTES + (int64_t)name_bytes + (int64_t)extra_bytes + (int64_t)get(record + 32, 2);
    if (*bytes > d->end - at)
        return ab_fail(AB_INPUT, "zip: the directory entry at %" PRId64 " is truncated", at);
    int method = (int)get(record + 10, 2);
    *m = (ab_zip_member){.name = (const char *)record + CENTRAL_BYTES,
                         .name_bytes = name_bytes,
                         .deflated = method == METHOD_DEFLATED,
                         .crc = (uint32_t)get(record + 16, 4),
                         .packed = (int64_t)get(record + 20, 4),
                         .size = (int64_t)get(record + 24, 4),
                         .local = (int64_t)get(record + 42, 4)};
    const char *unsafe = unsafe_name(m->name, name_bytes);
    if (unsafe) return ab_fail(AB_INPUT, "zip: expected a plain relative member name, found %s", unsafe);
    if (get(record + 8, 2) & FLAGS_ENCRYPTED) return ab_fail(AB_INPUT, "zip: expected no encryption");
    if (get(record + 8, 2) & FLAG_PATCH) return ab_fail(AB_INPUT, "zip: expected whole data, found a patch");
    if (method != METHOD_STORED && method != METHOD_DEFLATED)
        return ab_fail(AB_INPUT, "zip: expected method 0 (stored) or 8 (deflated), found %d", method);
    int64_t *fields[3];
    int count = 0;
    if (m->size == UINT32_MAX) fields[count++] = &m->size;
    if (m->packed == UINT32_MAX) fields[count++] = &m->packed;
    if (m->local == UINT32_MAX) fields[count++] = &m->local;
    AB_TRY(read_zip64((const uint8_t *)m->name + name_bytes, extra_bytes, fields, count));
    AB_TRY(read_local(file, d, m));
    return check_sizes(m);
}

/* ---- all entries ----------------------------------------------------------------------------- */

static int by_local(const void *a, const void *b) {
    const ab_zip_member *x = a, *y = b;
    return x->local < y->local ? -1 : x->local > y->local;
}

static int by_name(const void *a, const void *b) {
    const ab_zip_member *const *x = a, *const *y = b;
    size_t n = (*x)->name_bytes, m = (*y)->name_bytes;
    int order = memcmp((*x)->name, (*y)->name, n < m ? n : m);
    return order != 0 ? order : n < m ? -1 : n > m;
}

/* Members must not share bytes (overlap allows zip bombs) or names. Sorts by position. */
static ab_status check_members(ab_zip_member *members, int64_t count) {
    if (count == 0) return AB_OK;
    qsort(members, (size_t)count, sizeof *members, by_local);
    for (int64_t i = 1; i < count; i++)
        if (members[i].local < members[i - 1].data + members[i - 1].packed)
            return ab_fail(AB_INPUT, "zip: expected members side by side, found two that overlap at %" PRId64,
                           members[i].local);
    const ab_zip_member **sorted = malloc((size_t)count * sizeof *sorted);
    if (!sorted) return ab_fail(AB_NO_MEMORY, "out of memory for %" PRId64 " members", count);
    for (int64_t i = 0; i < count; i++) sorted[i] = &members[i];
    qsort(sorted, (size_t)count, sizeof *sorted, by_name);
    ab_status status = AB_OK;
    for (int64_t i = 1; i < count && status == AB_OK; i++)
        if (by_name(&sorted[i - 1], &sorted[i]) == 0)
            status =
                ab_fail(AB_INPUT, "zip: expected the member \"%.*s\" once, found it twice",
                        (int)(sorted[i]->name_bytes < 100 ? sorted[i]->name_bytes : 100), sorted[i]->name);
    free(sorted);
    return status;
}

static ab_status read_directory(const archive *file, const directory *d, ab_zip_member *members,
                                int64_t capacity) {
    int64_t at = (int64_t)d->begin;
    for (int64_t i = 0; i < capacity; i++) {
        int64_t bytes = 0;
        if (d->end - at < CENTRAL_BYTES || !has_magic(file, at, CENTRAL_BYTES, central_magic))
            return ab_fail(AB_INPUT, "zip: expected %" PRId64 " directory entries, found %" PRId64, capacity,
                           i);
        AB_TRY(read_central(file, d, at, &members[i], &bytes));
        at += bytes;
    }
    if (at != d->end)
        return ab_fail(AB_INPUT, "zip: expected the directory to end, found more entries than declared");
    return check_members(members, capacity);
}

bool ab_zip_recognise(const uint8_t *bytes, int64_t size) {
    return size >= 4 && (get(bytes, 4) == local_magic || get(bytes, 4) == end_magic);
}

/* Quiet: what is wrong with a directory, ab_zip_list says. */
bool ab_zip_names(const uint8_t *bytes, int64_t size, const char *suffix) {
    const archive file = {bytes, size};
    const size_t length = strlen(suffix);
    const int64_t end = find_end(&file);
    if (end < 0) return false;
    int64_t at = (int64_t)get(bytes + end + 16, 4);
    if (at == UINT32_MAX && has_magic(&file, end - LOCATOR_BYTES, LOCATOR_BYTES, locator_magic)) {
        const uint64_t end64 = get(bytes + end - LOCATOR_BYTES + 8, 8);
        if (end64 > (uint64_t)size || !has_magic(&file, (int64_t)end64, END64_BYTES, end64_magic))
            return false;
        at = (int64_t)get(bytes + end64 + 48, 8);
    }
    while (at >= 0 && at <= size - CENTRAL_BYTES && has_magic(&file, at, CENTRAL_BYTES, central_magic)) {
        const int64_t name = (int64_t)get(bytes + at + 28, 2);
        if (name > size - CENTRAL_BYTES - at) return false;
        if (name >= (int64_t)length &&
            memcmp(bytes + at + CENTRAL_BYTES + name - (int64_t)length, suffix, length) == 0)
            return true;
        at += CENTRAL_BYTES + name + (int64_t)get(bytes + at + 30, 2) + (int64_t)get(bytes + at + 32, 2);
    }
    return false;
}

ab_status ab_zip_list(const uint8_t *bytes, int64_t size, ab_zip_member **members, int64_t *count) {
    const archive file = {bytes, size};
    directory d = {0};
    AB_TRY(find_directory(&file, &d));
    if (d.entries > d.bytes / CENTRAL_BYTES || d.entries > INT32_MAX)
        return ab_fail(AB_INPUT, "zip: expected at most %" PRIu64 " directory entries, found %" PRIu64,
                       d.bytes / CENTRAL_BYTES, d.entries);
    ab_zip_member *found = calloc(d.entries > 0 ? (size_t)d.entries : 1, sizeof *found);
    if (!found) return ab_fail(AB_NO_MEMORY, "out of memory for %" PRIu64 " members", d.entries);
    ab_status status = read_directory(&file, &d, found, (int64_t)d.entries);
    if (status != AB_OK) {
        free(found);
        return status;
    }
    *members = found;
    *count = (int64_t)d.entries;
    return AB_OK;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

struct ab_zip_stream {
    z_stream zlib;
    const uint8_t *next;
    int64_t left;       /* packed bytes not yet given to zlib */
    int64_t bytes_left; /* declared bytes not yet produced */
    const ab_zip_member *member;
    uint32_t crc;
    bool ended;
};

/* zlib counts in 32 bits: most bytes per call. */
static uInt portion(int64_t bytes) { return (uInt)(bytes < 1 << 30 ? bytes : 1 << 30); }

uint32_t ab_zip_crc(uint32_t crc, const uint8_t *bytes, int64_t count) {
    while (count > 0) {
        const uInt part = portion(count);
        crc = (uint32_t)crc32(crc, bytes, part);
        bytes += part;
        count -= part;
    }
    return crc;
}

ab_status ab_zip_check_crc(const ab_zip_member *member, uint32_t crc) {
    if (crc == member->crc) return AB_OK;
    char *name = ab_text_new("%.*s", (int)(member->name_bytes & UINT16_MAX), member->name);
    ab_fail(AB_INPUT, "zip: member \"%s\": expected checksum %08" PRIx32 ", found %08" PRIx32,
            name ? ab_text_brief(name, 200) : "?", member->crc, crc);
    free(name);
    return AB_INPUT;
}

/* One inflate call into dst[0..room); *made: bytes produced. */
static ab_status inflate_some(ab_zip_stream *u, uint8_t *dst, int64_t room, int64_t *made) {
    uInt given = portion(u->left), space = portion(room);
    u->zlib.next_in = u->next;
    u->zlib.avail_in = given;
    u->zlib.next_out = dst;
    u->zlib.avail_out = space;
    int code = inflate(&u->zlib, Z_NO_FLUSH);
    *made = space - u->zlib.avail_out;
    u->next += given - u->zlib.avail_in;
    u->left -= given - u->zlib.avail_in;
    u->ended = code == Z_STREAM_END;
    if (code == Z_OK || u->ended) return AB_OK;
    if (code == Z_BUF_ERROR) return ab_fail(AB_INPUT, "zip: the deflated data is truncated");
    return ab_fail(AB_INPUT, "zip: the deflated data is damaged: %s",
                   u->zlib.msg ? u->zlib.msg : "unknown reason");
}

ab_status ab_zip_read(ab_zip_stream *u, uint8_t *dst, int64_t bytes) {
    while (bytes > 0) {
        int64_t made = 0;
        if (u->ended)
            return ab_fail(AB_INPUT, "zip: expected %" PRId64 " more bytes, found the end", u->bytes_left);
        AB_TRY(inflate_some(u, dst, bytes, &made));
        u->crc = ab_zip_crc(u->crc, dst, made);
        dst += made;
        bytes -= made;
        u->bytes_left -= made;
    }
    return AB_OK;
}

ab_status ab_zip_check_end(ab_zip_stream *u) {
    uint8_t surplus = 0;
    int64_t made = 0;
    while (!u->ended && made == 0) AB_TRY(inflate_some(u, &surplus, 1, &made));
    if (made > 0 || u->left > 0)
        return ab_fail(AB_INPUT, "zip: expected the data to end, found more than declared");
    return ab_zip_check_crc(u->member, u->crc);
}

ab_status ab_zip_open(const uint8_t *bytes, const ab_zip_member *member, ab_zip_stream **stream) {
    ab_zip_stream *u = calloc(1, sizeof *u);
    if (!u) return ab_fail(AB_NO_MEMORY, "out of memory for zlib");
    u->next = bytes + member->data;
    u->left = member->packed;
    u->bytes_left = member->size;
    u->crc = 0;
    u->member = member;
    if (inflateInit2(&u->zlib, -MAX_WBITS) == Z_OK) {
        *stream = u;
        return AB_OK;
    }
    free(u);
    return ab_fail(AB_NO_MEMORY, "out of memory for zlib");
}

void ab_zip_close(ab_zip_stream *stream) {
    inflateEnd(&stream->zlib);
    free(stream);
}
