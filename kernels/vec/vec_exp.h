/* ab_expf of vectors, with its bits (kernels/core/elementary.h): the same additions and multiplications. With
 * AVX-512 one instruction does what the two factors of powers of two do there, of which only the last rounds.
 *
 * Only vec_*.c include this. */
#ifndef AB_KERNELS_VEC_VEC_EXP_H
#define AB_KERNELS_VEC_VEC_EXP_H

#include "kernels/core/compiler.h"
#include "kernels/core/elementary.h"
#include "kernels/vec/vec_wide.h"

#include <stdbool.h>

#if defined(__AVX2__)

#if defined(__AVX512F__)

static inline wide wide_smaller(wide a, wide b) { return _mm512_min_ps(a, b); }
static inline wide scale_by_power(wide y, wide shifted, wide k) {
    (void)shifted;
    return _mm512_scalef_ps(y, k);
}

#else

static inline wide wide_smaller(wide a, wide b) { return _mm256_min_ps(a, b); }
/* shifted: k in its last bits, whose shift leaves k 2^23. */
static inline wide scale_by_power(wide y, wide shifted, wide k) {
    const __m256i one = _mm256_set1_epi32(0x3f800000), whole = _mm256_set1_epi32(-0x800000),
                  power = _mm256_slli_epi32(_mm256_castps_si256(shifted), 23),
                  half = _mm256_and_si256(_mm256_srai_epi32(power, 1), whole),
                  rest = _mm256_sub_epi32(power, half);
    (void)k;
    y = wide_mul(y, _mm256_castsi256_ps(_mm256_add_epi32(half, one)));
    return wide_mul(y, _mm256_castsi256_ps(_mm256_add_epi32(rest, one)));
}

#endif

static inline wide wide_exp(wide x) {
    const wide shifter = wide_set(0x1.8p23f);
    x = wide_larger(wide_set(-105.0f), x); /* the second operand where either is NaN */
    x = wide_smaller(wide_set(89.0f), x);
    const wide shifted = wide_add(wide_mul(x, wide_set(0x1.715476p0f)), shifter),
               k = wide_sub(shifted, shifter), high = wide_mul(k, wide_set(0x1.63p-1f)),
               low = wide_mul(k, wide_set(-2.12194440054717e-4f)), r = wide_sub(wide_sub(x, high), low);
    wide q = wide_set(0.0013814467f);
    q = wide_add(wide_mul(q, r), wide_set(0.008368781f));
    q = wide_add(wide_mul(q, r), wide_set(0.041668393f));
    q = wide_add(wide_mul(q, r), wide_set(0.1666652f));
    q = wide_add(wide_mul(q, r), wide_set(0.49999994f));
    q = wide_add(r, wide_mul(wide_mul(r, r), q));
    return scale_by_power(wide_add(wide_set(1.0f), q), shifted, k);
}

/* Exps that wide_exp_each computes step by step side by side. Each depends on itself for some 60 cycles, and
 * a processor's queues do not hold the instructions of enough of them one after another. */
#if defined(__AVX512F__)
enum { EXPS = 8 };
#else
enum { EXPS = 4 };
#endif

#define EACH_EXP _Pragma("GCC unroll 8") for (int i = 0; i < n; i++)

/* a + b by the unit of multiplications; that of additions has more to do in an exp. */
static inline wide multiplier_add(wide a, wide b) { return wide_fma_lanes(a, wide_set(1.0f), b); }

/* x[i] = exp(x[i]) for i < n <= EXPS, a constant, with the bits of wide_exp: the product of k and 0x1.63p-1
 * is exact, so that a fused subtraction rounds the same. bounded: no x is above 89. */
static AB_FORCE_INLINE void wide_exp_each(wide *x, const int n, const bool bounded) {
    const wide shifter = wide_set(0x1.8p23f);
    wide shifted[EXPS], k[EXPS], r[EXPS], q[EXPS], square[EXPS];
    EACH_EXP x[i] = wide_larger(wide_set(-105.0f), x[i]);
    if (!bounded) EACH_EXP x[i] = wide_smaller(wide_set(89.0f), x[i]);
    EACH_EXP shifted[i] = wide_mul(x[i], wide_set(0x1.715476p0f));
    EACH_EXP shifted[i] = wide_add(shifted[i], shifter);
    EACH_EXP k[i] = wide_sub(shifted[i], shifter);
    EACH_EXP r[i] = wide_fma_lanes(k[i], wide_set(-0x1.63p-1f), x[i]);
    EACH_EXP q[i] = wide_mul(k[i], wide_set(-2.12194440054717e-4f));
    EACH_EXP r[i] = wide_sub(r[i], q[i]);
    EACH_EXP q[i] = wide_mul(wide_set(0.0013814467f), r[i]);
    EACH_EXP q[i] = wide_add(q[i], wide_set(0.008368781f));
    EACH_EXP q[i] = wide_mul(q[i], r[i]);
    EACH_EXP q[i] = wide_add(q[i], wide_set(0.041668393f));
    EACH_EXP q[i] = wide_mul(q[i], r[i]);
    EACH_EXP q[i] = multiplier_add(q[i], wide_set(0.1666652f));
    EACH_EXP q[i] = wide_mul(q[i], r[i]);
    EACH_EXP q[i] = wide_add(q[i], wide_set(0.49999994f));
    EACH_EXP square[i] = wide_mul(r[i], r[i]);
    EACH_EXP q[i] = wide_mul(square[i], q[i]);
    EACH_EXP q[i] = multiplier_add(q[i], r[i]);
    EACH_EXP q[i] = wide_add(wide_set(1.0f), q[i]);
    EACH_EXP x[i] = scale_by_power(q[i], shifted[i], k[i]);
}

/* to[i] = exp(from[i] - shift); to may be from. */
static inline void wide_exps(float *to, const float *from, float shift, int64_t n) {
    const wide by = wide_set(shift);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) wide_store(to + i, wide_exp(wide_sub(wide_load(from + i), by)));
    if (i == n) return;
    const wide last = wide_exp(wide_sub(wide_load_first(from + i, (int)(n - i)), by));
    wide_store_first(to + i, last, (int)(n - i));
}

/* The same of so many values that they are no part of another loop. */
static inline void wide_exps_long(float *to, const float *from, float shift, int64_t n) {
    const wide by = wide_set(shift);
    int64_t at = 0;
    for (; at + EXPS * LANES <= n; at += EXPS * LANES) {
        wide x[EXPS];
#pragma GCC unroll 8
        for (int e = 0; e < EXPS; e++) x[e] = wide_sub(wide_load(from + at + e * LANES), by);
        wide_exp_each(x, EXPS, false);
#pragma GCC unroll 8
        for (int e = 0; e < EXPS; e++) wide_store(to + at + e * LANES, x[e]);
    }
    wide_exps(to + at, from + at, shift, n - at);
}

#else

/* No wide_exp: compilers make better code of loops over all values than of a vector's lanes. */
static inline void wide_exps(float *to, const float *from, float shift, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = ab_expf(from[i] - shift);
}

static inline void wide_exps_long(float *to, const float *from, float shift, int64_t n) {
    wide_exps(to, from, shift, n);
}

#endif

#endif
