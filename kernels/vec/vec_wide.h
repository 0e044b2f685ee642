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

/* Blocks of four by four, which stay in registers. */
static inline void wide_transpose(float *dst, int64_t dst_step, const float *src, int64_t src_step,
                                  int64_t rows, int64_t columns) {
    enum { SIDE = 4 };
    int64_t r = 0;
    for (; r + SIDE <= rows; r += SIDE) {
        int64_t c = 0;
#if defined(__AVX2__)
        for (; c + SIDE <= columns; c += SIDE) {
            const float *from = src + r * src_step + c;
            __m128 a = _mm_loadu_ps(from), b = _mm_loadu_ps(from + src_step);
            __m128 x = _mm_loadu_ps(from + 2 * src_step), y = _mm_loadu_ps(from + 3 * src_step);
            _MM_TRANSPOSE4_PS(a, b, x, y);
            float *to = dst + c * dst_step + r;
            _mm_storeu_ps(to, a);
            _mm_storeu_ps(to + dst_step, b);
            _mm_storeu_ps(to + 2 * dst_step, x);
            _mm_storeu_ps(to + 3 * dst_step, y);
        }
#endif
        for (; c < columns; c++)
            for (int64_t i = r; i < r + SIDE; i++) dst[c * dst_step + i] = src[i * src_step + c];
    }
    for (; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) dst[c * dst_step + r] = src[r * src_step + c];
}

#endif
