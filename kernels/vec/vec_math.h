/* Elementwise functions and row reductions for transformer ops: fp32 arrays, compiled once per CPU level
 * (vec_math.c) and chosen at each call by ab_isa_get(). Every level gives the same bits: elementary functions
 * are those of kernels/core/elementary.h, sums use 16 lanes that are combined in a fixed order, and double
 * across blocks.
 *
 * No threading and no stored formats here. */
#ifndef AB_KERNELS_VEC_VEC_MATH_H
#define AB_KERNELS_VEC_VEC_MATH_H

#include "kernels/core/rng.h"

AB_BEGIN_DECLS

/* Parameters of a dropout mask. The random word of element i is word i % 4 of ab_rng_at(seed,
 * AB_RNG_DROPOUT, step, instance << 32 | i / 4). The element is kept if the upper 24 bits are at least
 * `threshold`, and then multiplied by `scale`. */
typedef struct ab_dropout {
    uint64_t seed;
    uint32_t step, instance, threshold;
    float scale;
} ab_dropout;

/* indices of the factors of channel_gradient */
enum { AB_SLOPE, AB_MEAN, AB_PULL, AB_SHIFT };

/* Statistics of a row for layer normalisation; RMS normalisation has mean 0. */
typedef struct ab_row_norm {
    float mean, rstd;
} ab_row_norm;

typedef struct ab_vec_math {
    /* Elementwise, n values; out may be an input. Functions ending in _backward take the input (tanh and
     * sigmoid: the output) of the function in `a` and the gradient of its output in `b`. */
    void (*exp)(float *out, const float *a, const float *unused, int64_t n);
    void (*tanh)(float *out, const float *a, const float *unused, int64_t n);
    void (*tanh_backward)(float *din, const float *a, const float *b, int64_t n);
    void (*sigmoid)(float *out, const float *a, const float *unused, int64_t n);
    void (*sigmoid_backward)(float *din, const float *a, const float *b, int64_t n);
    void (*silu)(float *out, const float *a, const float *unused, int64_t n);
    void (*silu_backward)(float *din, const float *a, const float *b, int64_t n);
    void (*gelu)(float *out, const float *a, const float *unused, int64_t n);
    void (*gelu_backward)(float *din, const float *a, const float *b, int64_t n);
    void (*gelu_tanh)(float *out, const float *a, const float *unused, int64_t n);
    void (*gelu_tanh_backward)(float *din, const float *a, const float *b, int64_t n);

    /* out = a * factor + shift */
    void (*affine)(float *out, const float *a, float factor, float shift, int64_t n);
    /* out = a * factor in double, rounded once */
    void (*scale_wide)(float *out, const float *a, double factor, int64_t n);
    /* sum[i] += factor * a[i] */
    void (*add_scaled)(float *sum, const float *a, float factor, int64_t n);

    /* One row of n values. */
    float (*row_max)(const float *x, int64_t n); /* ignores NaN; -inf if there is no other value */
    double (*row_sum)(const float *x, int64_t n);
    double (*row_sum_wide)(const float *x, int64_t n); /* 16 lanes in double */
    double (*row_dot)(const float *a, const float *b, int64_t n);
    /* out = exp(x - shift); out may be x */
    void (*exp_shifted)(float *out, const float *x, float shift, int64_t n);
    /* the same, and returns the sum of out */
    double (*exp_sum)(float *out, const float *x, float shift, int64_t n);
    /* dx = y * (dy - dot), where y = softmax(x) and dot = sum of y dy; dx may be dy */
    void (*softmax_backward)(float *dx, const float *y, const float *dy, float dot, int64_t n);
    /* dx = dy - exp(y) * sum, where y = log_softmax(x) and sum = sum of dy */
    void (*log_softmax_backward)(float *dx, const float *y, const float *dy, float sum, int64_t n);

    /* Row normalisation: mean and sum of squared deviations, in two passes. */
    void (*row_moments)(const float *x, int64_t n, float *mean, float *m2);
    /* y = (x - mean) * rstd * gamma + beta; beta may be NULL */
    void (*row_normalise)(float *y, const float *x, const ab_row_norm *norm, const float *gamma,
                          const float *beta, int64_t n);
    /* sum[0] = sum of dy gamma, sum[1] = sum of dy gamma xhat; dgamma += dy xhat, dbeta += dy (NULL: skip) */
    void (*row_gradient_sums)(const float *dy, const float *x, const ab_row_norm *norm, const float *gamma,
                              float *dgamma, float *dbeta, double sum[2], int64_t n);
    /* dx = rstd * (dy gamma - mean_dy - xhat mean_dot) */
    void (*row_gradient)(float *dx, const float *dy, const float *x, const ab_row_norm *norm,
                         const float *gamma, float mean_dy, float mean_dot, int64_t n);

    /* dx = dy * slope[c] - (x - mean[c]) * pull[c] - shift[c] for rows of `channels` values */
    void (*channel_gradient)(float *dx, const float *dy, const float *x, int64_t rows, int64_t channels,
                             const float *const factors[4]);

    /* One LSTM step for one sample. gates [4, n] in torch's order i, f, g, o: pre-activations in,
     * activations out. c = f before + i g, h = o tanh(c). */
    void (*lstm_step)(float *gates, const float *before, float *c, float *h, int64_t n);
    /* Gradients of the pre-activations, dgates [4, n], and of the previous step's cell state, dc (in and
     * out), from dh and dc. */
    void (*lstm_step_backward)(float *dgates, float *dc, const float *dh, const float *gates,
                               const float *before, const float *c, int64_t n);

    /* One GRU step for one sample. sums [4, n]: pre-activations of r, z and n without what the state adds to
     * n, and that; activations of r, z and n out. h: hidden state, in and out. */
    void (*gru_step)(float *sums, float *h, int64_t n);
    /* d[0], d[1] [3, n]: gradients of the sums r, z, n by the input's side, and by the hidden state's, from
     * dh, which becomes the part of the previous state's gradient that comes through z. */
    void (*gru_step_backward)(float *const d[2], float *dh, const float *sums, const float *before,
                              int64_t n);

    /* out = x * mask / (1 - p) for elements [first, first + n) of a tensor; out may be x */
    void (*dropout)(float *out, const float *x, const ab_dropout *dropout, int64_t first, int64_t n);
} ab_vec_math;

/* The functions of the CPU level in force (isa.h). */
const ab_vec_math *ab_vec_math_get(void);

AB_END_DECLS

#endif
