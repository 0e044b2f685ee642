/* Elementary functions in fp32 and the activations built on them, for CPU and GPU. Ops use only these.
 *
 * Each function is a fixed sequence of additions, multiplications and divisions, without tables, branches
 * or fused operations. It gives the same bits on every CPU, compiler and C library, in a vector loop
 * (kernels/vec) and in a scalar one. NaNs may differ in sign and payload. Needs round to nearest,
 * no -ffast-math. Where subnormals are flushed (subnormals.h), subnormal results and factors are zeros, and
 * nothing else changes (tests/unit/kernels/core/test_subnormals.c).
 *
 * Largest errors in ulp, over all fp32 values (tests/slow/test_elementary_all.c): ab_expf 0.99, ab_logf 0.85,
 * ab_log1pf 0.86, ab_tanhf 1.34, ab_f_sigmoid 2.41. gelu multiplies the error of the argument of exp by
 * x^2 / 2: up to 10 where |gelu| > 0.001, 65 at 1e-30. Infinities, zeros, subnormals and NaN follow C11 Annex
 * F, except for floating-point exceptions.
 *
 * Polynomials were fitted for this project: Lawson's weighted least squares on Chebyshev points. */
#ifndef AB_CORE_ELEMENTARY_H
#define AB_CORE_ELEMENTARY_H

#include "kernels/core/compiler.h"

#include <float.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

AB_BEGIN_DECLS

/* ---- bits ------------------------------------------------------------------------------------ */

/* The bits of x. */
static inline AB_HOST_DEVICE uint32_t ab_bits_of(float x) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(x);
#else
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
#endif
}

/* The fp32 value with these bits. */
static inline AB_HOST_DEVICE float ab_float_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
#endif
}

/* |x|; clears the sign of NaN too. */
static inline AB_HOST_DEVICE float ab_magnitude(float x) { return ab_float_of(ab_bits_of(x) & 0x7fffffffu); }

/* `size` with the sign of x; size must be positive or have that sign already. */
static inline AB_HOST_DEVICE float ab_with_sign_of(float size, float x) {
    return ab_float_of(ab_bits_of(size) | (ab_bits_of(x) & 0x80000000u));
}

/* ---- exp, log, log1p, tanh ------------------------------------------------------------------- */

/* exp(x) = 2^k exp(r), |r| <= ln 2 / 2: ln 2 in two parts, the first short enough for k times it to be exact;
 * exp(r) = 1 + r + r^2 q(r). 2^k is applied as two factors, so that subnormal results round once and
 * overflow gives inf. */
static inline AB_HOST_DEVICE float ab_expf(float x) {
    const float shifter = 0x1.8p23f, ln2_high = 0x1.63p-1f, ln2_low = -2.12194440054717e-4f;
    x = x < -105.0f ? -105.0f : x;
    x = x > 89.0f ? 89.0f : x;
    float shifted = x * 0x1.715476p0f + shifter, k = shifted - shifter;
    float r = (x - k * ln2_high) - k * ln2_low;
    float q = 0.0013814467f;
    q = q * r + 0.008368781f;
    q = q * r + 0.041668393f;
    q = q * r + 0.1666652f;
    q = q * r + 0.49999994f;
    float y = 1.0f + (r + r * r * q);
    uint32_t power = ab_bits_of(shifted) - ab_bits_of(shifter);
    uint32_t half = (power + 1024u) / 2u - 512u; /* rounded towards -inf */
    return y * ab_float_of((half + 127u) << 23) * ab_float_of((power - half + 127u) << 23);
}

/* log(u) + low + k ln 2 for a normal u > 0: u = 2^e (1 + f), 1 + f from sqrt(1/2) to sqrt(2), and
 * log(1 + f) = f - f^2 / 2 + f^3 p(f). `low` is much smaller than the other terms. */
static inline AB_HOST_DEVICE float ab_log_of_normal(float u, float low, float k) {
    const float ln2_high = 0x1.63p-1f, ln2_low = -2.12194440054717e-4f;
    uint32_t shifted = ab_bits_of(u) + (0x3f800000u - 0x3f3504f3u); /* 1 less sqrt(1/2) */
    float f = ab_float_of((shifted & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    float p = 0.067464435f;
    p = p * f - 0.11675614f;
    p = p * f + 0.11888232f;
    p = p * f - 0.12405599f;
    p = p * f + 0.14219543f;
    p = p * f - 0.16667995f;
    p = p * f + 0.20002119f;
    p = p * f - 0.2500001f;
    p = p * f + 0.33333313f;
    k += (float)((int32_t)(shifted >> 23) - 127);
    float square = f * f;
    low += k * ln2_low;
    return k * ln2_high + (f - (0.5f * square - (f * square * p + low)));
}

/* Natural logarithm; -inf for 0, NaN for x < 0. */
static inline AB_HOST_DEVICE float ab_logf(float x) {
    float u = x < FLT_MIN ? x * 0x1p23f : x, k = x < FLT_MIN ? -23.0f : 0.0f;
    float y = ab_log_of_normal(u, 0.0f, k), pole = x == 0.0f ? -INFINITY : NAN;
    y = x > 0.0f ? y : pole;
    return x > FLT_MAX ? x : y;
}

/* log(1 + x): log(u) plus the rounding error of u = 1 + x divided by u. Returns x for |x| < 2^-24. */
static inline AB_HOST_DEVICE float ab_log1pf(float x) {
    float u = 1.0f + x, lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    float y = ab_log_of_normal(u, lost / u, 0.0f), pole = x == -1.0f ? -INFINITY : NAN;
    y = ab_magnitude(x) < 0x1p-24f ? x : y;
    y = x > -1.0f ? y : pole;
    return x > FLT_MAX ? x : y;
}

/* Odd polynomial near 0, elsewhere 1 - 2 / (e + 1), e = exp(2|x|). */
static inline AB_HOST_DEVICE float ab_tanh_from(float x, float e) {
    float a = ab_magnitude(x), s = x * x, q = -0.0057170447f;
    q = q * s + 0.020650586f;
    q = q * s - 0.053743497f;
    q = q * s + 0.13331491f;
    q = q * s - 0.33333284f;
    float near = x + x * (s * q), far = 1.0f - 2.0f / (e + 1.0f);
    return ab_with_sign_of(a < 0.625f ? near : far, x); /* NaN takes `far` */
}

/* Hyperbolic tangent. */
static inline AB_HOST_DEVICE float ab_tanhf(float x) {
    return ab_tanh_from(x, ab_expf(2.0f * ab_magnitude(x)));
}

/* ---- activations and their derivatives ------------------------------------------------------- */

/* 1 / (1 + exp(-x)) from e = exp(-|x|): no cancellation for either sign of x. */
static inline AB_HOST_DEVICE float ab_f_sigmoid_from(float x, float e) {
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* 1 / (1 + exp(-x)). */
static inline AB_HOST_DEVICE float ab_f_sigmoid(float x) {
    return ab_f_sigmoid_from(x, ab_expf(-ab_magnitude(x)));
}

static inline AB_HOST_DEVICE float ab_f_silu(float x) { return x * ab_f_sigmoid(x); }

/* The derivative of silu at x, e = exp(-|x|). */
static inline AB_HOST_DEVICE float ab_f_silu_slope_from(float x, float e) {
    return ab_f_sigmoid_from(x, e) + x * (e / ((1.0f + e) * (1.0f + e)));
}

/* The derivative of silu at x. */
static inline AB_HOST_DEVICE float ab_f_silu_slope(float x) {
    return ab_f_silu_slope_from(x, ab_expf(-ab_magnitude(x)));
}

/* The standard normal CDF at x, from z = exp(-x^2 / 2). The upper tail is z erfcx(|x| / sqrt 2) / 2, erfcx
 * by a polynomial in 1 / (1 + 0.3 |x| / sqrt 2). */
static inline AB_HOST_DEVICE float ab_f_normal_below(float x, float z) {
    float w = 1.0f / (1.0f + 0.21213203f * ab_magnitude(x)), p = -0.008272605f;
    p = p * w - 0.08424921f;
    p = p * w + 0.37820035f;
    p = p * w - 0.36776608f;
    p = p * w + 0.4262988f;
    p = p * w - 0.02874745f;
    p = p * w + 0.19186677f;
    p = p * w + 0.1533451f;
    p = p * w + 0.17010441f;
    p = p * w + 0.16921988f;
    float tail = 0.5f * z * (p * w);
    return x < 0.0f ? tail : 1.0f - tail;
}

/* x times the standard normal CDF at x. */
static inline AB_HOST_DEVICE float ab_f_gelu(float x) {
    return x * ab_f_normal_below(x, ab_expf(-0.5f * (x * x)));
}

/* The derivative of gelu at x, z = exp(-x^2 / 2). */
static inline AB_HOST_DEVICE float ab_f_gelu_slope_from(float x, float z) {
    return ab_f_normal_below(x, z) + x * (z * 0.3989423f);
}

/* The derivative of gelu at x. */
static inline AB_HOST_DEVICE float ab_f_gelu_slope(float x) {
    return ab_f_gelu_slope_from(x, ab_expf(-0.5f * (x * x)));
}

/* Twice the argument of tanh in gelu's tanh form: x sigmoid(u) = x (1 + tanh(u / 2)) / 2. */
static inline AB_HOST_DEVICE float ab_f_gelu_argument(float x) {
    return 1.5957691f * (x + 0.044715f * (x * x * x));
}

static inline AB_HOST_DEVICE float ab_f_gelu_tanh(float x) { return x * ab_f_sigmoid(ab_f_gelu_argument(x)); }

/* The derivative of gelu's tanh form at x, e = exp(-|u|), u = ab_f_gelu_argument(x), which has x's sign. */
static inline AB_HOST_DEVICE float ab_f_gelu_tanh_slope_from(float x, float e) {
    float inner = 1.5957691f * (1.0f + 0.134145f * (x * x));
    return ab_f_sigmoid_from(x, e) + x * (e / ((1.0f + e) * (1.0f + e))) * inner;
}

/* The derivative of gelu's tanh form at x. */
static inline AB_HOST_DEVICE float ab_f_gelu_tanh_slope(float x) {
    return ab_f_gelu_tanh_slope_from(x, ab_expf(-ab_magnitude(ab_f_gelu_argument(x))));
}

AB_END_DECLS

#endif
