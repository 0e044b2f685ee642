/* ab_expf of vectors, with its bits (kernels/core/elementary.h): the same additions and multiplications. With
 * AVX-512 one instruction does what the two factors of powers of two do there, of which only the last rounds.
 *
 * Only vec_*.c include this. */
#ifndef AB_KERNELS_VEC_VEC_EXP_H
#define AB_KERNELS_VEC_VEC_EXP_H

#include "kernels/core/elementary.h"
#include "kernels/vec/vec_wide.h"

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

/* to[i] = exp(from[i] - shift); to may be from. */
static inline void wide_exps(float *to, const float *from, float shift, int64_t n) {
    const wide by = wide_set(shift);
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) wide_store(to + i, wide_exp(wide_sub(wide_load(from + i), by)));
    if (i == n) return;
    const wide last = wide_exp(wide_sub(wide_load_first(from + i, (int)(n - i)), by));
    wide_store_first(to + i, last, (int)(n - i));
}

#else

/* No wide_exp: compilers make better code of loops over all values than of a vector's lanes. */
static inline void wide_exps(float *to, const float *from, float shift, int64_t n) {
#pragma omp simd
    for (int64_t i = 0; i < n; i++) to[i] = ab_expf(from[i] - shift);
}

#endif

#endif
