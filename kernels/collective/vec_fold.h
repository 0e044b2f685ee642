/* Sums of many rows that are rounded after every addition, compiled once per CPU level (vec_fold.c). Every
 * level gives the same bits.
 *
 * Internal to kernels/collective. No threading here. */
#ifndef AB_KERNELS_COLLECTIVE_VEC_FOLD_H
#define AB_KERNELS_COLLECTIVE_VEC_FOLD_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* sum[i] = round(... round(round(sum[i] + row[0][i]) + row[1][i]) ...) for i < n. Rows hold values of the
 * format that is rounded to. */
typedef void ab_fold(float *sum, const float *const *row, int64_t rows, int64_t n);

typedef struct ab_vec_fold {
    ab_fold *fp32, *fp16, *bf16;
} ab_vec_fold;

AB_END_DECLS

#endif
