/* Chooses the loops of a format and CPU level. */
#include "kernels/format/halves.h"

#include "kernels/format/vec_halves.h"
#include "kernels/vec/isa.h"

#include <string.h>

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

/* Four codes in a word: fewer loads and stores, and compilers gather nothing from it. */
void ab_look_up_codes(uint16_t *to, const uint16_t *from, const uint16_t *table, int64_t n) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        uint64_t code, found;
        memcpy(&code, from + i, sizeof code);
        found = (uint64_t)table[code & 0xffff] | (uint64_t)table[code >> 16 & 0xffff] << 16 |
                (uint64_t)table[code >> 32 & 0xffff] << 32 | (uint64_t)table[code >> 48] << 48;
        memcpy(to + i, &found, sizeof found);
    }
    for (; i < n; i++) to[i] = table[from[i]];
}
