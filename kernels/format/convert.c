/* Chooses the kernel for a format and CPU level. The arithmetic is in vec_convert.c (lanes) and format.c
 * (scalar). */
#include "kernels/format/convert.h"

#include "kernels/core/rng.h"
#include "kernels/format/vec_convert.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <string.h>

static const ab_vec_convert *kernels(void) {
#if defined(__x86_64__)
    static const ab_vec_convert *const by_isa[] = {&ab_vec_convert_plain, &ab_vec_convert_avx2,
                                                   &ab_vec_convert_avx512, &ab_vec_convert_avx512};
    return by_isa[ab_isa_get()];
#else
    return &ab_vec_convert_plain;
#endif
}

/* ---- preparing a lane format ----------------------------------------------------------------- */

static bool fits_lanes(const ab_format *format) {
    bool same_range = format->emin == -126 && format->precision <= 24;
    bool denormalises = format->emin > -126 && format->precision <= 22;
    return format->emax <= 127 && (same_range || denormalises);
}

/* The fields of a lane format for decoding. */
static ab_lane_format lane_values(const ab_format *format) {
    ab_lane_format lane = {0};
    bool denormalises = format->emin > -126;
    lane.drop = (uint32_t)(24 - format->precision);
    lane.below_one = (1U << lane.drop) - 1;
    lane.sign_at = (uint32_t)(format->bits - 1);
    lane.rebias = (format->emin + 126) << 23;
    lane.min_normal = denormalises ? (format->emin + 127) << 23 : 0;
    lane.unit = denormalises ? (float)ldexp(1.0, format->emin - 23) : 1.0F;
    lane.per_unit = denormalises ? (float)ldexp(1.0, 23 - format->emin) : 1.0F;
    lane.max_spread = (int32_t)(ab_format_max_code(format) << lane.drop);
    return lane;
}

static int32_t spread_of(const ab_format *format, const ab_rounding *rounding, double x) {
    uint64_t magnitude = (UINT64_C(1) << (format->bits - 1)) - 1;
    return (int32_t)((ab_format_encode(format, rounding, x) & magnitude) << (24 - format->precision));
}

static int32_t fp32_bits(double x) {
    float value = (float)x;
    int32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void prepare_quick(ab_lane_format *lane, const ab_format *format, const ab_rounding *rounding) {
    lane->cap = (format->emax + 128) << 23;
    lane->first_step = (int32_t)((uint32_t)(lane->min_normal + ((int32_t)lane->drop << 23)) >> lane->drop);
    lane->max_code = (int32_t)ab_format_max_code(format);
    lane->max_value = fp32_bits(ab_format_max(format));
    lane->inf_value = fp32_bits(ab_format_round(format, rounding, HUGE_VAL)) & 0x7fffffff;
    lane->nan_value = fp32_bits(ab_format_round(format, rounding, (double)NAN)) & 0x7fffffff;
}

/* Special results come from the scalar reference; `x` beyond the range overflows under every rounding. */
static ab_lane_format lane_rounding(const ab_format *format, const ab_rounding *rounding) {
    ab_lane_format lane = lane_values(format);
    ab_round_mode mode = rounding->mode;
    bool nearest = mode == AB_ROUND_NEAREST_EVEN || mode == AB_ROUND_NEAREST_AWAY;
    double x = 2 * ab_format_max(format);
    lane.inf_spread = spread_of(format, rounding, HUGE_VAL);
    lane.overflow_spread[0] = spread_of(format, rounding, x);
    lane.overflow_spread[1] = spread_of(format, rounding, -x);
    lane.nan_spread = spread_of(format, rounding, (double)NAN);
    lane.payload_mask = format->infinity ? (int32_t)(0x7fffffU & ~lane.below_one) : 0;
    lane.flush_below = rounding->ftz == AB_FTZ_BEFORE ? (format->emin + 127) << 23 : 0;
    lane.flush_spread = rounding->ftz == AB_FTZ_AFTER ? 1 << 23 : 0;
    lane.add = nearest ? lane.below_one >> 1 : 0;
    lane.tie_up = mode == AB_ROUND_NEAREST_AWAY && lane.drop > 0;
    lane.tie_even = mode == AB_ROUND_NEAREST_EVEN && lane.drop > 0;
    lane.outward[0] = mode == AB_ROUND_UP ? lane.below_one : 0;
    lane.outward[1] = mode == AB_ROUND_DOWN ? lane.below_one : 0;
    lane.quick = lane.tie_even && rounding->ftz == AB_FTZ_NONE && format->emin > -126;
    if (lane.quick) prepare_quick(&lane, format, rounding);
    return lane;
}

/* ---- stored formats -------------------------------------------------------------------------- */

static void copy_fp32(float *dst, const float *src, int64_t n) {
    if (dst != src && n > 0) memcpy(dst, src, (size_t)n * sizeof *dst);
}

static void widen_fp32(float *dst, const void *src, int64_t n) { copy_fp32(dst, src, n); }
static void narrow_fp32(void *dst, const float *src, int64_t n) { copy_fp32(dst, src, n); }
static void widen_fp16(float *dst, const void *src, int64_t n) { kernels()->widen_fp16(dst, src, n); }
static void narrow_fp16(void *dst, const float *src, int64_t n) { kernels()->narrow_fp16(dst, src, n); }
static void widen_bf16(float *dst, const void *src, int64_t n) { kernels()->widen_bf16(dst, src, n); }
static void narrow_bf16(void *dst, const float *src, int64_t n) { kernels()->narrow_bf16(dst, src, n); }

static void widen_fp64(float *dst, const void *src, int64_t n) {
    const double *values = src;
    for (int64_t i = 0; i < n; i++) dst[i] = (float)values[i];
}

static void narrow_fp64(void *dst, const float *src, int64_t n) {
    double *values = dst;
    for (int64_t i = 0; i < n; i++) values[i] = (double)src[i];
}

typedef struct stored_format {
    const ab_format *format; /* NULL: without a storage type */
    void (*widen)(float *dst, const void *src, int64_t n);
    void (*narrow)(void *dst, const float *src, int64_t n); /* NULL: copied and rounded */
} stored_format;

static const stored_format *stored_of(const ab_format *format) {
    static const stored_format stored[] = {{&ab_format_fp32, widen_fp32, narrow_fp32},
                                           {&ab_format_fp16, widen_fp16, narrow_fp16},
                                           {&ab_format_bf16, widen_bf16, narrow_bf16},
                                           {&ab_format_fp64, widen_fp64, narrow_fp64},
                                           {NULL, widen_fp32, NULL}};
    size_t i = 0;
    while (stored[i].format && stored[i].format != format) i++;
    return &stored[i];
}

static void narrow_to(const stored_format *stored, void *dst, const ab_format *format, const float *src,
                      int64_t n) {
    static const ab_rounding rne = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};
    if (stored->narrow) {
        stored->narrow(dst, src, n);
        return;
    }
    copy_fp32(dst, src, n);
    ab_round_array(dst, format, &rne, n);
}

void ab_widen(float *dst, const void *src, const ab_format *format, int64_t n) {
    stored_of(format)->widen(dst, src, n);
}

void ab_narrow(void *dst, const ab_format *format, const float *src, int64_t n) {
    narrow_to(stored_of(format), dst, format, src, n);
}

void ab_widen_rows(float *dst, const void *src, const ab_format *format, int64_t rows, int64_t width,
                   int64_t step) {
    enum { AHEAD = 8 }; /* rows that lie far apart are not fetched by the hardware */
    const stored_format *stored = stored_of(format);
    const size_t bytes = ab_format_bytes(format, step);
    for (int64_t row = 0; row < rows; row++) {
        const char *from = (const char *)src + (size_t)row * bytes;
        if (row + AHEAD < rows) __builtin_prefetch(from + AHEAD * bytes, 0, 3);
        stored->widen(dst + row * width, from, width);
    }
}

/* ---- any format ------------------------------------------------------------------------------ */

/* As ab_narrow rounds. */
static bool is_plain(const ab_rounding *rounding) {
    return rounding->mode == AB_ROUND_NEAREST_EVEN && rounding->ftz == AB_FTZ_NONE && !rounding->saturate;
}

/* fp32 values are their own roundings; a signalling NaN becomes quiet. */
static void quieten(float *values, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        bits |= (uint32_t)((bits & 0x7fffffffU) > 0x7f800000U) << 22;
        memcpy(&values[i], &bits, sizeof bits);
    }
}

/* Into a half format and back, by pieces. */
static void round_by_storing(float *values, const ab_format *format, int64_t n) {
    enum { PIECE = 512 };
    uint16_t piece[PIECE];
    for (int64_t at = 0; at < n; at += PIECE) {
        const int64_t left = n - at < PIECE ? n - at : PIECE;
        ab_narrow(piece, format, values + at, left);
        ab_widen(values + at, piece, format, left);
    }
}

void ab_round_array(float *values, const ab_format *format, const ab_rounding *rounding, int64_t n) {
    const bool plain = is_plain(rounding);
    if (plain && format == &ab_format_fp32) {
        quieten(values, n);
    } else if (plain && (format == &ab_format_fp16 || format == &ab_format_bf16)) {
        round_by_storing(values, format, n);
    } else if (fits_lanes(format)) {
        ab_lane_format lane = lane_rounding(format, rounding);
        kernels()->round(&lane, values, values, n);
    } else {
        for (int64_t i = 0; i < n; i++)
            values[i] = (float)ab_format_round(format, rounding, (double)values[i]);
    }
}

void ab_round_array_stochastic(float *values, const ab_format *format, const ab_rounding *rounding,
                               uint64_t seed, uint32_t step, uint64_t first, int64_t n) {
    ab_rounding own = *rounding;
    ab_rng_block block = ab_rng_at(seed, AB_RNG_ROUNDING, step, first / 4);
    for (int64_t i = 0; i < n; i++) {
        uint64_t word = first + (uint64_t)i;
        if (word % 4 == 0) block = ab_rng_at(seed, AB_RNG_ROUNDING, step, word / 4);
        own.random = block.word[word % 4];
        values[i] = (float)ab_format_round(format, &own, (double)values[i]);
    }
}

/* ---- packed encodings ------------------------------------------------------------------------ */

size_t ab_code_bytes(const ab_format *format) {
    size_t bytes = 1;
    while (bytes * 8 < (size_t)format->bits) bytes *= 2;
    return bytes;
}

/* Element i of an array of 2, 4 or 8-byte codes: formats without a lane format have at least 11 bits. */
static void store_code(void *codes, size_t bytes, int64_t i, uint64_t code) {
    uint8_t *at = (uint8_t *)codes + (size_t)i * bytes;
    const uint16_t code16 = (uint16_t)code;
    const uint32_t code32 = (uint32_t)code;
    if (bytes == sizeof code16) memcpy(at, &code16, sizeof code16);
    if (bytes == sizeof code32) memcpy(at, &code32, sizeof code32);
    if (bytes == sizeof code) memcpy(at, &code, sizeof code);
}

static uint64_t load_code(const void *codes, size_t bytes, int64_t i) {
    const uint8_t *at = (const uint8_t *)codes + (size_t)i * bytes;
    uint16_t code16 = 0;
    uint32_t code32 = 0;
    uint64_t code64 = 0;
    if (bytes == sizeof code16) memcpy(&code16, at, sizeof code16);
    if (bytes == sizeof code32) memcpy(&code32, at, sizeof code32);
    if (bytes == sizeof code64) memcpy(&code64, at, sizeof code64);
    return code16 | code32 | code64;
}

void ab_encode_array(void *codes, const ab_format *format, const ab_rounding *rounding, const float *values,
                     int64_t n) {
    size_t bytes = ab_code_bytes(format);
    if (!fits_lanes(format)) {
        for (int64_t i = 0; i < n; i++)
            store_code(codes, bytes, i, ab_format_encode(format, rounding, (double)values[i]));
        return;
    }
    ab_lane_format lane = lane_rounding(format, rounding);
    if (bytes == 1) kernels()->encode8(&lane, codes, values, n);
    if (bytes == 2) kernels()->encode16(&lane, codes, values, n);
    if (bytes == 4) kernels()->encode32(&lane, codes, values, n);
}

void ab_decode_array(float *dst, const void *codes, const ab_format *format, int64_t n) {
    size_t bytes = ab_code_bytes(format);
    if (!fits_lanes(format)) {
        for (int64_t i = 0; i < n; i++) dst[i] = (float)ab_format_decode(format, load_code(codes, bytes, i));
        return;
    }
    ab_lane_format lane = lane_values(format);
    if (bytes == 1) kernels()->decode8(&lane, dst, codes, n);
    if (bytes == 2) kernels()->decode16(&lane, dst, codes, n);
    if (bytes == 4) kernels()->decode32(&lane, dst, codes, n);
}
