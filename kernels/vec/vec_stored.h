/* Sixteen stored values, fp32, fp16 or bf16 in memory and fp32 in registers: vectors of eight lanes where
 * there is AVX2. The format is a constant of every caller, so that each gets loops of its own.
 *
 * `paired`, of bf16 only: even elements come first, then odd ones, as a register of codes holds them; nothing
 * is permuted, and widening and rounding take half of the instructions. Rows of other operands are put in
 * that order by pair_row. At the plain level nothing is paired.
 *
 * Only vec_*.c include this. */
#ifndef AB_KERNELS_VEC_VEC_STORED_H
#define AB_KERNELS_VEC_VEC_STORED_H

#include "kernels/vec/stored.h"
#include "kernels/vec/vec.h"
#include "kernels/vec/vec_half.h"

enum { SIXTEEN = 16, VECS = SIXTEEN / VEC_LANES };

#if defined(__AVX2__)

/* The upper halves of lanes are the codes of numbers, rounded to nearest even. */
static AB_FORCE_INLINE __m256i rounded_numbers(__m256i bits) {
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, BF16_DROP), _mm256_set1_epi32(1));
    return _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
}

static AB_FORCE_INLINE __m256i rounded_or_nan(vec v) {
    const __m256i bits = _mm256_castps_si256(v), quiet = _mm256_or_si256(bits, _mm256_set1_epi32(QUIET));
    return _mm256_blendv_epi8(rounded_numbers(bits), quiet,
                              _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
}

/* NaNs are rare: a branch costs less than to treat them with the others. */
static AB_FORCE_INLINE void round_both(__m256i *to, const vec *v, bool paired) {
    const bool nan = !paired && _mm256_movemask_ps(_mm256_cmp_ps(v[0], v[1], _CMP_UNORD_Q)) != 0;
    for (int i = 0; i < 2; i++)
        to[i] = __builtin_expect(nan, 0) ? rounded_or_nan(v[i]) : rounded_numbers(_mm256_castps_si256(v[i]));
}

static AB_FORCE_INLINE void load_halves(vec *to, const uint16_t *p, ab_stored stored, bool paired) {
    const __m128i *half = (const __m128i *)(const void *)p;
    if (stored == AB_STORED_FP16) {
        for (int i = 0; i < 2; i++) to[i] = _mm256_cvtph_ps(_mm_loadu_si128(half + i));
    } else if (paired) {
        const __m256i codes = _mm256_loadu_si256((const __m256i *)(const void *)p);
        to[0] = _mm256_castsi256_ps(_mm256_slli_epi32(codes, BF16_DROP));
        to[1] = _mm256_castsi256_ps(_mm256_and_si256(codes, _mm256_set1_epi32((int)0xffff0000u)));
    } else {
        for (int i = 0; i < 2; i++)
            to[i] = _mm256_castsi256_ps(
                _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(half + i)), BF16_DROP));
    }
}

static AB_FORCE_INLINE void store_halves(uint16_t *p, const vec *v, ab_stored stored, bool paired) {
    __m256i codes[2];
    if (stored == AB_STORED_FP16) {
        for (int i = 0; i < 2; i++)
            _mm_storeu_si128((__m128i *)(void *)p + i,
                             _mm256_cvtps_ph(v[i], _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
        return;
    }
    round_both(codes, v, paired);
    const __m256i first = _mm256_srli_epi32(codes[0], BF16_DROP);
    if (paired)
        codes[0] = _mm256_blend_epi16(first, codes[1], 0xaa);
    else /* packing works within 128-bit lanes: restore the order of the quarters */
        codes[0] = _mm256_permute4x64_epi64(
            _mm256_packus_epi32(first, _mm256_srli_epi32(codes[1], BF16_DROP)), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)p, codes[0]);
}

/* Sum of sixteen lanes as a binary tree: element i and i + 8, then i + 4, i + 2 and i + 1. */
static AB_FORCE_INLINE float join_sixteen(const vec *sums, bool paired) {
    if (!paired) return vec_join(vec_add(sums[0], sums[1]));
    __m128 four[2];
    for (int i = 0; i < 2; i++) {
        four[i] = _mm_add_ps(_mm256_castps256_ps128(sums[i]), _mm256_extractf128_ps(sums[i], 1));
        four[i] = _mm_add_ps(four[i], _mm_movehl_ps(four[i], four[i]));
        four[i] = _mm_add_ss(four[i], _mm_shuffle_ps(four[i], four[i], 1));
    }
    return _mm_cvtss_f32(_mm_add_ss(four[0], four[1]));
}

static inline void pair_row(float *row, int64_t n, bool back) {
    for (int64_t i = 0; i < n; i += SIXTEEN) {
        float was[SIXTEEN];
        memcpy(was, row + i, sizeof was);
        for (int k = 0; k < SIXTEEN; k++) {
            const int paired = k % 2 * (SIXTEEN / 2) + k / 2;
            const float x = was[back ? paired : k];
            row[i + (back ? k : paired)] = x == x ? x : NAN;
        }
    }
}

#else

static AB_FORCE_INLINE void load_halves(vec *to, const uint16_t *p, ab_stored stored, bool paired) {
    (void)paired;
    for (int i = 0; i < SIXTEEN; i++)
        to[i / VEC_LANES].lane[i % VEC_LANES] =
            stored == AB_STORED_FP16 ? widen_fp16_lane(p[i]) : widen_bf16_lane(p[i]);
}

static AB_FORCE_INLINE void store_halves(uint16_t *p, const vec *v, ab_stored stored, bool paired) {
    (void)paired;
    for (int i = 0; i < SIXTEEN; i++) {
        const float x = v[i / VEC_LANES].lane[i % VEC_LANES];
        p[i] = stored == AB_STORED_FP16 ? (uint16_t)narrow_fp16_lane(x) : narrow_bf16_lane(x);
    }
}

static AB_FORCE_INLINE float join_sixteen(const vec *sums, bool paired) {
    (void)paired;
    return vec_join(vec_add(vec_add(sums[0], sums[2]), vec_add(sums[1], sums[3])));
}

static inline void pair_row(float *row, int64_t n, bool back) { (void)row, (void)n, (void)back; }

#endif

/* Sixteen values from element `at` on, as operands of arithmetic, which makes NaNs quiet. */
static AB_FORCE_INLINE void load_sixteen(vec *to, const void *p, int64_t at, ab_stored stored, bool paired) {
    if (stored == AB_STORED_FP32)
        for (int i = 0; i < VECS; i++) to[i] = vec_load((const float *)p + at + i * VEC_LANES, VEC_LANES);
    else
        load_halves(to, (const uint16_t *)p + at, stored, paired);
}

/* Rounds to nearest even. */
static AB_FORCE_INLINE void store_sixteen(void *p, int64_t at, const vec *v, ab_stored stored, bool paired) {
    if (stored == AB_STORED_FP32)
        for (int i = 0; i < VECS; i++) vec_store((float *)p + at + i * VEC_LANES, v[i], VEC_LANES);
    else
        store_halves((uint16_t *)p + at, v, stored, paired);
}

#endif
