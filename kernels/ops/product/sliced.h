/* A product split into slices of the batch or of the outputs. A single-threaded library call per slice uses
 * all threads, and results do not depend on their number.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_PRODUCT_SLICED_H
#define AB_KERNELS_OPS_PRODUCT_SLICED_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* Makes a pass for `spec` from passes of `maker` for equal slices of the batch; the shape alone determines
 * their number. Weight gradients of the slices are added in double, in order; those of matrix products are
 * split by output features instead (few batch rows, many weights). Leaves *pass NULL if the maker does.
 * Reports non-finite src and dout in ab_pass_args.nonfinite: every slice checks its share while it is in
 * cache. */
AB_MUST_CHECK ab_status ab_sliced_pass(ab_pass_maker maker, const ab_pass_spec *spec, ab_pass **pass);

AB_END_DECLS

#endif
