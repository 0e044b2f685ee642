/* Loops over the formulas of unary.def, compiled once per CPU level (vec_unary.c). All levels give the same
 * bits.
 *
 * Internal to unary_ops.c. Single-threaded, fp32 only. */
#ifndef AB_OPS_ELEMENTWISE_VEC_UNARY_H
#define AB_OPS_ELEMENTWISE_VEC_UNARY_H

#include "kernels/ops/elementwise/elementwise.h"

AB_BEGIN_DECLS

typedef struct ab_unary_loops {
    /* out = value(x), n values; out may alias x */
    void (*value)(float *out, const float *x, ab_scalars s, int64_t n);
    /* din = dout * slope(v), v: x or the result (unary.def); din may alias v or dout */
    void (*slope)(float *din, const float *v, const float *dout, ab_scalars s, int64_t n);
} ab_unary_loops;

typedef struct ab_vec_unary {
#define AB_UNARY(id, reads, attributes) ab_unary_loops id;
#include "kernels/ops/elementwise/unary.def"
#undef AB_UNARY
} ab_vec_unary;

AB_END_DECLS

#endif
