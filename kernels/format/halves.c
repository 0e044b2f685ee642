/* Chooses the loops of a format and CPU level. */
#include "kernels/format/halves.h"

#include "kernels/format/vec_halves.h"
#include "kernels/vec/isa.h"

AB_BY_ISA(ab_vec_halves, ab_vec_halves)

void ab_add_halves(uint16_t *dst, const ab_format *format, const uint16_t *a, const uint16_t *b, int64_t n) {
    if (format == &ab_format_fp16)
        ab_vec_halves_get()->add_fp16(dst, a, b, n);
    else
        ab_vec_halves_get()->add_bf16(dst, a, b, n);
}

void ab_scale_halves(uint16_t *dst, const ab_format *format, const uint16_t *a, const float *factor,
                     int64_t n) {
    if (format == &ab_format_fp16)
        ab_vec_halves_get()->scale_fp16(dst, a, factor, n);
    else
        ab_vec_halves_get()->scale_bf16(dst, a, factor, n);
}
