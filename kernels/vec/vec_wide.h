/* The widest fp32 vector of the CPU level that a file is compiled for, and how many of them a matrix product
 * keeps in registers for each row. wide_fma is fused where the level has FMA.
 *
 * Only vec_*.c include this. */
#ifndef AB_KERNELS_VEC_VEC_WIDE_H
#define AB_KERNELS_VEC_VEC_WIDE_H

#include <stdint.h>

#if defined(__AVX512F__)

#include <immintrin.h>
enum { LANES = 16, MAX_VECTORS = 4 }; /* 24 accumulators of 32 registers */
typedef __m512 wide;
static inline wide wide_zero(void) { return _mm512_setzero_ps(); }
static inline wide wide_load(const float *p) { return _mm512_loadu_ps(p); }
static inline void wide_store(float *p, wide v) { _mm512_storeu_ps(p, v); }
static inline wide wide_load_first(const float *p, int n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
}
static inline void wide_store_first(float *p, wide v, int n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), v);
}
static inline wide wide_add(wide a, wide b) { return _mm512_add_ps(a, b); }
static inline wide wide_scale(float a, wide b) { return _mm512_mul_ps(_mm512_set1_ps(a), b); }
static inline wide wide_fma(float a, wide b, wide c) { return _mm512_fmadd_ps(_mm512_set1_ps(a), b, c); }

#elif defined(__AVX2__)

#include <immintrin.h>
enum { LANES = 8, MAX_VECTORS = 2 }; /* 12 of 16 */
typedef __m256 wide;
static inline wide wide_zero(void) { return _mm256_setzero_ps(); }
static inline wide wide_load(const float *p) { return _mm256_loadu_ps(p); }
static inline void wide_store(float *p, wide v) { _mm256_storeu_ps(p, v); }
static inline wide wide_load_first(const float *p, int n) {
    static const int32_t ones[2 * LANES] = {-1, -1, -1, -1, -1, -1, -1, -1};
    if (n == LANES) return wide_load(p);
    return _mm256_maskload_ps(p, _mm256_loadu_si256((const __m256i *)(const void *)(ones + LANES - n)));
}
/* A masked store costs dozens of cycles on some CPUs; a short copy does not. */
static inline void wide_store_first(float *p, wide v, int n) {
    float lane[LANES];
    if (n == LANES) {
        wide_store(p, v);
        return;
    }
    wide_store(lane, v);
    for (int i = 0; i < n; i++) p[i] = lane[i];
}
static inline wide wide_add(wide a, wide b) { return _mm256_add_ps(a, b); }
static inline wide wide_scale(float a, wide b) { return _mm256_mul_ps(_mm256_set1_ps(a), b); }
static inline wide wide_fma(float a, wide b, wide c) { return _mm256_fmadd_ps(_mm256_set1_ps(a), b, c); }

#else

enum { LANES = 4, MAX_VECTORS = 1 };
typedef struct wide {
    float lane[LANES];
} wide;
static inline wide wide_zero(void) { return (wide){{0.0f, 0.0f, 0.0f, 0.0f}}; }
static inline wide wide_load(const float *p) { return (wide){{p[0], p[1], p[2], p[3]}}; }
static inline void wide_store(float *p, wide v) {
    for (int i = 0; i < LANES; i++) p[i] = v.lane[i];
}
static inline wide wide_load_first(const float *p, int n) {
    wide v = wide_zero();
    for (int i = 0; i < n; i++) v.lane[i] = p[i];
    return v;
}
static inline void wide_store_first(float *p, wide v, int n) {
    for (int i = 0; i < n; i++) p[i] = v.lane[i];
}
static inline wide wide_add(wide a, wide b) {
    for (int i = 0; i < LANES; i++) a.lane[i] += b.lane[i];
    return a;
}
static inline wide wide_scale(float a, wide b) {
    for (int i = 0; i < LANES; i++) b.lane[i] *= a;
    return b;
}
static inline wide wide_fma(float a, wide b, wide c) {
    for (int i = 0; i < LANES; i++) c.lane[i] += a * b.lane[i];
    return c;
}

#endif

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
