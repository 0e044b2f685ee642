/* Window geometry shared by convolution and pooling: output sizes and their error messages. */
#include "kernels/core/window.h"

int64_t ab_window_out(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
    int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
    return room < 0 ? 0 : room / stride + 1;
}

ab_status ab_window_infer(const char *what, const ab_window *window, const ab_shape *in, int64_t out_channels,
                          ab_shape *out) {
    char text[AB_SHAPE_TEXT];
    if (in->ndim != 4)
        return ab_fail(AB_CONFIG, "%s expects an image [batch, height, width, channels], found %s", what,
                       ab_shape_text(in, text));
    *out = (ab_shape){.ndim = 4, .dim = {in->dim[0], 0, 0, out_channels}};
    for (int i = 0; i < 2; i++)
        out->dim[i + 1] = ab_window_out(in->dim[i + 1], window->kernel[i], window->stride[i],
                                        window->padding[i], window->dilation[i]);
    if (out->dim[1] < 1 || out->dim[2] < 1)
        return ab_fail(
            AB_CONFIG,
            "%s: kernel [%lld, %lld] with dilation [%lld, %lld] and padding [%lld, %lld] does not fit "
            "into its input %s",
            what, (long long)window->kernel[0], (long long)window->kernel[1], (long long)window->dilation[0],
            (long long)window->dilation[1], (long long)window->padding[0], (long long)window->padding[1],
            ab_shape_text(in, text));
    const ab_shape padded = {
        .ndim = 3,
        .dim = {in->dim[1] + 2 * window->padding[0], in->dim[2] + 2 * window->padding[1], in->dim[3]}};
    if (!ab_shape_in_bounds(&padded))
        return ab_fail(AB_CONFIG, "%s: input %s with its padding has more than 2^40 elements", what,
                       ab_shape_text(in, text));
    if (!ab_shape_check(out))
        return ab_fail(AB_CONFIG, "%s: output %s has too many elements", what, ab_shape_text(out, text));
    return AB_OK;
}

void ab_window_place(ab_window *window, const ab_shape *in, const ab_shape *out) {
    for (int i = 0; i < 2; i++) {
        window->in[i] = in->dim[i + 1];
        window->out[i] = out->dim[i + 1];
    }
    window->channels = in->dim[3];
}
