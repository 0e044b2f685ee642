/* What the one-input functions (gelu, silu, tanh, sigmoid, ...) share besides their formulas.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ELEMENTWISE_UNARY_H
#define AB_KERNELS_OPS_ELEMENTWISE_UNARY_H

#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_math.h"

AB_BEGIN_DECLS

/* out has in's shape. */
AB_MUST_CHECK ab_status ab_unary_infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out);

/* About twenty operations an element, which is what an exponential takes. */
double ab_unary_flops(const void *attrs, const ab_shape *in, const ab_shape *out);

AB_END_DECLS

#endif
