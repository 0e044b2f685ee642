/* Shape inference and cost of the unary functions (gelu, silu, tanh, sigmoid, ...).
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ELEMENTWISE_UNARY_OPS_H
#define AB_KERNELS_OPS_ELEMENTWISE_UNARY_OPS_H

#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_math.h"

AB_BEGIN_DECLS

/* out has in's shape. */
AB_MUST_CHECK ab_status ab_unary_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out);

/* 20 operations per element, about the cost of an exponential. */
double ab_unary_flops(const void *attrs, const ab_shape *in, const ab_shape *out);

AB_END_DECLS

#endif
