/* An fp32 vector type of the CPU level that a file is compiled for (isa.h; cmake/Rooms.cmake), for loops
 * that compilers do not vectorise: accumulators kept in registers, rows shorter than a vector, NaN-aware
 * maxima.
 *
 * Only vec_*.c include this. The plain level is four lanes of portable C.
 */
#ifndef AB_KERNELS_VEC_VEC_H
#define AB_KERNELS_VEC_VEC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512VL__)

/* Eight lanes here too: rows of few channels rarely fill more, and an unaligned 64-byte access touches two
 * cache lines. This level adds masks. */
#include <immintrin.h>
enum { VEC_LANES = 8 };
typedef __m256 vec;
typedef __mmask8 vec_mask;

static inline __mmask8 vec_first(int n) { return (__mmask8)((1u << n) - 1u); }
static inline vec vec_set(float x) { return _mm256_set1_ps(x); }
static inline vec vec_load(const float *p, int n) { return _mm256_maskz_loadu_ps(vec_first(n), p); }
static inline void vec_store(float *p, vec v, int n) { _mm256_mask_storeu_ps(p, vec_first(n), v); }
static inline vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static inline vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
/* Sum of the lanes as a binary tree: upper half to lower half, and so on. */
static inline float vec_join(vec v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
/* True where v replaces the running maximum m: it is greater, or it is NaN. */
static inline vec_mask vec_replaces(vec v, vec m) {
    return (__mmask8)(_mm256_cmp_ps_mask(v, m, _CMP_GT_OQ) | _mm256_cmp_ps_mask(v, v, _CMP_UNORD_Q));
}
static inline vec_mask vec_equal(vec a, vec b) { return _mm256_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
static inline vec vec_select(vec_mask mask, vec yes, vec no) { return _mm256_mask_blend_ps(mask, no, yes); }

#elif defined(__AVX2__)

#include <immintrin.h>
enum { VEC_LANES = 8 };
typedef __m256 vec;
typedef __m256 vec_mask;

static inline __m256i vec_first(int n) {
    static const int32_t ones[16] = {-1, -1, -1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 0, 0, 0, 0};
    return _mm256_loadu_si256((const __m256i *)(ones + 8 - n));
}
static inline vec vec_set(float x) { return _mm256_set1_ps(x); }
static inline vec vec_load(const float *p, int n) {
    return n == VEC_LANES ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, vec_first(n));
}
/* A masked store costs dozens of cycles on some CPUs; a short copy does not. */
static inline void vec_store(float *p, vec v, int n) {
    float lanes[VEC_LANES];
    if (n == VEC_LANES) {
        _mm256_storeu_ps(p, v);
        return;
    }
    _mm256_storeu_ps(lanes, v);
    for (int i = 0; i < n; i++) p[i] = lanes[i];
}
static inline vec vec_add(vec a, vec b) { return _mm256_add_ps(a, b); }
static inline vec vec_sub(vec a, vec b) { return _mm256_sub_ps(a, b); }
static inline vec vec_mul(vec a, vec b) { return _mm256_mul_ps(a, b); }
static inline vec vec_div(vec a, vec b) { return _mm256_div_ps(a, b); }
/* Sum of the lanes as a binary tree: upper half to lower half, and so on. */
static inline float vec_join(vec v) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_shuffle_ps(four, four, 1)));
}
static inline vec_mask vec_replaces(vec v, vec m) {
    return _mm256_or_ps(_mm256_cmp_ps(v, m, _CMP_GT_OQ), _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}
static inline vec_mask vec_equal(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
static inline vec vec_select(vec_mask mask, vec yes, vec no) { return _mm256_blendv_ps(no, yes, mask); }

#else

enum { VEC_LANES = 4 };
typedef struct vec {
    float lane[VEC_LANES];
} vec;
typedef struct vec_mask {
    int lane[VEC_LANES];
} vec_mask;

static inline vec vec_set(float x) { return (vec){{x, x, x, x}}; }
static inline vec vec_load(const float *p, int n) {
    vec v = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (int i = 0; i < n; i++) v.lane[i] = p[i];
    return v;
}
static inline void vec_store(float *p, vec v, int n) {
    for (int i = 0; i < n; i++) p[i] = v.lane[i];
}
static inline vec vec_add(vec a, vec b) {
    for (int i = 0; i < VEC_LANES; i++) a.lane[i] += b.lane[i];
    return a;
}
static inline vec vec_sub(vec a, vec b) {
    for (int i = 0; i < VEC_LANES; i++) a.lane[i] -= b.lane[i];
    return a;
}
static inline vec vec_mul(vec a, vec b) {
    for (int i = 0; i < VEC_LANES; i++) a.lane[i] *= b.lane[i];
    return a;
}
static inline vec vec_div(vec a, vec b) {
    for (int i = 0; i < VEC_LANES; i++) a.lane[i] /= b.lane[i];
    return a;
}
/* Sum of the lanes as a binary tree: upper half to lower half, and so on. */
static inline float vec_join(vec v) {
    for (int width = VEC_LANES / 2; width > 0; width /= 2)
        for (int i = 0; i < width; i++) v.lane[i] += v.lane[i + width];
    return v.lane[0];
}
static inline vec_mask vec_replaces(vec v, vec m) {
    vec_mask mask;
    for (int i = 0; i < VEC_LANES; i++) mask.lane[i] = v.lane[i] > m.lane[i] || isnan(v.lane[i]);
    return mask;
}
static inline vec_mask vec_equal(vec a, vec b) {
    vec_mask mask;
    for (int i = 0; i < VEC_LANES; i++) mask.lane[i] = a.lane[i] == b.lane[i];
    return mask;
}
static inline vec vec_select(vec_mask mask, vec yes, vec no) {
    for (int i = 0; i < VEC_LANES; i++) no.lane[i] = mask.lane[i] ? yes.lane[i] : no.lane[i];
    return no;
}

#endif

#endif
