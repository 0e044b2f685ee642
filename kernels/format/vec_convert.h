/* Array kernels of convert.h, one table per CPU level. Internal to kernels/: callers use convert.h. */
#ifndef AB_KERNELS_FORMAT_VEC_CONVERT_H
#define AB_KERNELS_FORMAT_VEC_CONVERT_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* A (format, rounding) pair prepared for 32-bit integer lanes. Only for formats whose values are all exact
 * in fp32 and that either have fp32's emin or drop at least two bits: emax <= 127 and (emin = -126 and
 * precision
 * <= 24, or emin > -126 and precision <= 22).
 *
 * "Spread" is a code of the format shifted left by `drop`, so that its fraction sits where fp32's does. */
typedef struct ab_lane_format {
    uint32_t drop;      /* 24 - precision: significand bits that a normal result loses */
    uint32_t below_one; /* 2^drop - 1: those bits */
    uint32_t sign_at;   /* bits - 1: position of the sign bit */
    int32_t rebias;     /* fp32 bits of a normal value - its spread code */
    int32_t min_normal; /* fp32 bits; 0 when fp32 has the same emin and nothing needs denormalising */
    float unit;         /* 2^(emin - 23): value of the last bit of a spread subnormal */
    float per_unit;     /* 1 / unit */
    int32_t max_spread, inf_spread;
    int32_t overflow_spread[2];       /* of an overflowing magnitude, by sign */
    int32_t nan_spread, payload_mask; /* NaN = nan_spread | leading payload bits */
    int32_t flush_below;              /* fp32 bits: smaller magnitudes become 0 (FTZ before rounding) */
    int32_t flush_spread;             /* smaller results become 0 (FTZ after rounding) */
    uint32_t add, tie_up, tie_even;   /* half minus one unit; unit added at a tie, or at an odd tie */
    uint32_t outward[2];              /* by sign: added instead of half in directed modes */
    bool quick;                   /* nearest even, no flushing, denormalising: the fast path, which needs */
    int32_t cap;                  /* fp32 bits of 2^(emax + 1), which overflows like everything above */
    int32_t first_step, max_code; /* see quick_encode_lane() */
    int32_t max_value, inf_value, nan_value; /* fp32 bits */
} ab_lane_format;

typedef struct ab_vec_convert {
    void (*widen_fp16)(float *dst, const uint16_t *src, int64_t n);
    void (*narrow_fp16)(uint16_t *dst, const float *src, int64_t n); /* RNE */
    void (*widen_bf16)(float *dst, const uint16_t *src, int64_t n);
    void (*narrow_bf16)(uint16_t *dst, const float *src, int64_t n); /* RNE */

    /* For any prepared pair. dst may be src. */
    void (*round)(const ab_lane_format *lane, float *dst, const float *src, int64_t n);
    void (*encode8)(const ab_lane_format *lane, uint8_t *dst, const float *src, int64_t n);
    void (*encode16)(const ab_lane_format *lane, uint16_t *dst, const float *src, int64_t n);
    void (*encode32)(const ab_lane_format *lane, uint32_t *dst, const float *src, int64_t n);
    void (*decode8)(const ab_lane_format *lane, float *dst, const uint8_t *src, int64_t n);
    void (*decode16)(const ab_lane_format *lane, float *dst, const uint16_t *src, int64_t n);
    void (*decode32)(const ab_lane_format *lane, float *dst, const uint32_t *src, int64_t n);
} ab_vec_convert;

extern const ab_vec_convert ab_vec_convert_plain;
#if defined(__x86_64__)
extern const ab_vec_convert ab_vec_convert_avx2;
extern const ab_vec_convert ab_vec_convert_avx512;
#endif

AB_END_DECLS

#endif
