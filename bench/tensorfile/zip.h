/* A zip archive in memory: its directory checked, its members unpacked as a stream (PKWARE APPNOTE 6.3,
 * sections 4.3 and 4.5; with or without zip64).
 *
 * Nothing is extracted: deflated members pass through the caller's buffer. Sizes that the archive declares
 * are believed only as far as its own size and deflate's largest ratio allow. Encrypted and multi-volume
 * archives, members that overlap, share a name or have one that leads out of a folder are refused. All errors
 * are AB_INPUT but AB_NO_MEMORY. */
#ifndef AB_BENCH_TENSORFILE_ZIP_H
#define AB_BENCH_TENSORFILE_ZIP_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_zip_member {
    const char *name; /* in the archive's bytes, not terminated; a relative path in UTF-8 without control
                         characters */
    size_t name_bytes;
    int64_t local;        /* offset of its local header */
    int64_t data;         /* offset of its packed bytes */
    int64_t packed, size; /* bytes in the archive, bytes unpacked */
    uint32_t crc;
    bool deflated; /* else stored as it is */
} ab_zip_member;

/* Whether the bytes begin like an archive. */
bool ab_zip_recognise(const uint8_t *bytes, int64_t size);

/* Checks the directory and hands out its members in the order of their data; the caller frees *members. */
AB_MUST_CHECK ab_status ab_zip_list(const uint8_t *bytes, int64_t size, ab_zip_member **members,
                                    int64_t *count);

/* Unpacking a deflated member: open, read its bytes in order, check that they were all of it, close. */
typedef struct ab_zip_stream ab_zip_stream;

/* Unpacks a member as a stream: open, read all of it piece by piece, close. AB_INPUT says what is wrong with
 * the member. */
AB_MUST_CHECK ab_status ab_zip_open(const uint8_t *bytes, const ab_zip_member *member,
                                    ab_zip_stream **stream);
AB_MUST_CHECK ab_status ab_zip_read(ab_zip_stream *stream, uint8_t *dst, int64_t bytes);

/* After member->size bytes: the packed stream must end there, too, with the right checksum. */
AB_MUST_CHECK ab_status ab_zip_check_end(ab_zip_stream *stream);

/* Frees the stream; NULL is a no-op. */
void ab_zip_close(ab_zip_stream *stream);

AB_END_DECLS

#endif
