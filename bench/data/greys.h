/* Sums over all bytes of a data set's images. */
#ifndef AB_BENCH_DATA_GREYS_H
#define AB_BENCH_DATA_GREYS_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_grey_sums {
    uint64_t sum, squares; /* exact for up to 2^48 bytes */
} ab_grey_sums;

/* Of n bytes. */
ab_grey_sums ab_grey_sums_of(const uint8_t *pixel, int64_t n);

AB_END_DECLS

#endif
