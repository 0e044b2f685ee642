/* A product cut into slices of the batch or of the outputs, so that a library that is called with one thread
 * works on all threads, and so that its results do not depend on their number.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_PRODUCT_SLICED_H
#define AB_KERNELS_OPS_PRODUCT_SLICED_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* Makes a pass for `spec` out of passes of `maker` for equal slices of its batch; how many is decided by the
 * shape alone. Weight gradients of the slices are added in double, in order; those of matrix products are cut
 * by output features instead (a batch of rows is short, and its weights many). Leaves *pass NULL where the
 * maker does. Tells its caller whether src and dout are finite (ab_pass_args.nonfinite): every slice looks at
 * its share while that is in the cache. */
AB_MUST_CHECK ab_status ab_sliced_pass(ab_pass_maker maker, const ab_pass_spec *spec, ab_pass **pass);

AB_END_DECLS

#endif
