/* Elementary functions in fp64, on the CPU and on a GPU: sums of softmax rows, random weights, learning-rate
 * schedules, bias corrections of optimizers, loss scalers. As in elementary.h, a fixed sequence of
 * additions, multiplications and divisions gives the same bits on every CPU, compiler and C library.
 *
 * Largest errors in ulp, against long double (tests/unit/kernels/core/test_elementary.c):
 *   ab_exp 0.65, ab_log 0.95, ab_cospi 0.90, ab_pow 0.70 (subnormal results of ab_exp and ab_pow: 1)
 * Infinities, zeros, subnormals and NaN follow C11 Annex F, except for floating-point exceptions.
 *
 * Double-double arithmetic: Dekker, "A floating-point technique for extending the available precision",
 * 1971. */
#ifndef AB_CORE_ELEMENTARY64_H
#define AB_CORE_ELEMENTARY64_H

#include "kernels/core/compiler.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

AB_BEGIN_DECLS

/* The bits of x. */
static inline AB_HOST_DEVICE uint64_t ab_bits64_of(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* The double with these bits. */
static inline AB_HOST_DEVICE double ab_double_of(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* high + low, |low| <= ulp(high) / 2. */
typedef struct ab_pair {
    double high, low;
} ab_pair;

/* a + b exactly, |a| >= |b| or a = 0. */
static inline AB_HOST_DEVICE ab_pair ab_pair_sum(double a, double b) {
    ab_pair sum;
    sum.high = a + b;
    sum.low = b - (sum.high - a);
    return sum;
}

/* a b exactly, for operands below 2^996 in magnitude and without underflow. */
static inline AB_HOST_DEVICE ab_pair ab_pair_product(double a, double b) {
    const double splitter = 0x1p27 + 1.0;
    double a_high = a * splitter, b_high = b * splitter;
    ab_pair product;
    a_high = a_high - (a_high - a);
    b_high = b_high - (b_high - b);
    double a_low = a - a_high, b_low = b - b_high;
    product.high = a * b;
    product.low = ((a_high * b_high - product.high) + a_high * b_low + a_low * b_high) + a_low * b_low;
    return product;
}

/* a b, to about 104 bits. */
static inline AB_HOST_DEVICE ab_pair ab_pair_times(ab_pair a, ab_pair b) {
    ab_pair product = ab_pair_product(a.high, b.high);
    return ab_pair_sum(product.high, product.low + (a.high * b.low + a.low * b.high));
}

/* a + b for |a| > |b|, to about 104 bits. */
static inline AB_HOST_DEVICE ab_pair ab_pair_plus(ab_pair a, ab_pair b) {
    ab_pair sum = ab_pair_sum(a.high, b.high);
    return ab_pair_sum(sum.high, sum.low + (a.low + b.low));
}

/* ---- exp ------------------------------------------------------------------------------------- */

/* exp(high + low): 2^k exp(r), |r| <= ln 2 / 2, as ab_expf; exp(r) = 1 + r + r^2 q(r), q the Taylor
 * polynomial. */
static inline AB_HOST_DEVICE double ab_exp_of_pair(double high, double low) {
    const double shifter = 0x1.8p52, ln2_high = 0x1.62e42fefa3p-1, ln2_low = 0x1.3de6af278ece6p-42;
    double x = high < -746.0 ? -746.0 : high;
    x = x > 710.0 ? 710.0 : x;
    double shifted = x * 0x1.71547652b82fep0 + shifter, k = shifted - shifter;
    ab_pair r = ab_pair_sum(x - k * ln2_high, low - k * ln2_low);
    double q = 1.0 / 6227020800.0;
    q = q * r.high + 1.0 / 479001600.0;
    q = q * r.high + 1.0 / 39916800.0;
    q = q * r.high + 1.0 / 3628800.0;
    q = q * r.high + 1.0 / 362880.0;
    q = q * r.high + 1.0 / 40320.0;
    q = q * r.high + 1.0 / 5040.0;
    q = q * r.high + 1.0 / 720.0;
    q = q * r.high + 1.0 / 120.0;
    q = q * r.high + 1.0 / 24.0;
    q = q * r.high + 1.0 / 6.0;
    q = q * r.high + 1.0 / 2.0;
    ab_pair one = ab_pair_sum(1.0, r.high);
    double y = one.high + (one.low + (r.low + r.high * r.high * q));
    uint64_t power = ab_bits64_of(shifted) - ab_bits64_of(shifter);
    uint64_t half = (power + 4096u) / 2u - 2048u; /* rounded towards -inf */
    return y * ab_double_of((half + 1023u) << 52) * ab_double_of((power - half + 1023u) << 52);
}

static inline AB_HOST_DEVICE double ab_exp(double x) { return ab_exp_of_pair(x, 0.0); }

/* ---- log ------------------------------------------------------------------------------------- */

/* x = 2^k (1 + f), 1 + f from sqrt(1/2) to sqrt(2); x > 0 and finite. */
typedef struct ab_binary64 {
    double k, f;
} ab_binary64;

/* Splits x into k and f. */
static inline AB_HOST_DEVICE ab_binary64 ab_split64(double x) {
    const uint64_t one = UINT64_C(0x3ff0000000000000), root = UINT64_C(0x3fe6a09e667f3bcd);
    const bool small = x < DBL_MIN;
    uint64_t shifted = ab_bits64_of(small ? x * 0x1p54 : x) + (one - root);
    ab_binary64 parts;
    parts.k = (double)((int)(shifted >> 52) - 1023 - (small ? 54 : 0));
    parts.f = ab_double_of((shifted & UINT64_C(0xfffffffffffff)) + root) - 1.0;
    return parts;
}

/* log(1 + f) = 2 s + s z q(z), s = f / (2 + f), z = s^2: evaluated as f - (f^2 / 2 - s (f^2 / 2 + z q))
 * for a smaller rounding error. */
static inline AB_HOST_DEVICE double ab_log(double x) {
    const double ln2_high = 0x1.62e42fefa3p-1, ln2_low = 0x1.3de6af278ece6p-42;
    if (!(x > 0.0)) return x == 0.0 ? -(double)INFINITY : (double)NAN;
    if (x > DBL_MAX) return x;
    ab_binary64 v = ab_split64(x);
    double s = v.f / (2.0 + v.f), z = s * s, y = z * z, half_square = 0.5 * v.f * v.f;
    double first = 0.66666666666667344202 + 0.39999999999414642582 * z;
    double second = 0.28571428742393515215 + 0.22222198572712157264 * z;
    double third = 0.18183564346014226601 + 0.15314050128397627305 * z + 0.14795953303159959604 * y;
    double q = (first + y * second) + (y * y) * third; /* in pairs, for a shorter dependency chain */
    return v.k * ln2_high + (v.f - ((half_square - v.k * ln2_low) - s * (half_square + z * q)));
}

/* log(x) as a pair, accurate to about 68 bits, for finite x > 0: log(1 + f) = 2 s (1 + z / 3 + z^2 / 5 +
 * ...).
 */
static inline AB_HOST_DEVICE ab_pair ab_log_pair(double x) {
    const double ln2_high = 0x1.62e42fefa3p-1, ln2_low = 0x1.3de6af278ece6p-42;
    ab_binary64 v = ab_split64(x);
    ab_pair below = ab_pair_sum(2.0, v.f), s, back, third = {0x1.5555555555555p-2, 0x1.5555555555555p-56};
    s.high = v.f / below.high;
    back = ab_pair_product(s.high, below.high);
    s.low = ((v.f - back.high) - back.low - s.high * below.low) / below.high;
    ab_pair z = ab_pair_times(s, s), fifth = {0x1.999999999999ap-3, -0x1.999999999999ap-57},
            rest = {0.0, 0.0};
    double q = 1.0 / 27.0;
    for (int n = 25; n >= 7; n -= 2) q = q * z.high + 1.0 / (double)n;
    rest.high = z.high * q;
    rest = ab_pair_times(z, ab_pair_plus(fifth, rest));
    rest = ab_pair_times(z, ab_pair_plus(third, rest));
    s.high *= 2.0;
    s.low *= 2.0;
    rest = ab_pair_plus(s, ab_pair_times(s, rest));
    if (v.k == 0.0) return rest;
    return ab_pair_plus(ab_pair_sum(v.k * ln2_high, v.k * ln2_low), rest);
}

/* ---- pow ------------------------------------------------------------------------------------- */

/* |x|^y for a finite |x| > 0 and a finite y. */
static inline AB_HOST_DEVICE double ab_pow_of_positive(double x, double y) {
    ab_pair logarithm = ab_log_pair(x);
    double rough = y * logarithm.high;
    if (rough == 0.0 || rough > 800.0 || rough < -800.0) return ab_exp(rough);
    ab_pair product = ab_pair_product(y, logarithm.high);
    return ab_exp_of_pair(product.high, product.low + y * logarithm.low);
}

/* x^y. */
static inline AB_HOST_DEVICE double ab_pow(double x, double y) {
    const double size = fabs(x);
    if (x == 1.0 || y == 0.0) return 1.0;
    if (x != x || y != y) return x + y;
    if (fabs(y) > DBL_MAX && size == 1.0) return 1.0;
    const bool whole = floor(y) == y, odd = whole && floor(0.5 * y) != 0.5 * y;
    const bool at_end = size == 0.0 || size > DBL_MAX || fabs(y) > DBL_MAX;
    if (x < 0.0 && !whole && !at_end) return (double)NAN;
    const double end = (size > 1.0) == (y > 0.0) ? (double)INFINITY : 0.0;
    const double power = at_end ? end : ab_pow_of_positive(size, y);
    return odd ? copysign(power, x) : power;
}

/* ---- cos ------------------------------------------------------------------------------------- */

/* sin(pi t) = pi t + t^3 s(t^2) for 0 <= t <= 1/4 */
static inline AB_HOST_DEVICE double ab_sinpi_of_quarter(double t) {
    double z = t * t, s = 0.00046159252002810374048;
    s = s * z - 0.0073700338375715786453;
    s = s * z + 0.082145870129550142892;
    s = s * z - 0.59926452897485245812;
    s = s * z + 2.5501640398740066918;
    s = s * z - 5.1677127800499592992;
    ab_pair first = ab_pair_product(t, 0x1.921fb54442d18p1);
    return first.high + (first.low + t * (0x1.1a62633145c07p-53 + z * s));
}

/* cos(pi t) = 1 - pi^2 t^2 / 2 + t^4 c(t^2) for 0 <= t <= 1/4 */
static inline AB_HOST_DEVICE double ab_cospi_of_quarter(double t) {
    ab_pair square = ab_pair_product(t, t);
    double z = square.high, c = -0.00010362482725696288298;
    c = c * z + 0.0019294787988938573827;
    c = c * z - 0.025806886830086545634;
    c = c * z + 0.23533063024410770429;
    c = c * z - 1.3352627688531711074;
    c = c * z + 4.0587121264167616789;
    ab_pair second = ab_pair_product(square.high, 0x1.3bd3cc9be45dep2), sum = ab_pair_sum(1.0, -second.high);
    second.low += square.high * 0x1.692b71366cc04p-52 + square.low * 0x1.3bd3cc9be45dep2;
    return sum.high + (sum.low + (z * z * c - second.low));
}

/* cos(pi x): exact where x is a multiple of 1/2. */
static inline AB_HOST_DEVICE double ab_cospi(double x) {
    double t = fabs(x);
    if (!(t <= DBL_MAX)) return (double)NAN;
    t = t - 2.0 * floor(0.5 * t);
    t = t > 1.0 ? 2.0 - t : t;
    const bool negative = t > 0.5;
    t = negative ? 1.0 - t : t;
    const double size = t <= 0.25 ? ab_cospi_of_quarter(t) : ab_sinpi_of_quarter(0.5 - t);
    return negative ? -size : size;
}

AB_END_DECLS

#endif
