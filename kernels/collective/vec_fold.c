/* Sums rounded after every addition, for one CPU level (AB_ISA_SUFFIX); exports one table. The running sums
 * of a tile stay in registers while all rows pass. */
#include "kernels/collective/vec_fold.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec.h"

/* Vectors of a tile: enough independent additions to hide their latency. */
enum { TILE = 8 };

#if defined(__AVX2__)

static inline vec round_fp16(vec x) { return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)); }

/* Adds half of the last place, minus 1 if that is even, and cuts. The payload of a NaN of the format has no
 * low bits, so the addition cannot carry out of it. */
static inline vec round_bf16(vec x) {
    __m256i bits = _mm256_castps_si256(x);
    __m256i even = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), even);
    return _mm256_castsi256_ps(_mm256_and_si256(bits, _mm256_set1_epi32((int32_t)0xffff0000)));
}

#else

/* Below 2^-14, fp16 has a fixed last place of 2^-24, which is that of fp32 numbers from 0.5 to 1. */
static inline float fp16_lane(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = bits & 0x80000000U, size = bits & 0x7fffffffU;
    if (size >= 0x7f800000U) return x;
    if (size < 0x38800000U) return copysignf((fabsf(x) + 0.5F) - 0.5F, x);
    size = (size + 0xfffU + ((size >> 13) & 1U)) & ~0x1fffU;
    bits = sign | (size >= 0x47800000U ? 0x7f800000U : size);
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float bf16_lane(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline vec round_fp16(vec x) {
    for (int i = 0; i < VEC_LANES; i++) x.lane[i] = fp16_lane(x.lane[i]);
    return x;
}

static inline vec round_bf16(vec x) {
    for (int i = 0; i < VEC_LANES; i++) x.lane[i] = bf16_lane(x.lane[i]);
    return x;
}

#endif

static inline vec round_fp32(vec x) { return x; }

#define FOLD(format)                                                                                         \
    static void fold_##format(float *sum, const float *const *row, int64_t rows, int64_t n) {                \
        int64_t i = 0;                                                                                       \
        for (; i + TILE * VEC_LANES <= n; i += TILE * VEC_LANES) {                                           \
            vec tile[TILE];                                                                                  \
            for (int t = 0; t < TILE; t++) tile[t] = vec_load(sum + i + t * VEC_LANES, VEC_LANES);           \
            for (int64_t r = 0; r < rows; r++)                                                               \
                for (int t = 0; t < TILE; t++)                                                               \
                    tile[t] =                                                                                \
                        round_##format(vec_add(tile[t], vec_load(row[r] + i + t * VEC_LANES, VEC_LANES)));   \
            for (int t = 0; t < TILE; t++) vec_store(sum + i + t * VEC_LANES, tile[t], VEC_LANES);           \
        }                                                                                                    \
        for (; i < n; i += VEC_LANES) {                                                                      \
            int lanes = n - i < VEC_LANES ? (int)(n - i) : VEC_LANES;                                        \
            vec last = vec_load(sum + i, lanes);                                                             \
            for (int64_t r = 0; r < rows; r++)                                                               \
                last = round_##format(vec_add(last, vec_load(row[r] + i, lanes)));                           \
            vec_store(sum + i, last, lanes);                                                                 \
        }                                                                                                    \
    }

FOLD(fp32)
FOLD(fp16)
FOLD(bf16)

AB_ISA_TABLE(ab_vec_fold) = {.fp32 = fold_fp32, .fp16 = fold_fp16, .bf16 = fold_bf16};
