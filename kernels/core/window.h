/* Geometry of sliding windows over NHWC images: parameters of convolution and pooling kernels.
 *
 * Internal to kernels/. Values are checked by the ops' infer functions, not here. */
#ifndef AB_KERNELS_CORE_WINDOW_H
#define AB_KERNELS_CORE_WINDOW_H

#include "kernels/core/shape.h"
#include "kernels/core/status.h"

#include <stdbool.h>

AB_BEGIN_DECLS

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
