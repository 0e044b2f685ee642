/* Convolution in portable C: the fallback, the reference in tests, and the only implementation that
 * accumulates in a half format.
 *
 * Sums run in one documented order, term by term:
 *   forward            kernel row, kernel column, input channel
 *   backward data      kernel row, kernel column, output channel
 *   backward weights   image, output row, output column
 * With spec->accumulate every product and every partial sum is rounded to that format (RNE), which for
 * operands of that format equals performing each operation in it. Otherwise sums are fp32; backward weights
 * first sums each image.
 *
 * Internal to kernels/. Slow: plain loops without cache blocking. */
#ifndef AB_KERNELS_OPS_PRODUCT_REFERENCE_H
#define AB_KERNELS_OPS_PRODUCT_REFERENCE_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* Supports every spec with fp32 operands. */
AB_MUST_CHECK ab_status ab_reference_pass(const ab_pass_spec *spec, ab_pass **pass);

AB_END_DECLS

#endif
