/* Shapes of dense tensors.
 *
 * Memory order is row-major over `dim`. Images are NHWC: {N, H, W, C}; feature vectors are {N, F}. Weights
 * keep torch's order: conv2d {out, in, kh, kw}, linear {out, in}. */
#ifndef AB_CORE_SHAPE_H
#define AB_CORE_SHAPE_H

#include "kernels/core/compiler.h"
#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* AB_SHAPE_TEXT: bytes for the longest shape, six numbers of 19 digits. */
enum { AB_MAX_DIMS = 6, AB_SHAPE_TEXT = 128 };

typedef struct ab_shape {
    int ndim;
    int64_t dim[AB_MAX_DIMS];
} ab_shape;

/* Number of elements; 1 for ndim 0. The shape must have passed ab_shape_check. */
int64_t ab_shape_count(const ab_shape *shape);

/* Non-zero when both have the same ndim and dims. */
int ab_shape_equal(const ab_shape *a, const ab_shape *b);

/* Non-zero when every dim is >= 1 and the count fits in int64_t with room for 8-byte elements. */
int ab_shape_check(const ab_shape *shape);

/* Whether a tensor of a network may have this shape: ab_shape_check, and at most 2^40 elements. Far above any
 * machine's memory; all bytes of a network of such tensors are far below INT64_MAX. */
bool ab_shape_in_bounds(const ab_shape *shape);

/* Writes "[64, 28, 28, 1]" to text[size] and returns it; a long list is shortened with ", ...". size >=
 * 64. */
const char *ab_dims_text(const int64_t *dim, int ndim, char *text, size_t size);

/* Writes "[64, 28, 28, 1]" to `text` (at least AB_SHAPE_TEXT bytes) and returns it. */
const char *ab_shape_text(const ab_shape *shape, char *text);

/* Geometry of sliding windows over NHWC images: parameters of convolution and pooling kernels.
 *
 * Internal to kernels/. Values are checked by the ops' infer functions, not here. */

/* A window over one image of `channels` channels; [0] is vertical, [1] horizontal. */
typedef struct ab_window {
    int64_t in[2], out[2];
    int64_t kernel[2], stride[2], padding[2], dilation[2];
    int64_t channels;
} ab_window;

/* A convolution of `batch` images: window.channels in, out_channels out. Weights are {out, in / groups, kh,
 * kw}. */
typedef struct ab_conv {
    ab_window window;
    int64_t batch, out_channels, groups;
} ab_conv;

/* floor((in + 2 padding - dilation (kernel - 1) - 1) / stride) + 1, torch's rule; less than 1 if the kernel
 * does not fit. */
int64_t ab_window_out(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation);

/* Fills out_shape for images `in`, or AB_CONFIG with shapes and sizes if `in` is not an image or the
 * kernel does not fit. `what` is the op's name for the message. */
AB_MUST_CHECK ab_status ab_window_infer(const char *what, const ab_window *window, const ab_shape *in,
                                        int64_t out_channels, ab_shape *out);

/* Sets in, out and channels from the shapes. */
void ab_window_place(ab_window *window, const ab_shape *in, const ab_shape *out);

AB_END_DECLS

#endif
