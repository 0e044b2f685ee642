/* Elementary functions in fp32 and the activations made of them: the only ones that ops may use, on the CPU
 * and on a GPU.
 *
 * Each function is a fixed order of additions, multiplications and divisions, without a table, a branch or a
 * fused operation. So it gives the same bits on every CPU, compiler and C library, in a vector loop
 * (kernels/vec) and in a scalar one. NaNs may differ in sign and payload. Needs round to nearest and
 * subnormals (no -ffast-math, no flush to zero).
 *
 * Largest errors, found by trying every fp32 number (tests/slow/test_elementary_all.c), in units in the last
 * place: ab_expf 0.99, ab_logf 0.85, ab_log1pf 0.86, ab_tanhf 1.34, ab_f_sigmoid 2.41 gelu multiplies the
 * error of its exponential's argument by x^2 / 2: up to 10 where its size is above 0.001, 65 at 1e-30.
 * Infinities, zeros, subnormals and NaN as C11 Annex F has them, floating-point exceptions apart.
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

/* The bits of a number. */
static inline AB_HOST_DEVICE uint32_t ab_bits_of(float x) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(x);
#else
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
#endif
}

/* The number with these bits. */
static inline AB_HOST_DEVICE float ab_float_of(uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
#endif
}

/* |x|, also of a NaN. */
static inline AB_HOST_DEVICE float ab_magnitude(float x) { return ab_float_of(ab_bits_of(x) & 0x7fffffffu); }

/* `size` with the sign of x; size must be positive or have that sign already. */
static inline AB_HOST_DEVICE float ab_with_sign_of(float size, float x) {
    return ab_float_of(ab_bits_of(size) | (ab_bits_of(x) & 0x80000000u));
}

/* ---- exp, log, log1p, tanh ------------------------------------------------------------------- */

/* exp(x) = 2^k exp(r), |r| <= ln 2 / 2: ln 2 in two parts, the first short enough for k times it to be exact;
 * exp(r) = 1 + r + r^2 q(r). 2^k is applied in two halves, so that results round once into the subnormal
 * range and overflow to inf. */
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
    uint32_t half = (power + 1024u) / 2u - 512u; /* rounded down for negative ones too */
    return y * ab_float_of((half + 127u) << 23) * ab_float_of((power - half + 127u) << 23);
}

/* log(u) + low + k ln 2 for a normal u > 0: u = 2^e (1 + f), 1 + f from sqrt(1/2) to sqrt(2), and
 * log(1 + f) = f - f^2 / 2 + f^3 p(f). `low` is far smaller than the rest. */
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

/* Natural logarithm; -inf at 0, NaN below. */
static inline AB_HOST_DEVICE float ab_logf(float x) {
    float u = x < FLT_MIN ? x * 0x1p23f : x, k = x < FLT_MIN ? -23.0f : 0.0f;
    float y = ab_log_of_normal(u, 0.0f, k), pole = x == 0.0f ? -INFINITY : NAN;
    y = x > 0.0f ? y : pole;
    return x > FLT_MAX ? x : y;
}

/* log(1 + x): what u = 1 + x lost when it was rounded, over u, is added to log(u). Below 2^-24 it is x. */
static inline AB_HOST_DEVICE float ab_log1pf(float x) {
    float u = 1.0f + x, lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
    float y = ab_log_of_normal(u, lost / u, 0.0f), pole = x == -1.0f ? -INFINITY : NAN;
    y = ab_magnitude(x) < 0x1p-24f ? x : y;
    y = x > -1.0f ? y : pole;
    return x > FLT_MAX ? x : y;
}

/* Odd polynomial near 0, elsewhere 1 - 2 / (exp(2|x|) + 1). */
static inline AB_HOST_DEVICE float ab_tanhf(float x) {
    float a = ab_magnitude(x), s = x * x, q = -0.0057170447f;
    q = q * s + 0.020650586f;
    q = q * s - 0.053743497f;
    q = q * s + 0.13331491f;
    q = q * s - 0.33333284f;
    float near = x + x * (s * q), far = 1.0f - 2.0f / (ab_expf(2.0f * a) + 1.0f);
    return ab_with_sign_of(a < 0.625f ? near : far, x); /* a NaN takes the far way */
}

/* ---- activations and their derivatives ------------------------------------------------------- */

/* 1 / (1 + exp(-x)) from e = exp(-|x|): neither side loses digits. */
static inline AB_HOST_DEVICE float ab_f_sigmoid_from(float x, float e) {
    return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}

/* 1 / (1 + exp(-x)). */
static inline AB_HOST_DEVICE float ab_f_sigmoid(float x) {
    return ab_f_sigmoid_from(x, ab_expf(-ab_magnitude(x)));
}

static inline AB_HOST_DEVICE float ab_f_silu(float x) { return x * ab_f_sigmoid(x); }

/* The derivative of silu at x. */
static inline AB_HOST_DEVICE float ab_f_silu_slope(float x) {
    float e = ab_expf(-ab_magnitude(x)), s = ab_f_sigmoid_from(x, e);
    return s + x * (e / ((1.0f + e) * (1.0f + e)));
}

/* The normal distribution function at x from z = exp(-x^2 / 2): half of erfcx(|x| / sqrt 2) times z is the
 * tail beyond |x|; erfcx by a polynomial in 1 / (1 + 0.3 |x| / sqrt 2). */
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

/* x times the normal distribution function of x. */
static inline AB_HOST_DEVICE float ab_f_gelu(float x) {
    return x * ab_f_normal_below(x, ab_expf(-0.5f * (x * x)));
}

/* The derivative of gelu at x. */
static inline AB_HOST_DEVICE float ab_f_gelu_slope(float x) {
    float z = ab_expf(-0.5f * (x * x));
    return ab_f_normal_below(x, z) + x * (z * 0.3989423f);
}

/* The argument of gelu's tanh form, doubled: x sigmoid(this) = x (1 + tanh(this / 2)) / 2. */
static inline AB_HOST_DEVICE float ab_f_gelu_argument(float x) {
    return 1.5957691f * (x + 0.044715f * (x * x * x));
}

static inline AB_HOST_DEVICE float ab_f_gelu_tanh(float x) { return x * ab_f_sigmoid(ab_f_gelu_argument(x)); }

/* The derivative of gelu by tanh at x. */
static inline AB_HOST_DEVICE float ab_f_gelu_tanh_slope(float x) {
    float u = ab_f_gelu_argument(x), e = ab_expf(-ab_magnitude(u)), s = ab_f_sigmoid_from(u, e);
    float inner = 1.5957691f * (1.0f + 0.134145f * (x * x));
    return s + x * (e / ((1.0f + e) * (1.0f + e))) * inner;
}

AB_END_DECLS

#endif
