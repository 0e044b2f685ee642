/* The loops of halves.h, compiled once per CPU level: `combine_` adds b where `factor` is NULL and else
 * multiplies by it.
 *
 * bf16 in vectors: of 32-bit lanes the upper codes are numbers when the lower ones are cleared, and the lower
 * ones when shifted up, so odd and even elements are computed apart and nothing is permuted. A NaN of the
 * operands is made quiet by the operation. */
#include "kernels/format/vec_halves.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_half.h"

#include <assert.h>
#include <stddef.h>

#if defined(__AVX512F__)

enum { CODES = 32 }; /* of a register */

static inline __m512 fp16_at(const uint16_t *p, __mmask16 live) {
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(live, p));
}

static AB_FORCE_INLINE void combine_fp16(uint16_t *dst, const uint16_t *a, const uint16_t *b,
                                         const float *factor, int64_t n) {
    for (int64_t i = 0; i < n; i += HALF_LANES) {
        const __mmask16 live = n - i < HALF_LANES ? lanes_left(n - i) : (__mmask16)0xffff;
        const __m512 x = fp16_at(a + i, live);
        const __m512 y = factor ? _mm512_mul_ps(x, _mm512_maskz_loadu_ps(live, factor + i))
                                : _mm512_add_ps(x, fp16_at(b + i, live));
        _mm256_mask_storeu_epi16(dst + i, live, narrowed_fp16(y));
    }
}

static inline __m512 even_bf16(__m512i codes) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(codes, BF16_DROP));
}
static inline __m512 odd_bf16(__m512i codes) {
    return _mm512_castsi512_ps(_mm512_and_si512(codes, _mm512_set1_epi32((int)0xffff0000u)));
}

static inline __m512i joined_bf16(__m512 even, __m512 odd) {
    return _mm512_mask_blend_epi16(0xaaaaaaaau, _mm512_srli_epi32(rounded_bf16(even), BF16_DROP),
                                   rounded_bf16(odd));
}

static AB_FORCE_INLINE __mmask32 live_codes(int64_t left) {
    return left < CODES ? ((__mmask32)1 << (unsigned)left) - 1u : ~(__mmask32)0;
}

static void add_bf16(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n) {
    for (int64_t i = 0; i < n; i += CODES) {
        const __mmask32 live = live_codes(n - i);
        const __m512i x = _mm512_maskz_loadu_epi16(live, a + i), y = _mm512_maskz_loadu_epi16(live, b + i);
        _mm512_mask_storeu_epi16(
            dst + i, live,
            joined_bf16(_mm512_add_ps(even_bf16(x), even_bf16(y)), _mm512_add_ps(odd_bf16(x), odd_bf16(y))));
    }
}

static void scale_bf16(uint16_t *dst, const uint16_t *a, const float *factor, int64_t n) {
    for (int64_t i = 0; i < n; i += HALF_LANES) {
        const __mmask16 live = n - i < HALF_LANES ? lanes_left(n - i) : (__mmask16)0xffff;
        const __m512 x = _mm512_castsi512_ps(widened_bf16(_mm256_maskz_loadu_epi16(live, a + i)));
        _mm256_mask_storeu_epi16(dst + i, live,
                                 narrowed_bf16(_mm512_mul_ps(x, _mm512_maskz_loadu_ps(live, factor + i))));
    }
}

#else

#if defined(__AVX2__)

static inline __m128i load_codes(const uint16_t *p) {
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* The elements done in vectors; the rest is left to the caller. */
static AB_FORCE_INLINE int64_t vectors_fp16(uint16_t *dst, const uint16_t *a, const uint16_t *b,
                                            const float *factor, int64_t n) {
    int64_t i = 0;
    for (; i + HALF_LANES <= n; i += HALF_LANES) {
        const __m256 x = _mm256_cvtph_ps(load_codes(a + i));
        const __m256 y = factor ? _mm256_mul_ps(x, _mm256_loadu_ps(factor + i))
                                : _mm256_add_ps(x, _mm256_cvtph_ps(load_codes(b + i)));
        _mm_storeu_si128((__m128i *)(void *)(dst + i),
                         _mm256_cvtps_ph(y, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    }
    return i;
}

static inline __m256 even_bf16(__m256i codes) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(codes, BF16_DROP));
}
static inline __m256 odd_bf16(__m256i codes) {
    return _mm256_castsi256_ps(_mm256_and_si256(codes, _mm256_set1_epi32((int)0xffff0000u)));
}

static AB_FORCE_INLINE int64_t vectors_bf16(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n) {
    int64_t i = 0;
    for (; i + PAIR <= n; i += PAIR) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)(a + i));
        const __m256i y = _mm256_loadu_si256((const __m256i *)(const void *)(b + i));
        const __m256i even = narrowed_bf16_8(_mm256_add_ps(even_bf16(x), even_bf16(y)));
        const __m256i odd = narrowed_bf16_8(_mm256_add_ps(odd_bf16(x), odd_bf16(y)));
        _mm256_storeu_si256((__m256i *)(void *)(dst + i),
                            _mm256_or_si256(even, _mm256_slli_epi32(odd, BF16_DROP)));
    }
    return i;
}

#else

static AB_FORCE_INLINE int64_t vectors_fp16(uint16_t *dst, const uint16_t *a, const uint16_t *b,
                                            const float *factor, int64_t n) {
    (void)dst, (void)a, (void)b, (void)factor, (void)n;
    return 0;
}

static AB_FORCE_INLINE int64_t vectors_bf16(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n) {
    (void)dst, (void)a, (void)b, (void)n;
    return 0;
}

#endif

static AB_FORCE_INLINE void combine_fp16(uint16_t *dst, const uint16_t *a, const uint16_t *b,
                                         const float *factor, int64_t n) {
    for (int64_t i = vectors_fp16(dst, a, b, factor, n); i < n; i++) {
        const float x = widen_fp16_lane(a[i]);
        dst[i] = (uint16_t)narrow_fp16_lane(factor ? x * factor[i] : x + widen_fp16_lane(b[i]));
    }
}

static void add_bf16(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n) {
    for (int64_t i = vectors_bf16(dst, a, b, n); i < n; i++)
        dst[i] = narrow_bf16_lane(widen_bf16_lane(a[i]) + widen_bf16_lane(b[i]));
}

static void scale_bf16(uint16_t *dst, const uint16_t *a, const float *factor, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = narrow_bf16_lane(widen_bf16_lane(a[i]) * factor[i]);
}

#endif

static void add_fp16(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n) {
    combine_fp16(dst, a, b, NULL, n);
}

static void scale_fp16(uint16_t *dst, const uint16_t *a, const float *factor, int64_t n) {
    assert(factor);
    combine_fp16(dst, a, NULL, factor, n);
}

AB_ISA_TABLE(ab_vec_halves) = {
    .add_fp16 = add_fp16, .add_bf16 = add_bf16, .scale_fp16 = scale_fp16, .scale_bf16 = scale_bf16};
