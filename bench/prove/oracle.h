/* Reference for rounding fp32 to a format, by enumerating the format's numbers in order: independent of
 * kernels/format/format.c, with which it shares the rows of formats.def but no code. It uses neighbours,
 * midpoints and integer comparisons; it never shifts a significand to round it. */
#ifndef AB_BENCH_PROVE_ORACLE_H
#define AB_BENCH_PROVE_ORACLE_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* Whether the oracle covers the format: each of its values must be an fp32 value (precision <= 24, emin >=
 * -126, emax <= 127). */
bool ab_oracle_covers(const ab_format *format);

/* For the n consecutive fp32 bit patterns from `first` on (n >= 1, first + n <= 2^32, all of one sign):
 * writes the encodings to codes[n] and their values as fp32 bits to values[n]. Rounding may be any mode but
 * stochastic. */
void ab_oracle_round(const ab_format *format, const ab_rounding *rounding, uint32_t first, int64_t n,
                     uint32_t *codes, uint32_t *values);

/* Positions among the fp32 magnitudes, in half steps: 2 * bits for the number with these bits, 2 * bits + 1
 * for any value strictly between it and the next. */
uint64_t ab_oracle_position(const ab_format *format, uint64_t code); /* of a finite magnitude's code */
uint64_t ab_oracle_midpoint(const ab_format *format, uint64_t code); /* half-way from it to the next */

AB_END_DECLS

#endif
