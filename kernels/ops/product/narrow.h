/* Our own convolution for layers that deliver at most eight channels (LeNet's first layer, the input gradient
 * of its second), where the library's kernels run at a fraction of their speed.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_PRODUCT_NARROW_H
#define AB_KERNELS_OPS_PRODUCT_NARROW_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* A pass (product.h) for fp32 operands, one group and horizontally undilated kernels whose result has at most
 * eight channels: out (forward), in (backward data) or out (backward weights). Otherwise leaves *pass NULL.
 * Bits do not depend on the number of threads. */
AB_MUST_CHECK ab_status ab_narrow_pass(const ab_pass_spec *spec, ab_pass **pass);

AB_END_DECLS

#endif
