/* The header of a .npy array or .npz member. NEP 1 and numpy's format versions 1.0, 2.0 and 3.0. */
#ifndef AB_BENCH_TENSORFILE_NPY_H
#define AB_BENCH_TENSORFILE_NPY_H

#include "bench/tensorfile/tensorfile.h"

AB_BEGIN_DECLS

/* AB_NPY_PREFIX: bytes needed to read the header's length. AB_NPY_HEADER_LIMIT: longest header accepted,
 * prefix included; real ones have a few hundred bytes. */
enum { AB_NPY_PREFIX = 12, AB_NPY_HEADER_LIMIT = 1 << 20 };

/* Length of the header, prefix included, from the file's first AB_NPY_PREFIX bytes (`size` of them, at least
 * 10). */
AB_MUST_CHECK ab_status ab_npy_header_bytes(const uint8_t *bytes, int64_t size, int64_t *header_bytes);

/* Parses the header of `header_bytes` bytes: fills *entry except name, offset and packed, which the caller
 * sets (name before the call). `data_bytes`: number of bytes after the header; must equal the size of the
 * array. */
AB_MUST_CHECK ab_status ab_npy_header(const uint8_t *bytes, int64_t header_bytes, int64_t data_bytes,
                                      ab_tensor_entry *entry);

AB_END_DECLS

#endif
