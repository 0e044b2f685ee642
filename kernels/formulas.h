/* The arithmetic of single elements, shared by the CUDA kernels and the tests that prove it on the CPU.
 *
 * fp32 throughout, no fused operations, so that element-wise results are the CPU kernels' bits. Sums over many elements say
 * in what order they add. Layout is NHWC, weights {out, in / groups, kh, kw}. Formulas and sources: the files of the ops. */
#ifndef AB_KERNELS_FORMULAS_H
#define AB_KERNELS_FORMULAS_H

#include "kernels/conv.h"
#include "kernels/element.h"

#include <math.h>
#include <stdbool.h>

AB_BEGIN_DECLS

/* ---- element by element ------------------------------------------------------------------------------------ */

/* NaN passes through. */
static inline AB_HOST_DEVICE float ab_f_relu(float x) { return x <= 0.0f ? 0.0f : x; }
static inline AB_HOST_DEVICE float ab_f_relu_backward(float out, float dout) {
    return out <= 0.0f ? 0.0f : dout;
}

/* By the C library's functions, not the CPU kernels' polynomials: a few ulps apart. */
static inline AB_HOST_DEVICE float ab_f_sigmoid(float x) {
    float e = expf(-fabsf(x)); /* neither side loses digits */
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
static inline AB_HOST_DEVICE float ab_f_sigmoid_slope(float x) {
    float e = expf(-fabsf(x));
    return e / ((1.0f + e) * (1.0f + e));
}
static inline AB_HOST_DEVICE float ab_f_silu(float x) { return x * ab_f_sigmoid(x); }
static inline AB_HOST_DEVICE float ab_f_silu_slope(float x) {
    return ab_f_sigmoid(x) + x * ab_f_sigmoid_slope(x);
}
static inline AB_HOST_DEVICE float ab_f_gelu(float x) { return x * (0.5f * erfcf(-0.70710678f * x)); }
static inline AB_HOST_DEVICE float ab_f_gelu_slope(float x) {
    return 0.5f * erfcf(-0.70710678f * x) + x * (0.3989423f * expf(-0.5f * (x * x)));
}
/* x (1 + tanh(u / 2)) / 2 = x sigmoid(u) */
static inline AB_HOST_DEVICE float ab_f_gelu_tanh(float x) {
    return x * ab_f_sigmoid(1.5957691f * (x + 0.044715f * (x * x * x)));
}
static inline AB_HOST_DEVICE float ab_f_gelu_tanh_slope(float x) {
    float u = 1.5957691f * (x + 0.044715f * (x * x * x)), inner = 1.5957691f * (1.0f + 0.134145f * (x * x));
    return ab_f_sigmoid(u) + x * ab_f_sigmoid_slope(u) * inner;
}

static inline AB_HOST_DEVICE bool ab_f_finite(float x) {
    return (ab_bits_of(x) & 0x7f800000u) != 0x7f800000u;
}

/* ---- pixels ------------------------------------------------------------------------------------------------ */

/* An element of a tensor of images. */
typedef struct ab_pixel {
    int64_t image, y, x, channel;
} ab_pixel;

static inline AB_HOST_DEVICE ab_pixel ab_pixel_at(int64_t i, int64_t height, int64_t width,
                                                  int64_t channels) {
    ab_pixel p;
    p.channel = i % channels;
    i /= channels;
    p.x = i % width;
    i /= width;
    p.y = i % height;
    p.image = i / height;
    return p;
}

static inline AB_HOST_DEVICE int64_t ab_pixel_index(ab_pixel p, int64_t height, int64_t width,
                                                    int64_t channels) {
    return ((p.image * height + p.y) * width + p.x) * channels + p.channel;
}

/* Positions [first, end) along one axis. */
typedef struct ab_range {
    int64_t first, end;
} ab_range;

/* Input positions that output position `out` of an undilated window covers, padding left out. */
static inline AB_HOST_DEVICE ab_range ab_window_covers(const ab_window *w, int axis, int64_t out) {
    int64_t first = out * w->stride[axis] - w->padding[axis], end = first + w->kernel[axis];
    ab_range r;
    r.first = first < 0 ? 0 : first;
    r.end = end > w->in[axis] ? w->in[axis] : end;
    return r;
}

/* Output positions whose window covers input position `in`. */
static inline AB_HOST_DEVICE ab_range ab_windows_over(const ab_window *w, int axis, int64_t in) {
    int64_t last = in + w->padding[axis], first = last - w->kernel[axis] + 1;
    ab_range r;
    r.first = first <= 0 ? 0 : (first + w->stride[axis] - 1) / w->stride[axis];
    r.end = last / w->stride[axis] + 1;
    if (r.end > w->out[axis]) r.end = w->out[axis];
    return r;
}

/* ---- pooling ----------------------------------------------------------------------------------------------- */

/* torch's scan: larger replaces, and so does NaN. Returns where the scan ends. */
static inline AB_HOST_DEVICE int64_t ab_f_window_winner(const ab_window *w, ab_span in, ab_pixel out) {
    ab_range rows = ab_window_covers(w, 0, out.y), columns = ab_window_covers(w, 1, out.x);
    ab_pixel p = out;
    float best = 0.0f;
    int64_t winner = -1;
    for (p.y = rows.first; p.y < rows.end; p.y++)
        for (p.x = columns.first; p.x < columns.end; p.x++) {
            int64_t at = ab_pixel_index(p, w->in[0], w->in[1], w->channels);
            float v = ab_span_at(in, at);
            if (winner >= 0 && !(v > best || v != v)) continue;
            best = v;
            winner = at;
        }
    return winner;
}

static inline AB_HOST_DEVICE float ab_f_max_pool(const ab_window *w, ab_span in, int64_t i) {
    ab_pixel out = ab_pixel_at(i, w->out[0], w->out[1], w->channels);
    return ab_span_at(in, ab_f_window_winner(w, in, out));
}

/* Sum, in order of the outputs, of the gradients of the windows that element i of the input won. */
static inline AB_HOST_DEVICE float ab_f_max_pool_backward(const ab_window *w, ab_span in, ab_span dout,
                                                          int64_t i) {
    ab_pixel here = ab_pixel_at(i, w->in[0], w->in[1], w->channels), out = here;
    ab_range rows = ab_windows_over(w, 0, here.y), columns = ab_windows_over(w, 1, here.x);
    float sum = 0.0f;
    for (out.y = rows.first; out.y < rows.end; out.y++)
        for (out.x = columns.first; out.x < columns.end; out.x++)
            if (ab_f_window_winner(w, in, out) == i)
                sum += ab_span_at(dout, ab_pixel_index(out, w->out[0], w->out[1], w->channels));
    return sum;
}

static inline AB_HOST_DEVICE float ab_f_pool_size(const ab_window *w, bool count_pad, ab_range rows,
                                                  ab_range columns) {
    int64_t inside = (rows.end - rows.first) * (columns.end - columns.first);
    return (float)(count_pad ? w->kernel[0] * w->kernel[1] : inside);
}

/* Sums row by row, then the rows. */
static inline AB_HOST_DEVICE float ab_f_avg_pool(const ab_window *w, bool count_pad, ab_span in, int64_t i) {
    ab_pixel out = ab_pixel_at(i, w->out[0], w->out[1], w->channels), p = out;
    ab_range rows = ab_window_covers(w, 0, out.y), columns = ab_window_covers(w, 1, out.x);
    float sum = 0.0f;
    for (p.y = rows.first; p.y < rows.end; p.y++) {
        float line = 0.0f;
        for (p.x = columns.first; p.x < columns.end; p.x++)
            line += ab_span_at(in, ab_pixel_index(p, w->in[0], w->in[1], w->channels));
        sum += line;
    }
    return sum / ab_f_pool_size(w, count_pad, rows, columns);
}

static inline AB_HOST_DEVICE float ab_f_avg_pool_backward(const ab_window *w, bool count_pad, ab_span dout,
                                                          int64_t i) {
    ab_pixel here = ab_pixel_at(i, w->in[0], w->in[1], w->channels), out = here;
    ab_range rows = ab_windows_over(w, 0, here.y), columns = ab_windows_over(w, 1, here.x);
    float sum = 0.0f;
    for (out.y = rows.first; out.y < rows.end; out.y++)
        for (out.x = columns.first; out.x < columns.end; out.x++) {
            float size =
                ab_f_pool_size(w, count_pad, ab_window_covers(w, 0, out.y), ab_window_covers(w, 1, out.x));
            sum += ab_span_at(dout, ab_pixel_index(out, w->out[0], w->out[1], w->channels)) / size;
        }
    return sum;
}

/* ---- convolution from the definition ------------------------------------------------------------------------ */

/* fp32 sums: over input channels within a tap, then over taps. */
static inline AB_HOST_DEVICE float ab_f_conv(const ab_conv *c, ab_span in, ab_span weights, int64_t i) {
    const ab_window *w = &c->window;
    int64_t per_in = w->channels / c->groups, per_out = c->out_channels / c->groups;
    ab_pixel out = ab_pixel_at(i, w->out[0], w->out[1], c->out_channels), p = out;
    float sum = 0.0f;
    for (int64_t ky = 0; ky < w->kernel[0]; ky++)
        for (int64_t kx = 0; kx < w->kernel[1]; kx++) {
            p.y = out.y * w->stride[0] + ky * w->dilation[0] - w->padding[0];
            p.x = out.x * w->stride[1] + kx * w->dilation[1] - w->padding[1];
            if (p.y < 0 || p.y >= w->in[0] || p.x < 0 || p.x >= w->in[1]) continue;
            p.channel = out.channel / per_out * per_in;
            int64_t at = ab_pixel_index(p, w->in[0], w->in[1], w->channels);
            int64_t tap = (out.channel * per_in * w->kernel[0] + ky) * w->kernel[1] + kx;
            float part = 0.0f;
            for (int64_t k = 0; k < per_in; k++)
                part += ab_span_at(in, at + k) * ab_span_at(weights, tap + k * w->kernel[0] * w->kernel[1]);
            sum += part;
        }
    return sum;
}

/* Position of the output whose tap k hits input position `in`, or -1. */
static inline AB_HOST_DEVICE int64_t ab_conv_output(const ab_window *w, int axis, int64_t in, int64_t k) {
    int64_t at = in + w->padding[axis] - k * w->dilation[axis];
    if (at < 0 || at % w->stride[axis] != 0) return -1;
    at /= w->stride[axis];
    return at < w->out[axis] ? at : -1;
}

static inline AB_HOST_DEVICE float ab_f_conv_backward_data(const ab_conv *c, ab_span dout, ab_span weights,
                                                           int64_t i) {
    const ab_window *w = &c->window;
    int64_t per_in = w->channels / c->groups, per_out = c->out_channels / c->groups;
    ab_pixel here = ab_pixel_at(i, w->in[0], w->in[1], w->channels), out = here;
    int64_t group = here.channel / per_in, k = here.channel % per_in;
    float sum = 0.0f;
    for (int64_t ky = 0; ky < w->kernel[0]; ky++)
        for (int64_t kx = 0; kx < w->kernel[1]; kx++) {
            out.y = ab_conv_output(w, 0, here.y, ky);
            out.x = ab_conv_output(w, 1, here.x, kx);
            if (out.y < 0 || out.x < 0) continue;
            float part = 0.0f;
            for (int64_t o = group * per_out; o < (group + 1) * per_out; o++) {
                out.channel = o;
                int64_t tap = ((o * per_in + k) * w->kernel[0] + ky) * w->kernel[1] + kx;
                part += ab_span_at(dout, ab_pixel_index(out, w->out[0], w->out[1], c->out_channels)) *
                        ab_span_at(weights, tap);
            }
            sum += part;
        }
    return sum;
}

/* fp32 along a row of outputs, double across rows [first, end) of all images' outputs (image * out[0] + y). */
static inline AB_HOST_DEVICE double ab_f_conv_backward_weights(const ab_conv *c, ab_span in, ab_span dout,
                                                               int64_t i, int64_t first, int64_t end) {
    const ab_window *w = &c->window;
    int64_t per_in = w->channels / c->groups, per_out = c->out_channels / c->groups;
    int64_t kx = i % w->kernel[1], ky = i / w->kernel[1] % w->kernel[0];
    int64_t k = i / w->kernel[1] / w->kernel[0] % per_in, o = i / w->kernel[1] / w->kernel[0] / per_in;
    double sum = 0.0;
    for (int64_t row = first; row < end; row++) {
        ab_pixel out = {row / w->out[0], row % w->out[0], 0, o}, p = out;
        p.y = out.y * w->stride[0] + ky * w->dilation[0] - w->padding[0];
        p.channel = o / per_out * per_in + k;
        if (p.y < 0 || p.y >= w->in[0]) continue;
        float line = 0.0f;
        for (out.x = 0; out.x < w->out[1]; out.x++) {
            p.x = out.x * w->stride[1] + kx * w->dilation[1] - w->padding[1];
            if (p.x < 0 || p.x >= w->in[1]) continue;
            line += ab_span_at(dout, ab_pixel_index(out, w->out[0], w->out[1], c->out_channels)) *
                    ab_span_at(in, ab_pixel_index(p, w->in[0], w->in[1], w->channels));
        }
        sum += (double)line;
    }
    return sum;
}

/* ---- layouts ----------------------------------------------------------------------------------------------- */

/* Weights {out, in, kh, kw} as {out, kh, kw, in}: where element i of the second comes from in the first. */
static inline AB_HOST_DEVICE int64_t ab_krsc_source(int64_t i, int64_t in, int64_t taps) {
    int64_t channel = i % in, tap = i / in % taps, out = i / in / taps;
    return (out * in + channel) * taps + tap;
}

/* {N, pixels, channels} as {N, channels, pixels}: where element i of the second comes from in the first. */
static inline AB_HOST_DEVICE int64_t ab_flatten_source(int64_t i, int64_t pixels, int64_t channels) {
    int64_t pixel = i % pixels, channel = i / pixels % channels, image = i / pixels / channels;
    return (image * pixels + pixel) * channels + channel;
}

/* ---- batch norm -------------------------------------------------------------------------------------------- */

static inline AB_HOST_DEVICE float ab_f_bn_apply(float x, float mean, float scale, float shift) {
    return (x - mean) * scale + shift;
}

static inline AB_HOST_DEVICE float ab_f_bn_backward(float dy, float x, float mean, float scale, float shift,
                                                    float slope) {
    return ((dy - shift) - (x - mean) * slope) * scale;
}

/* ---- optimizers -------------------------------------------------------------------------------------------- */

/* Which formula; the order of an update's constants is said beside it. */
typedef enum ab_update_kind {
    AB_UPDATE_NONE,     /* not here */
    AB_UPDATE_SGD,      /* lr, decay */
    AB_UPDATE_MOMENTUM, /* lr, decay, momentum, fresh */
    AB_UPDATE_NESTEROV, /* the same */
    AB_UPDATE_ADAM,     /* step size, decay, fresh1, keep2, fresh2, root2, eps */
    AB_UPDATE_ADAMW     /* the same, with shrink in the place of decay */
} ab_update_kind;

enum { AB_UPDATE_CONSTANTS = 8, AB_UPDATE_VALUES = 3 };

/* The fp32 constants of one optimizer step. */
typedef struct ab_update_row {
    float value[AB_UPDATE_CONSTANTS];
} ab_update_row;

/* One element: weight and states change in place. bench/train/optim_*.c says where the formulas come from. */
static inline AB_HOST_DEVICE void ab_f_update(int kind, const float *c, float g, float *weight,
                                              float *state) {
    const float w = *weight;
    if (kind == AB_UPDATE_SGD) {
        *weight = w - c[0] * (g + c[1] * w);
    } else if (kind == AB_UPDATE_MOMENTUM) {
        state[0] = c[2] * state[0] + c[3] * (g + c[1] * w);
        *weight = w - c[0] * state[0];
    } else if (kind == AB_UPDATE_NESTEROV) {
        state[0] = c[2] * state[0] + c[3] * (g + c[1] * w);
        *weight = w - c[0] * ((g + c[1] * w) + c[2] * state[0]);
    } else if (kind == AB_UPDATE_ADAM) {
        const float d = g + c[1] * w;
        state[0] += c[2] * (d - state[0]);
        state[1] = c[3] * state[1] + c[4] * d * d;
        *weight = w - c[0] * (state[0] / (sqrtf(state[1]) / c[5] + c[6]));
    } else if (kind == AB_UPDATE_ADAMW) {
        state[0] += c[2] * (g - state[0]);
        state[1] = c[3] * state[1] + c[4] * g * g;
        *weight = w * c[1] - c[0] * (state[0] / (sqrtf(state[1]) / c[5] + c[6]));
    }
}

AB_END_DECLS

#endif
