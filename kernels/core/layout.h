/* Digests of struct layouts. Separately built binaries (the program and a plugin) compare them before they
 * share structs: builds with the same digest have the same fields at the same offsets. The meaning of
 * fields is not covered; AB_DEVICE_ABI versions it.
 *
 * A table names every field of a struct: FIRST(struct, its first field); FIELD(struct, a field, the next one)
 * for each field but the last; LAST(struct, its last field). AB_LAYOUT_IS_WHOLE is a compile-time check
 * for missing or reordered fields. (tests/lint/layout.cmake finds fields small enough to fit in padding.) */
#ifndef AB_CORE_LAYOUT_H
#define AB_CORE_LAYOUT_H

#include "kernels/core/device.h"

AB_BEGIN_DECLS

#define AB_LAYOUT_END_OF(type, field) (offsetof(type, field) + sizeof(((type *)0)->field))

/* For C files, at file scope: AB_DEVICE_FIELDS(AB_LAYOUT_IS_WHOLE_FIRST, AB_LAYOUT_IS_WHOLE,
 * AB_LAYOUT_IS_WHOLE_LAST) */
#define AB_LAYOUT_IS_WHOLE_FIRST(type, field)                                                                \
    _Static_assert(offsetof(type, field) == 0, #field " is not the first field of " #type);
#define AB_LAYOUT_IS_WHOLE(type, field, next)                                                                \
    _Static_assert(offsetof(type, next) - AB_LAYOUT_END_OF(type, field) < 8,                                 \
                   #next " does not follow " #field " in " #type);
#define AB_LAYOUT_IS_WHOLE_LAST(type, field)                                                                 \
    _Static_assert(sizeof(type) - AB_LAYOUT_END_OF(type, field) < 8,                                         \
                   #field " is not the last field of " #type);

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
static inline uint64_t ab_layout_bytes(uint64_t digest, const void *data, size_t bytes) {
    const unsigned char *byte = (const unsigned char *)data;
    for (size_t i = 0; i < bytes; i++) digest = (digest ^ byte[i]) * UINT64_C(1099511628211);
    return digest;
}

/* Adds a field to the digest: its type, name, offset and size in bytes. */
static inline uint64_t ab_layout_field(uint64_t digest, const char *type, const char *field, size_t offset,
                                       size_t bytes) {
    const uint64_t place[2] = {offset, bytes};
    size_t length[2] = {0, 0};
    while (type[length[0]]) length[0]++;
    while (field[length[1]]) length[1]++;
    digest = ab_layout_bytes(digest, type, length[0] + 1);
    digest = ab_layout_bytes(digest, field, length[1] + 1);
    return ab_layout_bytes(digest, place, sizeof place);
}

/* Adds a row of a table to the local `uint64_t digest`. */
#define AB_LAYOUT_DIGEST_FIRST(type, field) digest = ab_layout_bytes(digest, #type, sizeof #type);
#define AB_LAYOUT_DIGEST(type, field, next)                                                                  \
    digest = ab_layout_field(digest, #type, #field, offsetof(type, field), sizeof(((type *)0)->field));
#define AB_LAYOUT_DIGEST_LAST(type, field)                                                                   \
    AB_LAYOUT_DIGEST(type, field, end)                                                                       \
    digest = ab_layout_field(digest, #type, "", 0, sizeof(type));

#define AB_LAYOUT_BEGIN UINT64_C(14695981039346656037)

#define AB_DEVICE_FIELDS(FIRST, FIELD, LAST)                                                                 \
    FIRST(ab_device, abi)                                                                                    \
    FIELD(ab_device, abi, name)                                                                              \
    FIELD(ab_device, name, alloc)                                                                            \
    FIELD(ab_device, alloc, free)                                                                            \
    FIELD(ab_device, free, fill_zero)                                                                        \
    FIELD(ab_device, fill_zero, upload)                                                                      \
    FIELD(ab_device, upload, download)                                                                       \
    FIELD(ab_device, download, synchronize)                                                                  \
    FIELD(ab_device, synchronize, backend)                                                                   \
    FIELD(ab_device, backend, memory)                                                                        \
    FIELD(ab_device, memory, facts)                                                                          \
    FIELD(ab_device, facts, held)                                                                            \
    FIELD(ab_device, held, ranks)                                                                            \
    LAST(ab_device, ranks)

/* Digest of ab_device as compiled in the calling file. */
static inline uint64_t ab_device_layout(void) {
    uint64_t digest = AB_LAYOUT_BEGIN;
    AB_DEVICE_FIELDS(AB_LAYOUT_DIGEST_FIRST, AB_LAYOUT_DIGEST, AB_LAYOUT_DIGEST_LAST)
    return digest;
}

AB_END_DECLS

#endif
