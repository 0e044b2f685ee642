/* Array conversion between fp32 and stored formats: exact, at memory speed.
 *
 * Vector kernels are chosen at run time (isa.h) and match ab_format_encode / ab_format_decode bit for bit,
 * including subnormals, ties and NaN payloads. No threading here: callers split the range. n may be 0;
 * pointers are aligned for one element. Requires the default floating-point environment (round to
 * nearest, subnormals on). */
#ifndef AB_KERNELS_FORMAT_CONVERT_H
#define AB_KERNELS_FORMAT_CONVERT_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* dst[i] = value of src[i]; src holds n elements stored in `format`. dst and src may not overlap, except that
 * fp32 -> fp32 with dst == src is a no-op. fp64 sources are rounded to fp32. fp32 and the formats without a
 * storage type (already fp32 values) are copied bit for bit. */
void ab_widen(float *dst, const void *src, const ab_format *format, int64_t n);

/* dst[i] = src[i] stored in `format` with one RNE rounding. Same overlap rule. Formats without a storage type
 * become rounded fp32 values. */
void ab_narrow(void *dst, const ab_format *format, const float *src, int64_t n);

/* ab_widen of rows of `width` values: dst is dense and src has a row every `step` values. */
void ab_widen_rows(float *dst, const void *src, const ab_format *format, int64_t rows, int64_t width,
                   int64_t step);

/* values[i] rounded to `format` in place, kept as fp32 (any format, any rounding but stochastic). Results
 * of formats wider than fp32 are then rounded to fp32. */
void ab_round_array(float *values, const ab_format *format, const ab_rounding *rounding, int64_t n);

/* The same with stochastic rounding (rounding->mode must be AB_ROUND_STOCHASTIC; rounding->random is
 * ignored): element i uses word j % 4 of ab_rng_at(seed, AB_RNG_ROUNDING, step, j / 4) with j = first + i, so
 * the result does not depend on how a range is split. */
void ab_round_array_stochastic(float *values, const ab_format *format, const ab_rounding *rounding,
                               uint64_t seed, uint32_t step, uint64_t first, int64_t n);

/* Bytes of one packed encoding: the smallest of 1, 2, 4, 8 that holds format->bits. */
size_t ab_code_bytes(const ab_format *format);

/* codes[i] = encoding of values[i], ab_code_bytes each, in the machine's byte order (any rounding but
 * stochastic). */
void ab_encode_array(void *codes, const ab_format *format, const ab_rounding *rounding, const float *values,
                     int64_t n);

/* dst[i] = value of codes[i]; formats wider than fp32 are rounded to fp32. Bits above format->bits are
 * ignored. */
void ab_decode_array(float *dst, const void *codes, const ab_format *format, int64_t n);

AB_END_DECLS

#endif
