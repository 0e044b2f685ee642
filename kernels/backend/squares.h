/* The sum of the squares of a tensor's values in host memory, for norms of gradients. */
#ifndef AB_KERNELS_BACKEND_SQUARES_H
#define AB_KERNELS_BACKEND_SQUARES_H

#include "kernels/ops/tensor.h"

AB_BEGIN_DECLS

/* Sum of (value * factor)^2: the product rounded to fp32, its square and the sums in double; element i in
 * lane i % 16, the lanes in order. The bits depend neither on the number of threads nor on the CPU level. */
double ab_squares_of(const ab_tensor *tensor, float factor);

AB_END_DECLS

#endif
