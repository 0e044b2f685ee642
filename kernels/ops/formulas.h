/* Per-element arithmetic shared by the CUDA kernels and the CPU tests that verify it.
 *
 * fp32 throughout, no fused operations, so element-wise results are bit-identical to the CPU kernels. Sums
 * over many elements document their order. Layout is NHWC, weights {out, in / groups, kh, kw}. Formulas and
 * sources: the files of the ops. */
#ifndef AB_KERNELS_OPS_FORMULAS_H
#define AB_KERNELS_OPS_FORMULAS_H

#include "kernels/core/shape.h"
#include "kernels/ops/element.h"

#include <math.h>
#include <stdbool.h>

AB_BEGIN_DECLS

/* ---- element-wise ---------------------------------------------------------------------------- */

/* NaN propagates. */
static inline AB_HOST_DEVICE float ab_f_relu(float x) { return x <= 0.0f ? 0.0f : x; }
static inline AB_HOST_DEVICE float ab_f_relu_backward(float out, float dout) {
    return out <= 0.0f ? 0.0f : dout;
}

/* Neither infinite nor NaN. */
static inline AB_HOST_DEVICE bool ab_f_finite(float x) {
    return (ab_bits_of(x) & 0x7f800000u) != 0x7f800000u;
}

/* ---- pixels ---------------------------------------------------------------------------------- */

/* Coordinates of an element of an NHWC tensor. */
typedef struct ab_pixel {
    int64_t image, y, x, channel;
} ab_pixel;

/* Coordinates of element i of an NHWC array. */
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

/* Index of the element with these coordinates in an NHWC array. */
static inline AB_HOST_DEVICE int64_t ab_pixel_index(ab_pixel p, int64_t height, int64_t width,
                                                    int64_t channels) {
    return ((p.image * height + p.y) * width + p.x) * channels + p.channel;
}

/* Positions [first, end) along one axis. */
typedef struct ab_range {
    int64_t first, end;
} ab_range;

/* Input positions covered by output position `out` of an undilated window, without padding. */
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

/* ---- pooling --------------------------------------------------------------------------------- */

/* torch's scan: a larger value or NaN replaces the current maximum. Returns the position of the maximum. */
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

/* Element i of the output of max pooling. */
static inline AB_HOST_DEVICE float ab_f_max_pool(const ab_window *w, ab_span in, int64_t i) {
    ab_pixel out = ab_pixel_at(i, w->out[0], w->out[1], w->channels);
    return ab_span_at(in, ab_f_window_winner(w, in, out));
}

/* Gradient of input element i: sum of the gradients of the windows whose maximum it is, in output order. */
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

/* Divisor of average pooling. */
static inline AB_HOST_DEVICE float ab_f_pool_size(const ab_window *w, bool count_pad, ab_range rows,
                                                  ab_range columns) {
    int64_t inside = (rows.end - rows.first) * (columns.end - columns.first);
    return (float)(count_pad ? w->kernel[0] * w->kernel[1] : inside);
}

/* Element i of the output of average pooling. Sums each row, then the row sums. */
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

/* Element i of the input gradient of average pooling. */
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

/* ---- direct convolution ---------------------------------------------------------------------- */

/* Sums in fp32: over input channels within a tap, then over taps. */
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

/* Output position whose tap k reads input position `in`, or -1. */
static inline AB_HOST_DEVICE int64_t ab_conv_output(const ab_window *w, int axis, int64_t in, int64_t k) {
    int64_t at = in + w->padding[axis] - k * w->dilation[axis];
    if (at < 0 || at % w->stride[axis] != 0) return -1;
    at /= w->stride[axis];
    return at < w->out[axis] ? at : -1;
}

/* Element i of the input gradient of a convolution. */
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

/* Sums in fp32 along an output row, in double over rows [first, end) of all images' outputs
 * (row index: image * out[0] + y). */
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

/* ---- layouts --------------------------------------------------------------------------------- */

/* Weights {out, in, kh, kw} as {out, kh, kw, in}: source index of destination element i. */
static inline AB_HOST_DEVICE int64_t ab_krsc_source(int64_t i, int64_t in, int64_t taps) {
    int64_t channel = i % in, tap = i / in % taps, out = i / in / taps;
    return (out * in + channel) * taps + tap;
}

/* {N, pixels, channels} as {N, channels, pixels}: source index of destination element i. */
static inline AB_HOST_DEVICE int64_t ab_flatten_source(int64_t i, int64_t pixels, int64_t channels) {
    int64_t pixel = i % pixels, channel = i / pixels % channels, image = i / pixels / channels;
    return (image * pixels + pixel) * channels + channel;
}

/* ---- batch norm ------------------------------------------------------------------------------ */

/* (x - mean) scale + shift. */
static inline AB_HOST_DEVICE float ab_f_bn_apply(float x, float mean, float scale, float shift) {
    return (x - mean) * scale + shift;
}

/* Input gradient of batch norm, one element. */
static inline AB_HOST_DEVICE float ab_f_bn_backward(float dy, float x, float mean, float scale, float shift,
                                                    float slope) {
    return ((dy - shift) - (x - mean) * slope) * scale;
}

/* ---- optimizers ------------------------------------------------------------------------------ */

/* Update formula; comments list its constants in order. */
typedef enum ab_update_kind {
    AB_UPDATE_NONE,             /* not implemented here */
    AB_UPDATE_SGD,              /* lr, decay */
    AB_UPDATE_MOMENTUM,         /* lr, decay, momentum, fresh */
    AB_UPDATE_NESTEROV,         /* same */
    AB_UPDATE_ADAM,             /* step size, decay, fresh1, keep2, fresh2, root2, eps */
    AB_UPDATE_ADAMW,            /* same, with shrink instead of decay */
    AB_UPDATE_RMSPROP,          /* lr, decay, keep, fresh, eps */
    AB_UPDATE_RMSPROP_MOMENTUM, /* same, then momentum */
    AB_UPDATE_RMSPROP_CENTERED, /* as rmsprop */
    AB_UPDATE_ADAGRAD,          /* rate, decay, eps */
    AB_UPDATE_LAMB, /* rate, keep1, fresh1, keep2, fresh2, correction1, correction2, eps, decay; needs norms
                     */
    AB_UPDATE_LARS, /* lr, momentum, rate, decay; needs norms */
    AB_UPDATE_LARC  /* same, step never larger than SGD's */
} ab_update_kind;

enum { AB_UPDATE_CONSTANTS = 10, AB_UPDATE_VALUES = 3 };

/* The constants of one optimizer step. */
typedef struct ab_update_row {
    float value[AB_UPDATE_CONSTANTS];
    double lr, decay, eps, coefficient; /* read by ab_f_trust, for optimizers that need norms */
} ab_update_row;

/* Whether the step size depends on norms of the whole parameter. */
static inline AB_HOST_DEVICE bool ab_f_needs_norms(int kind) {
    return kind == AB_UPDATE_LAMB || kind == AB_UPDATE_LARS || kind == AB_UPDATE_LARC;
}

/* LAMB update direction of one element; updates both moments in state. */
static inline AB_HOST_DEVICE float ab_f_lamb_direction(const float *c, float g, float w, float *state) {
    state[0] = c[1] * state[0] + c[2] * g;
    state[1] = c[3] * state[1] + c[4] * g * g;
    return state[0] / c[5] / (sqrtf(state[1] / c[6]) + c[7]) + c[8] * w;
}

/* Term of the second norm for one element, before squaring. `state` is a copy. */
static inline AB_HOST_DEVICE float ab_f_norm_term(int kind, const float *c, float g, float w, float *state) {
    return kind == AB_UPDATE_LAMB ? ab_f_lamb_direction(c, g, w, state) : g;
}

/* Trust ratio from the sums of squares of the weights and of the other tensor; formulas in optim_lamb.c and
 * optim_lars.c. */
static inline AB_HOST_DEVICE double ab_f_trust(int kind, const ab_update_row *row, double weights,
                                               double other) {
    if (kind == AB_UPDATE_LAMB)
        return row->decay == 0 || weights == 0 || other == 0 ? 1.0 : sqrt(weights) / sqrt(other);
    const double weight = sqrt(weights), grad = sqrt(other);
    const double trust =
        weight == 0 || grad == 0 ? 0.0 : row->coefficient * weight / (grad + weight * row->decay + row->eps);
    if (kind == AB_UPDATE_LARS) return trust;
    return trust / row->lr < 1.0 ? trust / row->lr : 1.0;
}

/* Stores the trust ratio in the constants. */
static inline AB_HOST_DEVICE void ab_f_set_trust(int kind, ab_update_row *row, double trust) {
    if (kind == AB_UPDATE_LAMB) {
        row->value[0] = (float)(row->lr * trust);
        return;
    }
    row->value[2] = trust == 0 ? 1.0f : (float)trust;
    row->value[3] = trust == 0 ? 0.0f : (float)row->decay;
}

/* Updates one weight by RMSprop, Adam or SGD of `kind`. c: the constants of the step. state: the weight's
 * optimizer state. */
static inline AB_HOST_DEVICE void ab_f_rmsprop(int kind, const float *c, float g, float *weight,
                                               float *state) {
    const float d = g + c[1] * *weight;
    state[0] = c[2] * state[0] + c[3] * d * d;
    if (kind == AB_UPDATE_RMSPROP) {
        *weight -= c[0] * (d / (sqrtf(state[0]) + c[4]));
    } else if (kind == AB_UPDATE_RMSPROP_MOMENTUM) {
        state[1] = c[5] * state[1] + d / (sqrtf(state[0]) + c[4]);
        *weight -= c[0] * state[1];
    } else {
        state[1] += c[3] * (d - state[1]);
        *weight -= c[0] * (d / (sqrtf(state[0] - state[1] * state[1]) + c[4]));
    }
}

/* As above, for Adam. */
static inline AB_HOST_DEVICE void ab_f_adam(int kind, const float *c, float g, float *weight, float *state) {
    const float w = *weight, d = kind == AB_UPDATE_ADAM ? g + c[1] * w : g;
    state[0] += c[2] * (d - state[0]);
    state[1] = c[3] * state[1] + c[4] * d * d;
    *weight = (kind == AB_UPDATE_ADAM ? w : w * c[1]) - c[0] * (state[0] / (sqrtf(state[1]) / c[5] + c[6]));
}

/* As above, for SGD. real: float, or a vector of floats. */
#define AB_F_SGD(name, real, qualifiers)                                                                     \
    qualifiers void name(int kind, const float *c, real g, real weight[], real state[]) {                    \
        const real w = *weight, d = g + c[1] * w;                                                            \
        if (kind == AB_UPDATE_SGD) {                                                                         \
            *weight = w - c[0] * d;                                                                          \
            return;                                                                                          \
        }                                                                                                    \
        state[0] = c[2] * state[0] + c[3] * d;                                                               \
        *weight = w - c[0] * (kind == AB_UPDATE_MOMENTUM ? state[0] : d + c[2] * state[0]);                  \
    }
AB_F_SGD(ab_f_sgd, float, static inline AB_HOST_DEVICE)

/* Updates one weight and its state in place. Sources of the formulas: bench/train/optim_*.c. */
static inline AB_HOST_DEVICE void ab_f_update(int kind, const float *c, float g, float *weight,
                                              float *state) {
    if (kind <= AB_UPDATE_NESTEROV) {
        ab_f_sgd(kind, c, g, weight, state);
    } else if (kind <= AB_UPDATE_ADAMW) {
        ab_f_adam(kind, c, g, weight, state);
    } else if (kind <= AB_UPDATE_RMSPROP_CENTERED) {
        ab_f_rmsprop(kind, c, g, weight, state);
    } else if (kind == AB_UPDATE_ADAGRAD) {
        const float d = g + c[1] * *weight;
        state[0] += d * d;
        *weight -= c[0] * (d / (sqrtf(state[0]) + c[2]));
    } else if (kind == AB_UPDATE_LAMB) {
        *weight -= c[0] * ab_f_lamb_direction(c, g, *weight, state);
    } else {
        state[0] = c[1] * state[0] + c[2] * (g + c[3] * *weight);
        *weight -= c[0] * state[0];
    }
}

/* ---- terms of an update ---------------------------------------------------------------------- */

/* What each term of a formula adds to one weight, in double, with the formula's fp32 constants c and the
 * values before the update; indices: AB_F_... (ab_update_term of update_counts.h). The same operations as the
 * optimizers' own terms (bench/train/optim); a test compares the bits. Terms that a formula lacks are 0. */
enum { AB_F_GRADIENT, AB_F_DECAY, AB_F_MOMENTUM, AB_F_EPS, AB_F_TERMS };

/* Terms of Adam and AdamW. */
static inline AB_HOST_DEVICE void ab_f_adam_terms(int kind, const float *c, double own, double w,
                                                  const float *state, double *term) {
    const double step = (double)c[0], fresh1 = (double)c[2], root2 = (double)c[5], eps = (double)c[6];
    const double m = (double)state[0], decayed = kind == AB_UPDATE_ADAM ? (double)c[1] * w : 0;
    const double g = kind == AB_UPDATE_ADAM ? own + decayed : own;
    const double root = sqrt((double)c[3] * (double)state[1] + (double)c[4] * g * g) / root2;
    const double per = root + eps > 0 ? step / (root + eps) : 0;
    const double moment = m + fresh1 * (g - m);
    term[AB_F_GRADIENT] = -per * fresh1 * own;
    term[AB_F_DECAY] = kind == AB_UPDATE_ADAM ? -per * fresh1 * decayed : ((double)c[1] - 1) * w;
    term[AB_F_MOMENTUM] = -per * (1 - fresh1) * m;
    term[AB_F_EPS] = root > 0 ? moment * (step / root - per) : 0;
}

/* Terms of RMSprop in its three forms. */
static inline AB_HOST_DEVICE void ab_f_rmsprop_terms(int kind, const float *c, double own, double w,
                                                     const float *state, double *term) {
    const double lr = (double)c[0], fresh = (double)c[3], eps = (double)c[4];
    const double decayed = (double)c[1] * w, g = own + decayed;
    const double square = (double)c[2] * (double)state[0] + fresh * g * g;
    const double mean = (double)state[1];
    const double centre = kind == AB_UPDATE_RMSPROP_CENTERED ? mean + fresh * (g - mean) : 0;
    const double root = sqrt(fmax(0.0, square - centre * centre));
    const double per = root + eps > 0 ? lr / (root + eps) : 0;
    term[AB_F_GRADIENT] = -per * own;
    term[AB_F_DECAY] = -per * decayed;
    if (kind == AB_UPDATE_RMSPROP_MOMENTUM) term[AB_F_MOMENTUM] = -lr * (double)c[5] * (double)state[1];
    term[AB_F_EPS] = root > 0 ? g * (lr / root - per) : 0;
}

/* Terms of SGD in its three forms. */
static inline AB_HOST_DEVICE void ab_f_sgd_terms(int kind, const float *c, double own, double w,
                                                 const float *state, double *term) {
    const double lr = (double)c[0], m = (double)c[2];
    const double fresh = kind == AB_UPDATE_SGD        ? 1.0
                         : kind == AB_UPDATE_MOMENTUM ? (double)c[3]
                                                      : 1.0 + m * (double)c[3];
    const double keep = kind == AB_UPDATE_SGD ? 0.0 : kind == AB_UPDATE_MOMENTUM ? m : m * m;
    term[AB_F_GRADIENT] = -lr * fresh * own;
    term[AB_F_DECAY] = -lr * fresh * ((double)c[1] * w);
    if (keep != 0) term[AB_F_MOMENTUM] = -lr * keep * (double)state[0];
}

/* Terms of Adagrad. */
static inline AB_HOST_DEVICE void ab_f_adagrad_terms(const float *c, double own, double w, const float *state,
                                                     double *term) {
    const double rate = (double)c[0], eps = (double)c[2];
    const double decayed = (double)c[1] * w, g = own + decayed;
    const double root = sqrt((double)state[0] + g * g);
    const double per = root + eps > 0 ? rate / (root + eps) : 0;
    term[AB_F_GRADIENT] = -per * own;
    term[AB_F_DECAY] = -per * decayed;
    term[AB_F_EPS] = root > 0 ? g * (rate / root - per) : 0;
}

/* g, weight, state: before the update. Kinds that need norms have none here. */
static inline AB_HOST_DEVICE void ab_f_terms(int kind, const float *c, float g, float weight,
                                             const float *state, double *term) {
    for (int t = 0; t < AB_F_TERMS; t++) term[t] = 0;
    if (kind <= AB_UPDATE_NESTEROV)
        ab_f_sgd_terms(kind, c, (double)g, (double)weight, state, term);
    else if (kind <= AB_UPDATE_ADAMW)
        ab_f_adam_terms(kind, c, (double)g, (double)weight, state, term);
    else if (kind <= AB_UPDATE_RMSPROP_CENTERED)
        ab_f_rmsprop_terms(kind, c, (double)g, (double)weight, state, term);
    else if (kind == AB_UPDATE_ADAGRAD)
        ab_f_adagrad_terms(c, (double)g, (double)weight, state, term);
}

/* Moving average of a stored weight; fresh = 1 returns the weight (ema.h). */
static inline AB_HOST_DEVICE float ab_f_average(float average, float weight, float fresh) {
    return fresh == 1.0f ? weight : average + fresh * (weight - average);
}

/* ---- clipping (bench/train/optim/clip.h) ----------------------------------------------------- */

/* x rounded once to an element type: through fp32 round-to-odd, which keeps the bits that the second rounding
 * needs. */
static inline AB_HOST_DEVICE double ab_f_rounded(double x, int type) {
    float f = (float)x;
    if (type == AB_ELEMENT_F32 || x != x) return (double)f;
    if ((double)f != x) {
        uint32_t bits = ab_bits_of(f);
        if (fabs((double)f) > fabs(x)) bits--; /* round toward zero */
        f = ab_float_of(bits | 1u);
    }
    return (double)(type == AB_ELEMENT_F16 ? ab_f16_value(ab_f16_code(f)) : ab_bf16_value(ab_bf16_code(f)));
}

/* Factor for all gradients; `type`: their common element type. NaN propagates. */
static inline AB_HOST_DEVICE float ab_f_clip_factor(double limit, double norm, int type) {
    double factor = ab_f_rounded(limit / ab_f_rounded(norm + 1e-6, type), type);
    return (float)(factor > 1 ? 1.0 : factor);
}

/* limit: inf if none. */
static inline AB_HOST_DEVICE float ab_f_limited(float g, float factor, float limit) {
    float v = g * factor;
    return v < -limit ? -limit : v > limit ? limit : v;
}

AB_END_DECLS

#endif
