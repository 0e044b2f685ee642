/* The widest fp32 vector of the CPU level that a file is compiled for, and how many of them a matrix product
 * keeps in registers for each row. wide_fma is fused where the level has FMA. With AB_EIGHT_LANES defined, no
 * vector is wider than eight lanes.
 *
 * Only vec_*.c include this. */
#ifndef AB_KERNELS_VEC_VEC_WIDE_H
#define AB_KERNELS_VEC_VEC_WIDE_H

#include "kernels/vec/vec.h"

#if defined(__AVX512F__) && !defined(AB_EIGHT_LANES)

enum { LANES = 16, MAX_VECTORS = 4 }; /* 24 accumulators of 32 registers */
typedef __m512 wide;
static inline wide wide_set(float x) { return _mm512_set1_ps(x); }
static inline wide wide_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void wide_store(float *p, wide v) { _mm512_storeu_ps(p, v); }
static inline wide wide_load_first(const float *p, int n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
}
static inline void wide_store_first(float *p, wide v, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), v);
}
/* The first n lanes of v, the others of `otherwise`. */
static inline wide wide_first_or(wide v, int n, wide otherwise) {
    return _mm512_mask_mov_ps(otherwise, (__mmask16)((1u << n) - 1u), v);
}
static inline wide wide_add(wide a, wide b) { return _mm512_add_ps(a, b); }
static inline wide wide_sub(wide a, wide b) { return _mm512_sub_ps(a, b); }
static inline wide wide_mul(wide a, wide b) { return _mm512_mul_ps(a, b); }
static inline wide wide_div(wide a, wide b) { return _mm512_div_ps(a, b); }
static inline wide wide_fma(float a, wide b, wide c) { return _mm512_fmadd_ps(_mm512_set1_ps(a), b, c); }
static inline wide wide_fma_lanes(wide a, wide b, wide c) { return _mm512_fmadd_ps(a, b, c); }
/* Sum of the lanes, as vec_join adds them. */
static inline float wide_join(wide v) {
    return vec_join(_mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1)));
}
/* a > b ? a : b */
static inline wide wide_larger(wide a, wide b) { return _mm512_max_ps(a, b); }
static inline float wide_largest(wide v) { return _mm512_reduce_max_ps(v); }
/* Stores v except in its first n lanes. */
static inline void wide_store_behind(float *p, wide v, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)(0xffffu << n), v);
}

#else

enum { LANES = VEC_LANES };
typedef vec wide;
static inline wide wide_set(float x) { return vec_set(x); }
static inline wide wide_load(const float *p) { return vec_load(p, LANES); }
static inline void wide_store(float *p, wide v) { vec_store(p, v, LANES); }
static inline wide wide_load_first(const float *p, int n) { return vec_load(p, n); }
static inline void wide_store_first(float *p, wide v, int n) { vec_store(p, v, n); }
static inline wide wide_add(wide a, wide b) { return vec_add(a, b); }
static inline wide wide_sub(wide a, wide b) { return vec_sub(a, b); }
static inline wide wide_mul(wide a, wide b) { return vec_mul(a, b); }
static inline wide wide_div(wide a, wide b) { return vec_div(a, b); }
static inline float wide_join(wide v) { return vec_join(v); }
/* The largest lane; no lane is NaN. */
static inline float wide_largest(wide v) {
    float lane[LANES], most;
    wide_store(lane, v);
    most = lane[0];
    for (int i = 1; i < LANES; i++) most = lane[i] > most ? lane[i] : most;
    return most;
}
/* Stores v except in its first n lanes. */
static inline void wide_store_behind(float *p, wide v, int n) {
    float lane[LANES];
    wide_store(lane, v);
    for (int i = n; i < LANES; i++) p[i] = lane[i];
}

/* The first n lanes of v, the others of `otherwise`. */
static inline wide wide_first_or(wide v, int n, wide otherwise) {
#if defined(__AVX512VL__)
    return _mm256_mask_mov_ps(otherwise, vec_first(n), v);
#elif defined(__AVX2__)
    return _mm256_blendv_ps(otherwise, v, _mm256_castsi256_ps(vec_first(n)));
#else
    for (int i = n; i < LANES; i++) v.lane[i] = otherwise.lane[i];
    return v;
#endif
}

#if defined(__AVX2__)
enum { MAX_VECTORS = 2 }; /* 12 of 16 */
static inline wide wide_fma(float a, wide b, wide c) { return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c); }
static inline wide wide_fma_lanes(wide a, wide b, wide c) { return _mm256_fmadd_ps(a, b, c); }
static inline wide wide_larger(wide a, wide b) { return _mm256_max_ps(a, b); }
#else
enum { MAX_VECTORS = 1 };
static inline wide wide_fma(float a, wide b, wide c) { return vec_add(vec_mul(vec_set(a), b), c); }
static inline wide wide_fma_lanes(wide a, wide b, wide c) { return vec_add(vec_mul(a, b), c); }
static inline wide wide_larger(wide a, wide b) {
    for (int i = 0; i < LANES; i++) a.lane[i] = a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i];
    return a;
}
#endif

#endif

static inline wide wide_zero(void) { return wide_set(0.0f); }
static inline wide wide_scale(float a, wide b) { return wide_mul(wide_set(a), b); }

#if defined(__AVX2__)

/* Pairs of 128-bit halves of rows: of both operands the first, or the second. */
#define FIRST_HALVES(a, b) _mm256_permute2f128_ps(a, b, 0x20)
#define SECOND_HALVES(a, b) _mm256_permute2f128_ps(a, b, 0x31)

/* Rows a, b, c, d of eight: columns 0 and 4, 1 and 5, 2 and 6, 3 and 7 of them in the halves of out. */
static inline void turn_four(__m256 a, __m256 b, __m256 c, __m256 d, __m256 *out) {
    const __m256 low = _mm256_unpacklo_ps(a, b), high = _mm256_unpackhi_ps(a, b);
    const __m256 other_low = _mm256_unpacklo_ps(c, d), other_high = _mm256_unpackhi_ps(c, d);
    out[0] = _mm256_shuffle_ps(low, other_low, 0x44);
    out[1] = _mm256_shuffle_ps(low, other_low, 0xee);
    out[2] = _mm256_shuffle_ps(high, other_high, 0x44);
    out[3] = _mm256_shuffle_ps(high, other_high, 0xee);
}

static inline void turn_eight(float *dst, int64_t dst_step, const float *src, int64_t src_step) {
    __m256 row[8], top[4], bottom[4];
    for (int i = 0; i < 8; i++) row[i] = _mm256_loadu_ps(src + i * src_step);
    turn_four(row[0], row[1], row[2], row[3], top);
    turn_four(row[4], row[5], row[6], row[7], bottom);
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(dst + i * dst_step, FIRST_HALVES(top[i], bottom[i]));
        _mm256_storeu_ps(dst + (i + 4) * dst_step, SECOND_HALVES(top[i], bottom[i]));
    }
}

#else

static inline void turn_eight(float *dst, int64_t dst_step, const float *src, int64_t src_step) {
    for (int r = 0; r < 8; r++)
        for (int c = 0; c < 8; c++) dst[c * dst_step + r] = src[r * src_step + c];
}

#endif

/* Blocks of eight by eight, which stay in registers. */
static inline void wide_transpose(float *dst, int64_t dst_step, const float *src, int64_t src_step,
                                  int64_t rows, int64_t columns) {
    enum { SIDE = 8 };
    const int64_t whole_rows = rows - rows % SIDE, whole_columns = columns - columns % SIDE;
    for (int64_t r = 0; r < whole_rows; r += SIDE)
        for (int64_t c = 0; c < whole_columns; c += SIDE)
            turn_eight(dst + c * dst_step + r, dst_step, src + r * src_step + c, src_step);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_columns : 0; c < columns; c++)
            dst[c * dst_step + r] = src[r * src_step + c];
}

#endif
