/* Stored formats for tests, from the definition of IEEE 754 binary formats and in double: shares no code with
 * kernels/. */
#ifndef AB_TESTS_ORACLE_STORED_H
#define AB_TESTS_ORACLE_STORED_H

#include "kernels/ops/tensor.h"

#include <math.h>
#include <string.h>

/* Unit roundoff of fp32. */
#define ORACLE_U32 0x1p-24

/* x rounded to a format of `precision` bits and exponents emin..emax, to nearest, ties to even. */
static inline double oracle_round(const ab_format *format, double x) {
    int exponent;
    if (x == 0.0 || !isfinite(x)) return x;
    frexp(x, &exponent);
    exponent = exponent - 1 < format->emin ? format->emin : exponent - 1;
    double ulp = ldexp(1.0, exponent - format->precision + 1), rounded = nearbyint(x / ulp) * ulp;
    double limit = ldexp(1.0, format->emax + 1);
    return fabs(rounded) >= limit ? copysign((double)INFINITY, x) : rounded;
}

/* Half the distance between numbers of the format around x: the largest error of one rounding. */
static inline double oracle_half_ulp(const ab_format *format, double x) {
    int exponent;
    frexp(x, &exponent);
    exponent = x == 0.0 || exponent - 1 < format->emin ? format->emin : exponent - 1;
    return ldexp(0.5, exponent - format->precision + 1);
}

/* A 16-bit pattern of the format as a number. */
static inline double oracle_decode16(const ab_format *format, uint16_t code) {
    int mantissa_bits = format->precision - 1, mantissa = code & ((1 << mantissa_bits) - 1);
    int exponent = (code & 0x7fff) >> mantissa_bits, top = 0x7fff >> mantissa_bits;
    double sign = code & 0x8000 ? -1.0 : 1.0;
    if (exponent == top) return mantissa ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0) return sign * ldexp(mantissa, format->emin - mantissa_bits);
    return sign * ldexp(mantissa + (1 << mantissa_bits), exponent - 1 + format->emin - mantissa_bits);
}

static inline uint16_t oracle_encode16(const ab_format *format, double x) {
    int mantissa_bits = format->precision - 1, exponent;
    int top = (0x7fff >> mantissa_bits) << mantissa_bits, sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return (uint16_t)(sign | top | 1 << (mantissa_bits - 1));
    x = fabs(oracle_round(format, x));
    if (isinf(x)) return (uint16_t)(sign | top);
    frexp(x, &exponent);
    exponent = x == 0.0 || exponent - 1 < format->emin ? format->emin : exponent - 1;
    int mantissa =
        (int)ldexp(x, mantissa_bits - exponent); /* hidden bit included; adds 1 to the exponent field */
    return (uint16_t)(sign | (((exponent - format->emin) << mantissa_bits) + mantissa));
}

static inline double oracle_get(const ab_tensor *tensor, int64_t i) {
    if (tensor->format == &ab_format_fp32) return (double)((const float *)tensor->data)[i];
    return oracle_decode16(tensor->format, ((const uint16_t *)tensor->data)[i]);
}

static inline void oracle_put(const ab_tensor *tensor, int64_t i, double x) {
    if (tensor->format == &ab_format_fp32)
        ((float *)tensor->data)[i] = (float)x;
    else
        ((uint16_t *)tensor->data)[i] = oracle_encode16(tensor->format, x);
}

/* A number in [-1, 1) that depends on seed and i only (splitmix64). */
static inline double oracle_random(uint64_t seed, int64_t i) {
    uint64_t x = (seed << 32) + (uint64_t)i * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return ldexp((double)((x ^ x >> 31) >> 11), -52) - 1.0;
}

#endif
