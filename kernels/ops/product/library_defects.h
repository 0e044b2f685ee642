/* Implementations of oneDNN that are known to be wrong for some shapes, so that they are not chosen.
 *
 * Found by comparing the AMX implementations of 2.6.3 with the definition, for thousands of random shapes,
 * the instructions emulated. Other versions were not run. Internal to kernels/. */
#ifndef AB_KERNELS_OPS_PRODUCT_LIBRARY_DEFECTS_H
#define AB_KERNELS_OPS_PRODUCT_LIBRARY_DEFECTS_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* Whether the library's implementation `name` gives wrong results or crashes for the pass: what is wrong, in
 * words, or NULL. version: 10000 major + 100 minor + patch. matmul: a matrix product, not a convolution. */
const char *ab_library_defect(const ab_pass_spec *spec, bool matmul, const char *name, int version);

AB_END_DECLS

#endif
