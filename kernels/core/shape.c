/* Shapes: counting, comparing, printing. */
#include "kernels/core/shape.h"

#include "kernels/core/text.h"

#include <string.h>

int64_t ab_shape_count(const ab_shape *shape) {
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++) count *= shape->dim[i];
    return count;
}

int ab_shape_equal(const ab_shape *a, const ab_shape *b) {
    if (a->ndim != b->ndim) return 0;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i]) return 0;
    return 1;
}

int ab_shape_check(const ab_shape *shape) {
    if (shape->ndim < 0 || shape->ndim > AB_MAX_DIMS) return 0;
    int64_t count = 1;
    for (int i = 0; i < shape->ndim; i++) {
        if (shape->dim[i] < 1 || count > (INT64_MAX / 8) / shape->dim[i]) return 0;
        count *= shape->dim[i];
    }
    return 1;
}

bool ab_shape_in_bounds(const ab_shape *shape) {
    return ab_shape_check(shape) && ab_shape_count(shape) <= (int64_t)1 << 40;
}

const char *ab_dims_text(const int64_t *dim, int ndim, char *text, size_t size) {
    ab_text_show(text, size, "[");
    for (int i = 0; i < ndim; i++) {
        if (strlen(text) > size - 32) {
            ab_text_append(text, size, ", ...");
            break;
        }
        ab_text_append(text, size, i ? ", %lld" : "%lld", (long long)dim[i]);
    }
    ab_text_append(text, size, "]");
    return text;
}

const char *ab_shape_text(const ab_shape *shape, char *text) {
    ab_text_show(text, AB_SHAPE_TEXT, "[");
    for (int i = 0; i < shape->ndim; i++)
        ab_text_append(text, AB_SHAPE_TEXT, i ? ", %lld" : "%lld", (long long)shape->dim[i]);
    ab_text_append(text, AB_SHAPE_TEXT, "]");
    return text;
}

/* Window geometry shared by convolution and pooling: output sizes and their error messages. */

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
