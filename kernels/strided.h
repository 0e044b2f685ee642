/* A tensor seen through another shape: broadcast (a stride of zero), permuted, or with dimensions left out. Reads runs of
 * elements in the order of that shape as fp32.
 *
 * Internal to kernels/. Knows nothing of threads. */
#ifndef AB_KERNELS_STRIDED_H
#define AB_KERNELS_STRIDED_H

#include "kernels/op.h"

AB_BEGIN_DECLS

typedef struct ab_strided {
    int ndim; /* of the view, neighbours merged where memory allows */
    int64_t dim[AB_MAX_DIMS], stride[AB_MAX_DIMS];
} ab_strided;

/* `from` as `to`: dimensions are aligned at the end, those that are missing or 1 are repeated. */
ab_strided ab_strided_broadcast(const ab_shape *from, const ab_shape *to);

/* View dimension i is dimension order[i] of `from`. */
ab_strided ab_strided_permute(const ab_shape *from, const int64_t *order);

/* What is left of `whole` without the dimensions in `axes` (bit i), repeated along them. */
ab_strided ab_strided_along(const ab_shape *whole, unsigned axes);

/* fp32 values of the view's elements [at, at + n): the tensor's own memory or `buffer`. */
const float *ab_strided_read(const ab_strided *view, const ab_tensor *tensor, int64_t at, int64_t n,
                             float *buffer);

/* The shape that `a` and `b` broadcast to, torch's rules; false if they do not go together. */
bool ab_broadcast_shape(const ab_shape *a, const ab_shape *b, ab_shape *out);

/* Bit i: dimension i of `to` is repeated when `from` is broadcast to it. */
unsigned ab_broadcast_axes(const ab_shape *from, const ab_shape *to);

AB_END_DECLS

#endif
