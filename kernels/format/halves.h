/* Arithmetic on arrays of fp16 or bf16: each result is computed in fp32 and rounded once to nearest even, as
 * by ab_widen, the operation and ab_narrow (convert.h), but in registers.
 *
 * Vector kernels are chosen at run time (isa.h); all give the same bits, except for which NaN a NaN is. No
 * threading here. Alignment: of one element. */
#ifndef AB_KERNELS_FORMAT_HALVES_H
#define AB_KERNELS_FORMAT_HALVES_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* Whether `format` is fp16 or bf16, the formats of the functions below. */
static inline bool ab_is_half(const ab_format *format) {
    return format == &ab_format_fp16 || format == &ab_format_bf16;
}

/* dst[i] = a[i] + b[i]; dst may be a or b. */
void ab_add_halves(uint16_t *dst, const ab_format *format, const uint16_t *a, const uint16_t *b, int64_t n);

/* dst[i] = a[i] * factor[i]; dst may be a. */
void ab_scale_halves(uint16_t *dst, const ab_format *format, const uint16_t *a, const float *factor,
                     int64_t n);

enum { AB_CODES = 1 << 16 };

/* to[i] = table[from[i]] for i < n; table: AB_CODES values. */
void ab_look_up_codes(uint16_t *to, const uint16_t *from, const uint16_t *table, int64_t n);

AB_END_DECLS

#endif
