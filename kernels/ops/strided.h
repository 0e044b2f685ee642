/* Reads runs of elements of a strided view (views.h), in view order, as fp32.
 *
 * Internal to kernels/. Single-threaded. */
#ifndef AB_KERNELS_OPS_STRIDED_H
#define AB_KERNELS_OPS_STRIDED_H

#include "kernels/ops/op.h"
#include "kernels/ops/views.h"

AB_BEGIN_DECLS

/* Returns fp32 values of the view's elements [at, at + n): the tensor's own memory or `buffer`. */
const float *ab_strided_read(const ab_strided *view, const ab_tensor *tensor, int64_t at, int64_t n,
                             float *buffer);

AB_END_DECLS

#endif
