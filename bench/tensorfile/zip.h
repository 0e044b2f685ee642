/* Reads a zip archive in memory: checks the directory, unpacks members as streams (PKWARE APPNOTE 6.3,
 * sections 4.3 and 4.5; with or without zip64).
 *
 * Nothing is extracted to disk: deflated members are unpacked to the caller's buffer. Declared sizes are
 * checked against the archive's size and deflate's largest ratio. Encrypted and multi-volume archives and
 * members that overlap, share a name or have a path out of the folder are rejected. Errors are AB_INPUT or
 * AB_NO_MEMORY. */
#ifndef AB_BENCH_TENSORFILE_ZIP_H
#define AB_BENCH_TENSORFILE_ZIP_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_zip_member {
    const char *name; /* points into the archive, not NUL-terminated; a relative path in UTF-8 without control
                         characters */
    size_t name_bytes;
    int64_t local;        /* offset of its local header */
    int64_t data;         /* offset of its packed bytes */
    int64_t packed, size; /* bytes in the archive, bytes unpacked */
    uint32_t crc;         /* CRC-32 of the unpacked bytes */
    bool deflated;        /* else stored */
} ab_zip_member;

/* Whether the first bytes are those of a zip archive. */
bool ab_zip_recognise(const uint8_t *bytes, int64_t size);

/* Whether there is a directory with a name that ends in `suffix`, by a look at its bytes only. */
bool ab_zip_names(const uint8_t *bytes, int64_t size, const char *suffix);

/* Checks the directory and returns its members in the order of their data; the caller frees *members. */
AB_MUST_CHECK ab_status ab_zip_list(const uint8_t *bytes, int64_t size, ab_zip_member **members,
                                    int64_t *count);

/* CRC-32 of bytes after others whose CRC-32 is `crc` (0: none before). */
uint32_t ab_zip_crc(uint32_t crc, const uint8_t *bytes, int64_t count);

/* AB_INPUT with the member's name and both values unless the CRC-32 of its unpacked bytes is `crc`. */
AB_MUST_CHECK ab_status ab_zip_check_crc(const ab_zip_member *member, uint32_t crc);

/* State of unpacking a deflated member. */
typedef struct ab_zip_stream ab_zip_stream;

/* Unpacks a deflated member (borrowed until close): open, read all its bytes in order, check_end, close.
 * AB_INPUT describes the damage. */
AB_MUST_CHECK ab_status ab_zip_open(const uint8_t *bytes, const ab_zip_member *member,
                                    ab_zip_stream **stream);
AB_MUST_CHECK ab_status ab_zip_read(ab_zip_stream *stream, uint8_t *dst, int64_t bytes);

/* After member->size bytes: the packed stream must end there and the checksum must match. */
AB_MUST_CHECK ab_status ab_zip_check_end(ab_zip_stream *stream);

/* Frees the stream; NULL is a no-op. */
void ab_zip_close(ab_zip_stream *stream);

AB_END_DECLS

#endif
