/* Conversion kernels, compiled once per CPU level (AB_ISA_SUFFIX); exports one table. Every level computes
 * the same bits. No dispatch, no threads, no allocation here.
 *
 * The lane functions are branch-free integer code, so that compilers vectorise the loops around them for
 * each level; the fp16 and bf16 kernels use intrinsics, because compilers do not generate these
 * instructions. */
#include "kernels/format/vec_convert.h"

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

/* ---- any format ------------------------------------------------------------------------------ */

/* The spread code of a finite magnitude `u` (fp32 bits, so comparing integers compares values). Below the
 * smallest normal the significand is shifted right by multiplication and conversion. Lost bits set a
 * sticky last bit, which has the effect of a fraction below it, because at least two bits are dropped
 * later. */
static inline int32_t spread_lane(const ab_lane_format *lane, int32_t u) {
    int32_t low = u < lane->min_normal ? u : lane->min_normal;
    float units = float_of(low) * lane->per_unit;
    int32_t whole = (int32_t)units;
    int32_t denormal = whole | ((float)whole != units);
    return pick(u < lane->min_normal, denormal, u - lane->rebias);
}

/* Adds the rounding increment of the mode and drops the low bits; a carry propagates into the next binade. */
static inline int32_t round_lane(const ab_lane_format *lane, int32_t u, int negative) {
    uint32_t spread = (uint32_t)spread_lane(lane, u);
    uint32_t tie = (lane->tie_up | ((spread >> lane->drop) & lane->tie_even)) & 1;
    uint32_t outward = (uint32_t)pick(negative, (int32_t)lane->outward[1], (int32_t)lane->outward[0]);
    int32_t result = (int32_t)((spread + lane->add + tie + outward) & ~lane->below_one);
    result = pick(u < lane->flush_below, 0, result);
    result = pick(result < lane->flush_spread, 0, result);
    int32_t overflow = pick(negative, lane->overflow_spread[1], lane->overflow_spread[0]);
    result = pick(result > lane->max_spread, overflow, result);
    result = pick(u == INFINITE, lane->inf_spread, result);
    return pick(u > INFINITE, lane->nan_spread | (u & lane->payload_mask), result);
}

static inline uint32_t encode_lane(const ab_lane_format *lane, float x) {
    uint32_t bits = bits_of(x), sign = bits >> SIGN_SHIFT;
    int32_t spread = round_lane(lane, (int32_t)(bits & MAGNITUDE), (int)sign);
    return (uint32_t)spread >> lane->drop | sign << lane->sign_at;
}

/* fp32 bits of a spread code. */
static inline int32_t value_lane(const ab_lane_format *lane, int32_t spread) {
    int32_t subnormal = (int32_t)bits_of((float)spread * lane->unit);
    int32_t fraction = spread & FRACTION;
    int32_t special = INFINITE | fraction | pick(fraction != 0, QUIET, 0);
    int32_t is_subnormal = (spread <= FRACTION) & (lane->min_normal != 0);
    int32_t result = pick(is_subnormal, subnormal, spread + lane->rebias);
    return pick(spread > lane->max_spread, special, result);
}

static inline float decode_lane(const ab_lane_format *lane, uint32_t code) {
    uint32_t sign = (code >> lane->sign_at & 1) << SIGN_SHIFT;
    uint32_t spread = (code << lane->drop) & (((1U << lane->sign_at) - 1) << lane->drop);
    return float_of(value_lane(lane, (int32_t)spread) | (int32_t)sign);
}

static inline float round_value_lane(const ab_lane_format *lane, float x) {
    uint32_t bits = bits_of(x), sign = bits >> SIGN_SHIFT;
    int32_t spread = round_lane(lane, (int32_t)(bits & MAGNITUDE), (int)sign);
    return float_of(value_lane(lane, spread) | (int32_t)(sign << SIGN_SHIFT));
}

/* To nearest even without flushing, for formats that denormalise (lane->quick): the ulp of 2^(binade +
 * drop) is the format's ulp in that binade, so adding it makes the fp32 adder round at the format's last
 * bit. */
static inline float quick_step(const ab_lane_format *lane, int32_t capped) {
    int32_t binade = capped & INFINITE;
    int32_t first = lane->min_normal;
    return float_of((binade > first ? binade : first) + ((int32_t)lane->drop << FRACTION_BITS));
}

static inline uint32_t quick_encode_lane(const ab_lane_format *lane, float x) {
    uint32_t bits = bits_of(x);
    int32_t u = (int32_t)(bits & MAGNITUDE), capped = u < lane->cap ? u : lane->cap;
    float step = quick_step(lane, capped);
    int32_t kept = (int32_t)(bits_of(float_of(capped) + step) - bits_of(step));
    int32_t binade = (int32_t)(bits_of(step) >> lane->drop) - lane->first_step;
    int32_t code = pick(binade + kept > lane->max_code, lane->inf_spread >> lane->drop, binade + kept);
    int32_t nan = (lane->nan_spread | (u & lane->payload_mask)) >> lane->drop;
    return (uint32_t)pick(u > INFINITE, nan, code) | bits >> SIGN_SHIFT << lane->sign_at;
}

static inline float quick_round_lane(const ab_lane_format *lane, float x) {
    uint32_t bits = bits_of(x);
    int32_t u = (int32_t)(bits & MAGNITUDE), capped = u < lane->cap ? u : lane->cap;
    float step = quick_step(lane, capped);
    int32_t value = (int32_t)bits_of((float_of(capped) + step) - step);
    value = pick(value > lane->max_value, lane->inf_value, value);
    value = pick(u > INFINITE, lane->nan_value | (u & lane->payload_mask), value);
    return float_of((int32_t)((uint32_t)value | (bits & ~(uint32_t)MAGNITUDE)));
}

/* The same as compile-time constants, which simplify when fp32 has the format's emin. */
static inline ab_lane_format same_range(const ab_lane_format *lane) {
    ab_lane_format result = *lane;
    result.min_normal = result.rebias = 0;
    return result;
}

static void round_any(const ab_lane_format *lane, float *dst, const float *src, int64_t n) {
    const ab_lane_format local = *lane, plain = same_range(lane); /* copies, because dst might alias *lane */
    if (local.quick)
        for (int64_t i = 0; i < n; i++) dst[i] = quick_round_lane(&local, src[i]);
    else if (local.min_normal == 0)
        for (int64_t i = 0; i < n; i++) dst[i] = round_value_lane(&plain, src[i]);
    else
        for (int64_t i = 0; i < n; i++) dst[i] = round_value_lane(&local, src[i]);
}

/* Codes are computed as 32-bit lanes and packed in a second pass over a block in the L1 cache: in a single
 * loop compilers unroll for the narrowest type and spill registers. */
enum { BLOCK = 512 };

static void encode32(const ab_lane_format *lane, uint32_t *AB_RESTRICT dst, const float *AB_RESTRICT src,
                     int64_t n) {
    const ab_lane_format local = *lane, plain = same_range(lane);
    if (local.quick)
        for (int64_t i = 0; i < n; i++) dst[i] = quick_encode_lane(&local, src[i]);
    else if (local.min_normal == 0)
        for (int64_t i = 0; i < n; i++) dst[i] = encode_lane(&plain, src[i]);
    else
        for (int64_t i = 0; i < n; i++) dst[i] = encode_lane(&local, src[i]);
}

static void encode16(const ab_lane_format *lane, uint16_t *AB_RESTRICT dst, const float *AB_RESTRICT src,
                     int64_t n) {
    uint32_t block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t here = n - at < BLOCK ? n - at : BLOCK;
        encode32(lane, block, src + at, here);
        for (int64_t i = 0; i < here; i++) dst[at + i] = (uint16_t)block[i];
    }
}

static void encode8(const ab_lane_format *lane, uint8_t *AB_RESTRICT dst, const float *AB_RESTRICT src,
                    int64_t n) {
    uint32_t block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t here = n - at < BLOCK ? n - at : BLOCK;
        encode32(lane, block, src + at, here);
        for (int64_t i = 0; i < here; i++) dst[at + i] = (uint8_t)block[i];
    }
}

static void decode32(const ab_lane_format *lane, float *AB_RESTRICT dst, const uint32_t *AB_RESTRICT src,
                     int64_t n) {
    const ab_lane_format local = *lane;
    for (int64_t i = 0; i < n; i++) dst[i] = decode_lane(&local, src[i]);
}

static void decode16(const ab_lane_format *lane, float *AB_RESTRICT dst, const uint16_t *AB_RESTRICT src,
                     int64_t n) {
    uint32_t block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t here = n - at < BLOCK ? n - at : BLOCK;
        for (int64_t i = 0; i < here; i++) block[i] = src[at + i];
        decode32(lane, dst + at, block, here);
    }
}

static void decode8(const ab_lane_format *lane, float *AB_RESTRICT dst, const uint8_t *AB_RESTRICT src,
                    int64_t n) {
    uint32_t block[BLOCK];
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t here = n - at < BLOCK ? n - at : BLOCK;
        for (int64_t i = 0; i < here; i++) block[i] = src[at + i];
        decode32(lane, dst + at, block, here);
    }
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

static void widen_fp16_plain(float *AB_RESTRICT dst, const uint16_t *AB_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = widen_fp16_lane(src[i]);
}

static void narrow_fp16_plain(uint16_t *AB_RESTRICT dst, const float *AB_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = (uint16_t)narrow_fp16_lane(src[i]);
}

static void widen_bf16_plain(float *AB_RESTRICT dst, const uint16_t *AB_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = widen_bf16_lane(src[i]);
}

static void narrow_bf16_plain(uint16_t *AB_RESTRICT dst, const float *AB_RESTRICT src, int64_t n) {
    for (int64_t i = 0; i < n; i++) dst[i] = narrow_bf16_lane(src[i]);
}
#endif

/* ---- fp16 and bf16, AVX-512 ------------------------------------------------------------------ */

#if defined(__AVX512F__)

enum { LANES = 16 };

static inline __mmask16 lanes_left(int64_t left) {
    unsigned mask = left >= LANES ? 0xffffU : (1U << (unsigned)left) - 1U;
    return (__mmask16)mask;
}

static void widen_fp16(float *dst, const uint16_t *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm512_storeu_ps(dst + i,
                         _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(src + i))));
    __mmask16 live = lanes_left(n - i);
    if (i < n) _mm512_mask_storeu_ps(dst + i, live, _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(live, src + i)));
}

static inline __m256i narrowed_fp16(__m512 x) {
    return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static void narrow_fp16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), narrowed_fp16(_mm512_loadu_ps(src + i)));
    __mmask16 live = lanes_left(n - i);
    if (i < n) _mm256_mask_storeu_epi16(dst + i, live, narrowed_fp16(_mm512_maskz_loadu_ps(live, src + i)));
}

static inline __m512i widened_bf16(__m256i codes) {
    __m512i x = _mm512_slli_epi32(_mm512_cvtepu16_epi32(codes), BF16_DROP);
    __mmask16 nan = _mm512_cmp_ps_mask(_mm512_castsi512_ps(x), _mm512_castsi512_ps(x), _CMP_UNORD_Q);
    return _mm512_mask_or_epi32(x, nan, x, _mm512_set1_epi32(QUIET));
}

static void widen_bf16(float *dst, const uint16_t *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm512_storeu_si512(dst + i,
                            widened_bf16(_mm256_loadu_si256((const __m256i *)(const void *)(src + i))));
    __mmask16 live = lanes_left(n - i);
    if (i < n) _mm512_mask_storeu_epi32(dst + i, live, widened_bf16(_mm256_maskz_loadu_epi16(live, src + i)));
}

/* Not vcvtneps2bf16: that instruction treats fp32 subnormals as zero. */
static inline __m256i narrowed_bf16(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, BF16_DROP), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    rounded =
        _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits, _mm512_set1_epi32(QUIET));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, BF16_DROP));
}

static void narrow_bf16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), narrowed_bf16(_mm512_loadu_ps(src + i)));
    __mmask16 live = lanes_left(n - i);
    if (i < n) _mm256_mask_storeu_epi16(dst + i, live, narrowed_bf16(_mm512_maskz_loadu_ps(live, src + i)));
}

/* ---- fp16 and bf16, AVX2 and F16C ------------------------------------------------------------ */

#elif defined(__AVX2__)

enum { LANES = 8, PAIR = 16 };

static void widen_fp16(float *dst, const uint16_t *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(src + i))));
    widen_fp16_plain(dst + i, src + i, n - i);
}

static void narrow_fp16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        _mm_storeu_si128(
            (__m128i *)(void *)(dst + i),
            _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
    narrow_fp16_plain(dst + i, src + i, n - i);
}

static inline __m256i quietened(__m256i bits) {
    __m256 x = _mm256_castsi256_ps(bits);
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return _mm256_or_si256(bits, _mm256_and_si256(nan, _mm256_set1_epi32(QUIET)));
}

static void widen_bf16(float *dst, const uint16_t *src, int64_t n) {
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        __m256i x = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(src + i)));
        x = quietened(_mm256_slli_epi32(x, BF16_DROP));
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), x);
    }
    widen_bf16_plain(dst + i, src + i, n - i);
}

static inline __m256i narrow_bf16_8(const float *src) {
    __m256i bits = _mm256_loadu_si256((const __m256i *)(const void *)src);
    __m256 x = _mm256_castsi256_ps(bits);
    __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, BF16_DROP), _mm256_set1_epi32(1));
    __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(QUIET));
    rounded =
        _mm256_castps_si256(_mm256_blendv_ps(_mm256_castsi256_ps(rounded), _mm256_castsi256_ps(quiet), nan));
    return _mm256_srli_epi32(rounded, BF16_DROP);
}

static void narrow_bf16(uint16_t *dst, const float *src, int64_t n) {
    int64_t i = 0;
    for (; i + PAIR <= n; i += PAIR) {
        /* packing works within 128-bit lanes: restore the order of the quarters */
        __m256i packed = _mm256_packus_epi32(narrow_bf16_8(src + i), narrow_bf16_8(src + i + LANES));
        packed = _mm256_permute4x64_epi64(packed, 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)(dst + i), packed);
    }
    narrow_bf16_plain(dst + i, src + i, n - i);
}

#else

static void widen_fp16(float *dst, const uint16_t *src, int64_t n) { widen_fp16_plain(dst, src, n); }
static void narrow_fp16(uint16_t *dst, const float *src, int64_t n) { narrow_fp16_plain(dst, src, n); }
static void widen_bf16(float *dst, const uint16_t *src, int64_t n) { widen_bf16_plain(dst, src, n); }
static void narrow_bf16(uint16_t *dst, const float *src, int64_t n) { narrow_bf16_plain(dst, src, n); }

#endif

/* ---- the table ------------------------------------------------------------------------------- */

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)

const ab_vec_convert JOIN(ab_vec_convert_, AB_ISA_SUFFIX) = {
    widen_fp16, narrow_fp16, widen_bf16, narrow_bf16, round_any, encode8,
    encode16,   encode32,    decode8,    decode16,    decode32,
};
