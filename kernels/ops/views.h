/* Strided views of a tensor: broadcast (stride 0), permuted, with dimensions removed, or split into kept and
 * reduced dimensions. Index arithmetic only, shared by the CPU kernels (views.c reads through a view) and
 * the GPU. */
#ifndef AB_KERNELS_OPS_VIEWS_H
#define AB_KERNELS_OPS_VIEWS_H

#include "kernels/core/shape.h"
#include "kernels/ops/op.h"

#include <stdbool.h>

AB_BEGIN_DECLS

typedef struct ab_strided {
    int ndim; /* of the view; adjacent dimensions are merged where the strides allow */
    int64_t dim[AB_MAX_DIMS], stride[AB_MAX_DIMS];
} ab_strided;

/* i / d, with the remainder in *rest; both must be non-negative. Uses 32-bit division where both fit, which
 * is several times faster on a GPU. */
static inline AB_HOST_DEVICE int64_t ab_divide(int64_t i, int64_t d, int64_t *rest) {
    if (((uint64_t)(i | d) >> 32) == 0) {
        uint32_t q = (uint32_t)i / (uint32_t)d;
        *rest = (int64_t)((uint32_t)i - q * (uint32_t)d);
        return (int64_t)q;
    }
    *rest = i % d;
    return i / d;
}

/* Memory offset of the view's element i. */
static inline AB_HOST_DEVICE int64_t ab_strided_offset(const ab_strided *view, int64_t i) {
    int64_t offset = 0, digit;
    for (int d = view->ndim - 1; d > 0; d--) {
        i = ab_divide(i, view->dim[d], &digit);
        offset += digit * view->stride[d];
    }
    return offset + i * view->stride[0];
}

/* Row-major strides in elements: stride[ndim]. */
static inline void ab_contiguous_strides(const ab_shape *shape, int64_t *stride) {
    int64_t step = 1;
    for (int i = shape->ndim - 1; i >= 0; i--) {
        stride[i] = step;
        step *= shape->dim[i];
    }
}

/* Drops dimensions of size 1 and merges adjacent dimensions with compatible strides. */
static inline ab_strided ab_strided_merged(const ab_strided *view) {
    ab_strided m = {0, {1}, {1}};
    for (int i = 0; i < view->ndim; i++) {
        int last = m.ndim - 1;
        if (view->dim[i] == 1) continue;
        if (m.ndim && m.stride[last] == view->stride[i] * view->dim[i]) {
            m.dim[last] *= view->dim[i];
            m.stride[last] = view->stride[i];
            continue;
        }
        m.dim[m.ndim] = view->dim[i];
        m.stride[m.ndim++] = view->stride[i];
    }
    if (m.ndim == 0) m.ndim = 1;
    return m;
}

/* Broadcasts `from` to `to`, dimension by dimension, without merging. */
static inline ab_strided ab_strided_repeated(const ab_shape *from, const ab_shape *to) {
    ab_strided view = {0, {1}, {1}};
    int64_t stride[AB_MAX_DIMS] = {0};
    int missing = to->ndim - from->ndim;
    ab_contiguous_strides(from, stride);
    view.ndim = to->ndim;
    for (int i = 0; i < to->ndim; i++) {
        bool repeated = i < missing || from->dim[i - missing] == 1;
        view.dim[i] = to->dim[i];
        view.stride[i] = repeated ? 0 : stride[i - missing];
    }
    return view;
}

/* Broadcasts `from` to `to`: dimensions are aligned at the end; missing ones and those of size 1 are
 * repeated. */
static inline ab_strided ab_strided_broadcast(const ab_shape *from, const ab_shape *to) {
    ab_strided view = ab_strided_repeated(from, to);
    return ab_strided_merged(&view);
}

/* View dimension i is dimension order[i] of `from`. */
static inline ab_strided ab_strided_permute(const ab_shape *from, const int64_t *order) {
    ab_strided view = {0, {1}, {1}};
    int64_t stride[AB_MAX_DIMS];
    ab_contiguous_strides(from, stride);
    view.ndim = from->ndim;
    for (int i = 0; i < from->ndim; i++) {
        view.dim[i] = from->dim[order[i]];
        view.stride[i] = stride[order[i]];
    }
    return ab_strided_merged(&view);
}

/* View of `whole` for a tensor without the dimensions in `axes` (bit i), broadcast along them. */
static inline ab_strided ab_strided_along(const ab_shape *whole, unsigned axes) {
    ab_strided view = {0, {1}, {1}};
    int64_t step = 1;
    view.ndim = whole->ndim;
    for (int i = whole->ndim - 1; i >= 0; i--) {
        bool left_out = axes >> i & 1u;
        view.dim[i] = whole->dim[i];
        view.stride[i] = left_out ? 0 : step;
        if (!left_out) step *= whole->dim[i];
    }
    return ab_strided_merged(&view);
}

/* The dimensions of an unmerged view that are in `axes` or, with `is_reduced` false, that are not: indexes
 * the terms of a reduction, or its results. */
static inline ab_strided ab_strided_part(const ab_strided *whole, unsigned axes, bool is_reduced) {
    ab_strided part = {0, {1}, {1}};
    for (int i = 0; i < whole->ndim; i++) {
        if ((axes >> i & 1u) != (unsigned)is_reduced) continue;
        part.dim[part.ndim] = whole->dim[i];
        part.stride[part.ndim++] = whole->stride[i];
    }
    return ab_strided_merged(&part);
}

/* Broadcast shape of `a` and `b` by torch's rules; false if they are incompatible. */
static inline bool ab_broadcast_shape(const ab_shape *a, const ab_shape *b, ab_shape *out) {
    out->ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int i = 1; i <= out->ndim; i++) {
        int64_t of_a = i <= a->ndim ? a->dim[a->ndim - i] : 1, of_b = i <= b->ndim ? b->dim[b->ndim - i] : 1;
        if (of_a != of_b && of_a != 1 && of_b != 1) return false;
        out->dim[out->ndim - i] = of_a == 1 ? of_b : of_a;
    }
    return true;
}

/* Bit i: dimension i of `to` is repeated when broadcasting `from` to it. */
static inline unsigned ab_broadcast_axes(const ab_shape *from, const ab_shape *to) {
    unsigned axes = 0;
    const int missing = to->ndim - from->ndim;
    for (int i = 0; i < to->ndim; i++)
        if (i < missing || (from->dim[i - missing] == 1 && to->dim[i] != 1)) axes |= 1u << i;
    return axes;
}

/* Reads runs of elements of a strided view (views.h), in view order, as fp32.
 *
 * Internal to kernels/. Single-threaded. */

/* Returns fp32 values of the view's elements [at, at + n): the tensor's own memory or `buffer`. */
const float *ab_strided_read(const ab_strided *view, const ab_tensor *tensor, int64_t at, int64_t n,
                             float *buffer);

AB_END_DECLS

#endif
