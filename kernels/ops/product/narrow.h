/* Convolution for layers with at most eight result channels (LeNet's first layer, the input gradient of its
 * second), for which oneDNN's kernels are slow.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_PRODUCT_NARROW_H
#define AB_KERNELS_OPS_PRODUCT_NARROW_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* Makes a pass (pass.h) for fp32 operands, one group, horizontally undilated kernels and at most eight
 * channels of the result: out (forward), in (backward data) or out (backward weights). Otherwise leaves *pass
 * NULL. Bits do not depend on the number of threads. */
AB_MUST_CHECK ab_status ab_narrow_pass(const ab_pass_spec *spec, ab_pass **pass);

AB_END_DECLS

#endif
