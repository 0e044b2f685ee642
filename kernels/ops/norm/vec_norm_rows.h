/* Normalisation of rows whose length is a multiple of AB_NORM_STEP, as vector code compiled once per CPU
 * level and pair of formats (vec_norm_rows.c): several rows at once, so that latencies hide behind each
 * other, and stored halves are widened and rounded in registers. The bits are those of row_moments, row_dot,
 * row_normalise, row_gradient_sums and row_gradient of kernels/vec/vec_math.h at every level.
 *
 * Internal to kernels/; the only caller is norm_rows.c. */
#ifndef AB_KERNELS_OPS_NORM_VEC_NORM_ROWS_H
#define AB_KERNELS_OPS_NORM_VEC_NORM_ROWS_H

#include "kernels/core/compiler.h"
#include "kernels/format/stored.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* Values; rows must be a multiple of it long. */
enum { AB_NORM_STEP = 16 };

/* Rows of n values, one after the other. */
typedef struct ab_norm_forward {
    const void *x;
    void *y;
    const float *weight, *bias; /* bias may be NULL */
    float *mean, *rstd;         /* one a row, written; NULL: not wanted */
    int64_t rows, n;
    double eps;
    bool centred; /* else the mean is 0 */
} ab_norm_forward;

typedef struct ab_norm_backward {
    const void *x, *dy;
    void *dx; /* NULL: not wanted */
    const float *weight;
    const float *mean, *rstd; /* one a row; mean NULL: 0 */
    float *dweight, *dbias;   /* row after row is added */
    int64_t rows, n;
    bool centred;
} ab_norm_backward;

typedef struct ab_vec_norm_rows {
    /* By the formats of x and dx, and of y and dy; NULL for two halves that differ. */
    void (*forward[AB_STORED_COUNT][AB_STORED_COUNT])(const ab_norm_forward *f);
    void (*backward[AB_STORED_COUNT][AB_STORED_COUNT])(const ab_norm_backward *b);
    /* all[i] += few[i], and few[i] = 0. */
    void (*move_on)(double *all, float *few, int64_t n);
    /* Where both formats are bf16, rows of parameters and of their gradients are in an order of their own.
     * pair: puts a row in it; part: puts it back. */
    void (*pair)(float *row, int64_t n);
    void (*part)(float *row, int64_t n);
} ab_vec_norm_rows;

AB_END_DECLS

#endif
