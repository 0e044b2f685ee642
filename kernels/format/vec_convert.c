/* Conversion kernels, compiled once per CPU level (AB_ISA_SUFFIX); exports one table. Every level computes
 * the same bits. No dispatch, no threads, no allocation here.
 *
 * The lane functions are branch-free integer code, so that compilers vectorise the loops around them for
 * each level. */
#include "kernels/format/vec_convert.h"

#include "kernels/vec/isa.h"
#include "kernels/vec/vec_half.h"

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

/* ---- the table ------------------------------------------------------------------------------- */

AB_ISA_TABLE(ab_vec_convert) = {
    widen_fp16, narrow_fp16, widen_bf16, narrow_bf16, round_any, encode8,
    encode16,   encode32,    decode8,    decode16,    decode32,
};
