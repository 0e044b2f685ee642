/* Values as tensors store them, fp32, fp16 or bf16 in memory and fp32 in registers: by vector and, with AVX2
 * and above, by block of two vectors, which takes fewer operations a value of bf16. The format is a constant
 * of every caller, so that each gets loops of its own. With AB_EIGHT_LANES defined, vectors are those of AVX2
 * where there is AVX-512.
 *
 * Internal to kernels/ops/norm, where only vec_*.c include it. */
#ifndef AB_KERNELS_OPS_NORM_VEC_STORED_H
#define AB_KERNELS_OPS_NORM_VEC_STORED_H

#include "kernels/format/stored.h"
#include "kernels/vec/vec_half.h"
#include "kernels/vec/vec_wide.h"

/* ---- stored values --------------------------------------------------------------------------- */

/* Widening leaves signalling NaNs of bf16 as they are: whatever reads the values quietens them. */

#if defined(__AVX512F__) && !defined(AB_EIGHT_LANES)

static AB_FORCE_INLINE wide load_half(const uint16_t *p, int n, ab_stored stored) {
    const __m256i codes = n == LANES ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                                     : _mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p);
    if (stored == AB_STORED_FP16) return _mm512_cvtph_ps(codes);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), BF16_DROP));
}

static AB_FORCE_INLINE void store_half(uint16_t *p, wide v, int n, ab_stored stored) {
    const __m256i codes = stored == AB_STORED_FP16 ? narrowed_fp16(v) : narrowed_bf16(v);
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), codes);
}

static AB_FORCE_INLINE wide rounded_half(wide v, ab_stored stored) {
    const __m512i kept = _mm512_set1_epi32(-(1 << BF16_DROP));
    if (stored == AB_STORED_FP16) return _mm512_cvtph_ps(narrowed_fp16(v));
    return _mm512_castsi512_ps(_mm512_and_si512(rounded_bf16(v), kept));
}

/* v where `above` is more than 0 or NaN, else 0. */
static AB_FORCE_INLINE wide wide_where_above(wide v, wide above) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(above, _mm512_setzero_ps(), _CMP_NLE_UQ), v);
}

#elif defined(__AVX2__)

static AB_FORCE_INLINE wide widened(__m128i codes, ab_stored stored) {
    if (stored == AB_STORED_FP16) return _mm256_cvtph_ps(codes);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(codes), BF16_DROP));
}

static AB_FORCE_INLINE __m128i narrowed(wide v, ab_stored stored) {
    if (stored == AB_STORED_FP16) return _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i codes = narrowed_bf16_8_or_nan(v);
    /* packing works within 128-bit lanes: their lower quarters side by side */
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(_mm256_packus_epi32(codes, codes), 0xd8));
}

static AB_FORCE_INLINE wide load_half(const uint16_t *p, int n, ab_stored stored) {
    uint16_t few[LANES] = {0};
    if (n == LANES) return widened(_mm_loadu_si128((const __m128i *)(const void *)p), stored);
    for (int i = 0; i < n; i++) few[i] = p[i];
    return widened(_mm_loadu_si128((const __m128i *)(const void *)few), stored);
}

static AB_FORCE_INLINE void store_half(uint16_t *p, wide v, int n, ab_stored stored) {
    uint16_t few[LANES];
    if (n == LANES) {
        _mm_storeu_si128((__m128i *)(void *)p, narrowed(v, stored));
        return;
    }
    _mm_storeu_si128((__m128i *)(void *)few, narrowed(v, stored));
    for (int i = 0; i < n; i++) p[i] = few[i];
}

static AB_FORCE_INLINE wide rounded_half(wide v, ab_stored stored) {
    return widened(narrowed(v, stored), stored);
}

static AB_FORCE_INLINE wide wide_where_above(wide v, wide above) {
    return _mm256_and_ps(v, _mm256_cmp_ps(above, _mm256_setzero_ps(), _CMP_NLE_UQ));
}

#else

static inline float widened(uint16_t code, ab_stored stored) {
    return stored == AB_STORED_FP16 ? widen_fp16_lane(code)
                                    : float_of((int32_t)((uint32_t)code << BF16_DROP));
}

static inline uint16_t narrowed(float x, ab_stored stored) {
    return stored == AB_STORED_FP16 ? (uint16_t)narrow_fp16_lane(x) : narrow_bf16_lane(x);
}

static inline wide load_half(const uint16_t *p, int n, ab_stored stored) {
    wide v = wide_zero();
    for (int i = 0; i < n; i++) v.lane[i] = widened(p[i], stored);
    return v;
}

static inline void store_half(uint16_t *p, wide v, int n, ab_stored stored) {
    for (int i = 0; i < n; i++) p[i] = narrowed(v.lane[i], stored);
}

static inline wide rounded_half(wide v, ab_stored stored) {
    for (int i = 0; i < LANES; i++) v.lane[i] = widened(narrowed(v.lane[i], stored), stored);
    return v;
}

static inline wide wide_where_above(wide v, wide above) {
    for (int i = 0; i < LANES; i++) v.lane[i] = above.lane[i] <= 0.0f ? 0.0f : v.lane[i];
    return v;
}

#endif

static AB_FORCE_INLINE wide load(const void *p, int64_t at, int n, ab_stored stored) {
    if (stored == AB_STORED_FP32) return wide_load_first((const float *)p + at, n);
    return load_half((const uint16_t *)p + at, n, stored);
}

static AB_FORCE_INLINE void store(void *p, int64_t at, wide v, int n, ab_stored stored) {
    if (stored == AB_STORED_FP32)
        wide_store_first((float *)p + at, v, n);
    else
        store_half((uint16_t *)p + at, v, n, stored);
}

static AB_FORCE_INLINE wide as_stored(wide v, ab_stored stored) {
    return stored == AB_STORED_FP32 ? v : rounded_half(v, stored);
}

/* ---- blocks of two vectors ------------------------------------------------------------------- */

#if defined(__AVX2__)

#define AB_NORM_BLOCKS 1

enum { BLOCK = 2 * LANES };

/* A block of BLOCK neighbouring values. Of bf16 the first vector has those at even places, the second those
 * at odd ones: each is one operation away from the codes, and back. Of other formats the vectors are
 * neighbours. */
typedef struct two {
    wide v[2];
} two;

#if defined(__AVX512F__) && !defined(AB_EIGHT_LANES)

typedef __m512i codes;

static AB_FORCE_INLINE codes load_codes(const uint16_t *p) { return _mm512_loadu_si512(p); }
static AB_FORCE_INLINE void store_codes(uint16_t *p, codes c) { _mm512_storeu_si512(p, c); }

/* c where `above` is not +0, else 0. */
static AB_FORCE_INLINE codes codes_where(codes c, codes above) {
    return _mm512_maskz_mov_epi16(_mm512_test_epi16_mask(above, above), c);
}

static AB_FORCE_INLINE two widened_two(codes c, ab_stored stored) {
    if (stored == AB_STORED_FP16)
        return (two){
            {_mm512_cvtph_ps(_mm512_castsi512_si256(c)), _mm512_cvtph_ps(_mm512_extracti64x4_epi64(c, 1))}};
    return (two){{_mm512_castsi512_ps(_mm512_slli_epi32(c, BF16_DROP)),
                  _mm512_castsi512_ps(_mm512_and_si512(c, _mm512_set1_epi32(-(1 << BF16_DROP))))}};
}

/* Of values that are no NaNs: the upper halves, 1 more where the lower ones are more than half of it, or half
 * of it and the upper one odd. */
static AB_FORCE_INLINE codes bf16_codes(two x) {
    const __mmask32 even = 0x55555555;
    const __m512i a = _mm512_castps_si512(x.v[0]), b = _mm512_castps_si512(x.v[1]);
    const __m512i upper = _mm512_mask_mov_epi16(b, even, _mm512_srli_epi32(a, BF16_DROP));
    const __m512i lower = _mm512_mask_mov_epi16(_mm512_slli_epi32(b, BF16_DROP), even, a);
    const __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi16(1));
    const __mmask32 up = _mm512_cmpgt_epu16_mask(_mm512_adds_epu16(lower, odd), _mm512_set1_epi16(INT16_MIN));
    return _mm512_mask_add_epi16(upper, up, upper, _mm512_set1_epi16(1));
}

static AB_FORCE_INLINE codes bf16_codes_or_nan(two x) {
    return _mm512_mask_mov_epi16(rounded_bf16(x.v[1]), 0x55555555,
                                 _mm512_srli_epi32(rounded_bf16(x.v[0]), BF16_DROP));
}

static AB_FORCE_INLINE codes codes_at_least_0(codes c) { return _mm512_max_epi16(c, _mm512_setzero_si512()); }

static AB_FORCE_INLINE bool any_nan(two x) { return _mm512_cmp_ps_mask(x.v[0], x.v[1], _CMP_UNORD_Q) != 0; }

static AB_FORCE_INLINE two load_values(const float *p) {
    return (two){{_mm512_loadu_ps(p), _mm512_loadu_ps(p + LANES)}};
}

static AB_FORCE_INLINE void store_values(float *p, two x) {
    _mm512_storeu_ps(p, x.v[0]);
    _mm512_storeu_ps(p + LANES, x.v[1]);
}

/* Neighbours as the vectors of bf16, and back. */
static AB_FORCE_INLINE two even_and_odd(two x) {
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
    return (two){{_mm512_permutex2var_ps(x.v[0], even, x.v[1]), _mm512_permutex2var_ps(x.v[0], odd, x.v[1])}};
}

static AB_FORCE_INLINE two in_turns(two x) {
    const __m512i first = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(LANES / 2));
    return (two){
        {_mm512_permutex2var_ps(x.v[0], first, x.v[1]), _mm512_permutex2var_ps(x.v[0], second, x.v[1])}};
}

#else

typedef __m256i codes;

static AB_FORCE_INLINE codes load_codes(const uint16_t *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

static AB_FORCE_INLINE void store_codes(uint16_t *p, codes c) {
    _mm256_storeu_si256((__m256i *)(void *)p, c);
}

static AB_FORCE_INLINE codes codes_where(codes c, codes above) {
    return _mm256_andnot_si256(_mm256_cmpeq_epi16(above, _mm256_setzero_si256()), c);
}

static AB_FORCE_INLINE two widened_two(codes c, ab_stored stored) {
    if (stored == AB_STORED_FP16)
        return (two){
            {_mm256_cvtph_ps(_mm256_castsi256_si128(c)), _mm256_cvtph_ps(_mm256_extracti128_si256(c, 1))}};
    return (two){{_mm256_castsi256_ps(_mm256_slli_epi32(c, BF16_DROP)),
                  _mm256_castsi256_ps(_mm256_and_si256(c, _mm256_set1_epi32(-(1 << BF16_DROP))))}};
}

static AB_FORCE_INLINE codes bf16_codes(two x) {
    const __m256i a = _mm256_castps_si256(x.v[0]), b = _mm256_castps_si256(x.v[1]);
    const __m256i upper = _mm256_blend_epi16(b, _mm256_srli_epi32(a, BF16_DROP), 0x55);
    const __m256i lower = _mm256_blend_epi16(_mm256_slli_epi32(b, BF16_DROP), a, 0x55);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi16(1));
    /* AVX2 compares signed integers */
    const __m256i past = _mm256_xor_si256(_mm256_adds_epu16(lower, odd), _mm256_set1_epi16(INT16_MIN));
    return _mm256_sub_epi16(upper, _mm256_cmpgt_epi16(past, _mm256_setzero_si256()));
}

static AB_FORCE_INLINE codes bf16_codes_or_nan(two x) {
    const __m256i a = narrowed_bf16_8_or_nan(x.v[0]), b = narrowed_bf16_8_or_nan(x.v[1]);
    return _mm256_or_si256(a, _mm256_slli_epi32(b, BF16_DROP));
}

static AB_FORCE_INLINE codes codes_at_least_0(codes c) { return _mm256_max_epi16(c, _mm256_setzero_si256()); }

static AB_FORCE_INLINE bool any_nan(two x) {
    return _mm256_movemask_ps(_mm256_cmp_ps(x.v[0], x.v[1], _CMP_UNORD_Q)) != 0;
}

static AB_FORCE_INLINE two load_values(const float *p) {
    return (two){{_mm256_loadu_ps(p), _mm256_loadu_ps(p + LANES)}};
}

static AB_FORCE_INLINE void store_values(float *p, two x) {
    _mm256_storeu_ps(p, x.v[0]);
    _mm256_storeu_ps(p + LANES, x.v[1]);
}

static AB_FORCE_INLINE wide quarters_in_order(__m256 x) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8));
}

static AB_FORCE_INLINE two even_and_odd(two x) {
    return (two){{quarters_in_order(_mm256_shuffle_ps(x.v[0], x.v[1], 0x88)),
                  quarters_in_order(_mm256_shuffle_ps(x.v[0], x.v[1], 0xdd))}};
}

static AB_FORCE_INLINE two in_turns(two x) {
    const __m256 lower = _mm256_unpacklo_ps(x.v[0], x.v[1]), upper = _mm256_unpackhi_ps(x.v[0], x.v[1]);
    return (two){{_mm256_permute2f128_ps(lower, upper, 0x20), _mm256_permute2f128_ps(lower, upper, 0x31)}};
}

#endif

static AB_FORCE_INLINE two load_two(const void *p, int64_t at, ab_stored stored) {
    if (stored == AB_STORED_FP32) return load_values((const float *)p + at);
    if (stored == AB_STORED_FP16)
        return (two){{load(p, at, LANES, stored), load(p, at + LANES, LANES, stored)}};
    return widened_two(load_codes((const uint16_t *)p + at), stored);
}

static AB_FORCE_INLINE two where_above(two x, two above) {
    return (two){{wide_where_above(x.v[0], above.v[0]), wide_where_above(x.v[1], above.v[1])}};
}

static AB_FORCE_INLINE codes bf16_relu_codes(two x, bool relu) {
    if (__builtin_expect(any_nan(x), 0)) return bf16_codes_or_nan(relu ? where_above(x, x) : x);
    return relu ? codes_at_least_0(bf16_codes(x)) : bf16_codes(x);
}

/* relu: as after where_above(x, x); rounding to nearest is monotonic and keeps 0. */
static AB_FORCE_INLINE void store_two(void *p, int64_t at, two x, bool relu, ab_stored stored) {
    if (stored == AB_STORED_BF16) {
        store_codes((uint16_t *)p + at, bf16_relu_codes(x, relu));
        return;
    }
    if (relu) x = where_above(x, x);
    store(p, at, x.v[0], LANES, stored);
    store(p, at + LANES, x.v[1], LANES, stored);
}

static AB_FORCE_INLINE two as_stored_two(two x, ab_stored stored) {
    if (stored == AB_STORED_BF16) return widened_two(bf16_relu_codes(x, false), stored);
    return (two){{as_stored(x.v[0], stored), as_stored(x.v[1], stored)}};
}

static AB_FORCE_INLINE two add_two(two a, two b) {
    return (two){{wide_add(a.v[0], b.v[0]), wide_add(a.v[1], b.v[1])}};
}

static AB_FORCE_INLINE two sub_two(two a, two b) {
    return (two){{wide_sub(a.v[0], b.v[0]), wide_sub(a.v[1], b.v[1])}};
}

static AB_FORCE_INLINE two mul_two(two a, two b) {
    return (two){{wide_mul(a.v[0], b.v[0]), wide_mul(a.v[1], b.v[1])}};
}

#endif

#endif
