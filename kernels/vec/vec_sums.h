/* Sums of columns, in the order that all of them have at every CPU level: row i is added to sum i % ROW_SUMS,
 * but for the rows behind the last ROW_SUMS, which go to sum 0; then the sums are added.
 *
 * Only vec_*.c include this. */
#ifndef AB_KERNELS_VEC_VEC_SUMS_H
#define AB_KERNELS_VEC_VEC_SUMS_H

#include "kernels/vec/vec_wide.h"

enum { ROW_SUMS = 4 };

static inline int columns_left(int64_t left) { return left < LANES ? (int)left : LANES; }

static inline void clear_sums(wide sums[ROW_SUMS]) {
    for (int i = 0; i < ROW_SUMS; i++) sums[i] = wide_zero();
}

static inline wide total_sum(const wide sums[ROW_SUMS]) {
    return wide_add(wide_add(sums[0], sums[1]), wide_add(sums[2], sums[3]));
}

#endif
