/* Loops of batch normalisation over rows of channels as they are stored, in fp32, fp16 or bf16, with the
 * addition and the relu that may follow it; compiled once per CPU level (vec_batch_norm.c). Every value is
 * computed in fp32 and rounded to the stored format wherever an op of its own would have stored it, so fused
 * passes give the bits of separate ones. Every level gives the same bits.
 *
 * Internal to kernels/ops/norm. No threads here: callers split the rows. */
#ifndef AB_KERNELS_OPS_NORM_VEC_BATCH_NORM_H
#define AB_KERNELS_OPS_NORM_VEC_BATCH_NORM_H

#include "kernels/format/stored.h"
#include "kernels/vec/isa.h"

AB_BEGIN_DECLS

/* Rows of `channels` values each, contiguous, all stored in one format. Absent tensors are NULL. */
typedef struct ab_bn_rows {
    int64_t rows, channels;
    const void *x, *dy;
    const void *addend; /* of apply: added to the rounded result, and the sum rounded */
    bool relu;          /* of apply: the result is at least 0; NaN stays */
    const void *above;  /* dy counts as 0 where this, the output of that relu, is 0 */
    void *masked;       /* of sums: receives dy where it counts, else 0 */
    void *out;          /* the result or the gradient; may be dy */
} ab_bn_rows;

/* Per-channel factors; each points to `channels` values. */
typedef struct ab_bn_factors {
    const float *mean, *scale, *shift;
    const float *slope; /* of gradient */
} ab_bn_factors;

typedef struct ab_bn_loops {
    /* mean[c] and m2[c] = sum of (x - mean)^2 over the rows: two passes over data that is in cache. */
    void (*moments)(const ab_bn_rows *r, float *mean, float *m2);
    /* out = (x - mean) * scale + shift, then `addend` and `relu`. */
    void (*apply)(const ab_bn_rows *r, const ab_bn_factors *factors);
    /* sum[c] = sum of dy, dot[c] = sum of dy * (x - mean) over the rows. */
    void (*sums)(const ab_bn_rows *r, const float *mean, float *sum, float *dot);
    /* out = ((dy - shift) - (x - mean) * slope) * scale */
    void (*gradient)(const ab_bn_rows *r, const ab_bn_factors *factors);
    /* out = (dy - mean) * scale + shift */
    void (*scaled)(const ab_bn_rows *r, const ab_bn_factors *factors);
} ab_bn_loops;

typedef struct ab_vec_batch_norm {
    ab_bn_loops of[AB_STORED_COUNT];
} ab_vec_batch_norm;

AB_BY_ISA(ab_vec_batch_norm, ab_vec_batch_norm)

AB_END_DECLS

#endif
