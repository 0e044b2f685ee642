/* fp16 and bf16 arrays, widened and rounded to nearest even at the CPU level that a file is compiled for:
 * inline, so that a loop over short pieces pays no calls. Intrinsics, because compilers do not generate these
 * instructions; every level gives the same bits.
 *
 * Only vec_*.c include this. */
#ifndef AB_KERNELS_VEC_VEC_HALF_H
#define AB_KERNELS_VEC_VEC_HALF_H

#include "kernels/core/compiler.h"
#include "kernels/vec/stored.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

/* fp32's fields; signed, because every vector unit compares signed integers */
enum {
    SIGN_SHIFT = 31,
    FRACTION_BITS = 23,
    MAGNITUDE = 0x7fffffff,
    FRACTION = 0x007fffff,
    QUIET = 0x00400000,
    INFINITE = 0x7f800000
};

static inline uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float float_of(int32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* condition ? a : b by masks: with `?:` gcc moves the arithmetic into a branch and does not vectorise the
 * loop. */
static inline int32_t pick(int condition, int32_t a, int32_t b) {
    int32_t mask = -condition;
    return (a & mask) | (b & ~mask);
}

/* ---- fp16 and bf16, plain C ------------------------------------------------------------------ */

enum { FP16_DROP = 13, FP16_REBIAS = 112, BF16_DROP = 16 };

#if !defined(__AVX512F__)
static inline int32_t narrow_fp16_lane(float x) {
    const int32_t min_normal = (FP16_REBIAS + 1) << FRACTION_BITS, overflow = 0x477ff000;
    uint32_t bits = bits_of(x);
    int32_t u = (int32_t)(bits & MAGNITUDE), sign = (int32_t)(bits >> SIGN_SHIFT);
    /* normal results: add half, truncate */
    int32_t rebiased = u - (FP16_REBIAS << FRACTION_BITS);
    int32_t normal = (rebiased + 0xfff + (u >> FP16_DROP & 1)) >> FP16_DROP;
    /* subnormal results: 0.5 has an ulp of 2^-24, the smallest subnormal, so the addition rounds at the
     * last bit of fp16 */
    float small = float_of(u < min_normal ? u : min_normal);
    int32_t subnormal = (int32_t)(bits_of(small + 0.5F) - bits_of(0.5F));
    int32_t code = pick(u < min_normal, subnormal, normal);
    code = pick(u >= overflow, 0x7c00, code);
    code = pick(u > INFINITE, 0x7e00 | (u & FRACTION) >> FP16_DROP, code);
    return code | sign << 15;
}

static inline float widen_fp16_lane(uint16_t code) {
    const int32_t infinite = 0x7c00 << FP16_DROP;
    int32_t u = (code & 0x7fff) << FP16_DROP;
    int32_t subnormal = (int32_t)bits_of((float)u * 0x1p-37F); /* 2^(emin - 23) */
    int32_t result = pick(u > FRACTION, u + (FP16_REBIAS << FRACTION_BITS), subnormal);
    result = pick(u >= infinite, INFINITE | (u & FRACTION), result);
    result |= pick(u > infinite, QUIET, 0);
    return float_of((int32_t)((uint32_t)result | (uint32_t)(code >> 15) << SIGN_SHIFT));
}

static inline uint16_t narrow_bf16_lane(float x) {
    uint32_t bits = bits_of(x);
    uint32_t rounded = bits + 0x7fffU + (bits >> BF16_DROP & 1);
    uint32_t quiet = bits | QUIET;
    return (uint16_t)(((int32_t)(bits & MAGNITUDE) > INFINITE ? quiet : rounded) >> BF16_DROP);
}

static inline float widen_bf16_lane(uint16_t code) {
    int32_t bits = (int32_t)((uint32_t)code << BF16_DROP);
    return float_of(bits | pick((bits & MAGNITUDE) > INFINITE, QUIET, 0));
}

static inline void widen_fp16_plain(float *AB_RESTRICT dst, const uint16_t *AB_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = widen_fp16_lane(src[i]);
}

static inline void narrow_fp16_plain(uint16_t *AB_RESTRICT dst, const float *AB_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = (uint16_t)narrow_fp16_lane(src[i]);
}

static inline void widen_bf16_plain(float *AB_RESTRICT dst, const uint16_t *AB_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = widen_bf16_lane(src[i]);
}

static inline void narrow_bf16_plain(uint16_t *AB_RESTRICT dst, const float *AB_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = narrow_bf16_lane(src[i]);
}
#endif

/* ---- bf16, vectors of eight ------------------------------------------------------------------ */

#if defined(__AVX2__)

/* Codes of numbers in the lower halves of lanes. */
static inline __m256i narrowed_bf16_8(__m256 x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, BF16_DROP), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    return _mm256_srli_epi32(rounded, BF16_DROP);
}

static inline __m256i narrowed_bf16_8_or_nan(__m256 x) {
    const __m256i quiet = _mm256_or_si256(_mm256_castps_si256(x), _mm256_set1_epi32(QUIET));
    return _mm256_blendv_epi8(narrowed_bf16_8(x), _mm256_srli_epi32(quiet, BF16_DROP),
                              _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}

/* Codes of sixteen values. NaNs are rare: a branch costs less than to treat them with the others. */
static AB_FORCE_INLINE __m256i narrowed_bf16_16(__m256 first, __m256 second) {
    const bool nan = _mm256_movemask_ps(_mm256_cmp_ps(first, second, _CMP_UNORD_Q)) != 0;
    /* packing works within 128-bit lanes: restore the order of the quarters */
    const __m256i packed =
        __builtin_expect(nan, 0)
            ? _mm256_packus_epi32(narrowed_bf16_8_or_nan(first), narrowed_bf16_8_or_nan(second))
            : _mm256_packus_epi32(narrowed_bf16_8(first), narrowed_bf16_8(second));
    return _mm256_permute4x64_epi64(packed, 0xd8);
}

#endif

/* ---- fp16 and bf16, AVX-512 ------------------------------------------------------------------ */

#if defined(__AVX512F__)

enum { HALF_LANES = 16 };

static inline __mmask16 lanes_left(int64_t left) {
    unsigned mask = left >= HALF_LANES ? 0xffffU : (1U << (unsigned)left) - 1U;
    return (__mmask16)mask;
}

static AB_FORCE_INLINE void widen_fp16(float *dst, const uint16_t *src, int64_t n) {
    int64_t i = 0;
    for (; i + HALF_LANES <= n; i += HALF_LANES)
        _mm512_storeu_ps(dst + i,
                         _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(src + i))));
    __mmask16 live = lanes_left(n - i);
    if (i < n) _mm512_mask_storeu_ps(dst + i, live, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(live, src + i)));
}

static inline __m256i narrowed_fp16(__m512 x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static AB_FORCE_INLINE void narrow_fp16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + HALF_LANES <= n; i += HALF_LANES)
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), narrowed_fp16(_mm512_loadu_ps(src + i)));
    __mmask16 live = lanes_left(n - i);
    if (i < n) _mm256_mask_storeu_epi16(dst + i, live, narrowed_fp16(_mm512_maskz_loadu_ps(live, src + i)));
}

static inline __m512i widened_bf16(__m256i codes) {
    __m512i x = _mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), BF16_DROP);
    __mmask16 nan = _mm512_cmp_ps_mask(_mm512_castsi512_ps(x), _mm512_castsi512_ps(x), _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(x, nan, x, _mm512_set1_epi32(QUIET));
}

static AB_FORCE_INLINE void widen_bf16(float *dst, const uint16_t *src, int64_t n) {
    int64_t i = 0;
    for (; i + HALF_LANES <= n; i += HALF_LANES)
        _mm512_storeu_si512(dst + i,
                            widened_bf16(_mm256_loadu_si256((const __m256i *)(const void *)(src + i))));
    __mmask16 live = lanes_left(n - i);
    if (i < n) _mm512_mask_storeu_epi32(dst + i, live, widened_bf16(_mm256_maskz_loadu_epi16(live, src + i)));
}

/* The code is the upper half of each lane. Not vcvtneps2bf16: that instruction treats fp32 subnormals as
 * zero. */
static inline __m512i rounded_bf16(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, BF16_DROP), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits,
                                _mm512_set1_epi32(QUIET));
}

static inline __m256i narrowed_bf16(__m512 x) {
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded_bf16(x), BF16_DROP));
}

static AB_FORCE_INLINE void narrow_bf16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + HALF_LANES <= n; i += HALF_LANES)
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), narrowed_bf16(_mm512_loadu_ps(src + i)));
    __mmask16 live = lanes_left(n - i);
    if (i < n) _mm256_mask_storeu_epi16(dst + i, live, narrowed_bf16(_mm512_maskz_loadu_ps(live, src + i)));
}

/* ---- fp16 and bf16, AVX2 and F16C ------------------------------------------------------------ */

#elif defined(__AVX2__)

enum { HALF_LANES = 8, PAIR = 16 };

static inline void widen_fp16_8(float *dst, const uint16_t *src) {
    _mm256_storeu_ps(dst, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)src)));
}

static inline void narrow_fp16_8(uint16_t *dst, const float *src) {
    _mm_storeu_si128((__m128i *)(void *)dst,
                     _mm256_cvtps_ph(_mm256_loadu_ps(src), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* The last values are a vector with some of those before or, if there are too few, with zeros. */
static AB_FORCE_INLINE void widen_fp16(float *dst, const uint16_t *src, int64_t n) {
    int64_t i = 0;
#pragma GCC unroll 4
    for (; i + HALF_LANES <= n; i += HALF_LANES) widen_fp16_8(dst + i, src + i);
    if (i == n) return;
    if (n > HALF_LANES) {
        widen_fp16_8(dst + n - HALF_LANES, src + n - HALF_LANES);
        return;
    }
    uint16_t codes[HALF_LANES] = {0};
    float values[HALF_LANES];
    for (int64_t k = 0; k < n; k++) codes[k] = src[k];
    widen_fp16_8(values, codes);
    for (int64_t k = 0; k < n; k++) dst[k] = values[k];
}

static AB_FORCE_INLINE void narrow_fp16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + HALF_LANES <= n; i += HALF_LANES) narrow_fp16_8(dst + i, src + i);
    if (i == n) return;
    if (n > HALF_LANES) {
        narrow_fp16_8(dst + n - HALF_LANES, src + n - HALF_LANES);
        return;
    }
    uint16_t codes[HALF_LANES];
    float values[HALF_LANES] = {0};
    for (int64_t k = 0; k < n; k++) values[k] = src[k];
    narrow_fp16_8(codes, values);
    for (int64_t k = 0; k < n; k++) dst[k] = codes[k];
}

static inline __m256i quietened(__m256i bits) {
    __m256 x = _mm256_castsi256_ps(bits);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi32(QUIET)));
}

static AB_FORCE_INLINE void widen_bf16(float *dst, const uint16_t *src, int64_t n) {
    int64_t i = 0;
    for (; i + HALF_LANES <= n; i += HALF_LANES) {
        __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(src + i)));
        x = quietened(_mm256_slli_epi32(x, BF16_DROP));
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), x);
    }
    widen_bf16_plain(dst + i, src + i, n - i);
}

static AB_FORCE_INLINE void narrow_bf16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + PAIR <= n; i += PAIR) {
        const __m256 first = _mm256_loadu_ps(src + i), second = _mm256_loadu_ps(src + i + HALF_LANES);
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), narrowed_bf16_16(first, second));
    }
    narrow_bf16_plain(dst + i, src + i, n - i);
}

#else

static AB_FORCE_INLINE void widen_fp16(float *dst, const uint16_t *src, int64_t n) {
    widen_fp16_plain(dst, src, n);
}
static AB_FORCE_INLINE void narrow_fp16(uint16_t *dst, const float *src, int64_t n) {
    narrow_fp16_plain(dst, src, n);
}
static AB_FORCE_INLINE void widen_bf16(float *dst, const uint16_t *src, int64_t n) {
    widen_bf16_plain(dst, src, n);
}
static AB_FORCE_INLINE void narrow_bf16(uint16_t *dst, const float *src, int64_t n) {
    narrow_bf16_plain(dst, src, n);
}

#endif

/* For operands of arithmetic, which quietens NaNs itself. */
static AB_FORCE_INLINE void widen_bf16_operands(float *AB_RESTRICT dst, const uint16_t *AB_RESTRICT src,
                                                int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = float_of((int32_t)((uint32_t)src[i] << BF16_DROP));
}

/* Of values as they are stored, widened for arithmetic and rounded. `stored` is a constant where rows are
 * short. */
static AB_FORCE_INLINE void widen_stored(float *dst, const void *src, const ab_stored stored, int64_t n) {
    if (stored == AB_STORED_FP16)
        widen_fp16(dst, src, n);
    else if (stored == AB_STORED_BF16)
        widen_bf16_operands(dst, src, n);
    else
        memcpy(dst, src, (size_t)n * sizeof *dst);
}

static AB_FORCE_INLINE void narrow_stored(void *dst, const float *src, const ab_stored stored, int64_t n) {
    if (stored == AB_STORED_FP16)
        narrow_fp16(dst, src, n);
    else if (stored == AB_STORED_BF16)
        narrow_bf16(dst, src, n);
    else
        memcpy(dst, src, (size_t)n * sizeof *src);
}

#endif
