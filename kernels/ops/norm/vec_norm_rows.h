/* Sums of rows whose length is a multiple of AB_NORM_STEP, as vector code compiled once per CPU level
 * (vec_norm_rows.c): several rows, or several sums of a row, at once, so that latencies hide behind each
 * other. The bits are those of row_moments and row_gradient_sums of kernels/vec/vec_math.h at every level.
 *
 * Internal to kernels/; the only caller is norm_rows.c. */
#ifndef AB_KERNELS_OPS_NORM_VEC_NORM_ROWS_H
#define AB_KERNELS_OPS_NORM_VEC_NORM_ROWS_H

#include "kernels/vec/vec_math.h"

AB_BEGIN_DECLS

/* ROWS: of a call. STEP: rows must be a multiple of it long. */
enum { AB_NORM_ROWS = 4, AB_NORM_STEP = 16 };

typedef struct ab_vec_norm_rows {
    /* mean[r], rstd[r] = 1 / sqrt(squared deviations / n + eps) of AB_NORM_ROWS rows of n values, one after
     * the other. */
    void (*statistics)(const float *x, int64_t n, double eps, float *mean, float *rstd);
    /* row_gradient_sums; all of its results are wanted. */
    void (*gradient_sums)(const float *dy, const float *x, const ab_row_norm *norm, const float *gamma,
                          float *dgamma, float *dbeta, double sum[2], int64_t n);
} ab_vec_norm_rows;

AB_END_DECLS

#endif
