/* Loops over the formulas of pointwise.def, compiled once per CPU level (vec_pointwise.c). Every level gives the same bits.
 *
 * Internal to pointwise_loss.c. No threads and no stored formats here. */
#ifndef AB_OPS_LOSS_VEC_POINTWISE_H
#define AB_OPS_LOSS_VEC_POINTWISE_H

#include "kernels/ops/loss/pointwise_loss.h"

AB_BEGIN_DECLS

/* out = f(x, t), n values; out must be neither. */
typedef void (*ab_loss_loop)(float *out, const float *x, const float *t, int64_t n);

/* The value, and its derivatives by x and by t. */
typedef struct ab_loss_loops {
    ab_loss_loop value, by[2];
} ab_loss_loops;

typedef struct ab_vec_pointwise {
#define AB_POINTWISE(id) ab_loss_loops id;
#include "kernels/ops/loss/pointwise.def"
#undef AB_POINTWISE
} ab_vec_pointwise;

AB_END_DECLS

#endif
