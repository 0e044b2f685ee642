/* Census: one pass over a tensor whose counts give, exactly and without another pass, the effect of any
 * power-of-two scale in any of the small formats.
 *
 * A value is counted by its exponent (277 of them: fp32 subnormals are normalised) and by one of 13
 * mantissa intervals. The interval ends are the mantissas at which the result of a format's rounding
 * changes: the tie at half the smallest subnormal, the carry into the smallest normal,
 * the overflow point (census_bin.h). whatif.h computes predictions from the counts; this file does not
 * depend on a format's rounding.
 *
 * Every CPU level (isa.h) gives the same bits, sum of squares included. No threading and no allocation here:
 * callers split the work, give each thread its own census and merge in a fixed order. */
#ifndef AB_KERNELS_CENSUS_CENSUS_H
#define AB_KERNELS_CENSUS_CENSUS_H

#include "kernels/census/census_counts.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* An empty census. */
void ab_census_clear(ab_census *census);

/* Adds n fp32 values. Not thread-safe for one census: give each thread its own and merge. The sum of
 * squares is taken in interleaved fp32 lanes over blocks of AB_CENSUS_BLOCK values, counted from
 * values[0], and from there on in double (vec_census.h), accurate to seven digits. It depends only on how
 * a tensor is split into calls. Blocks with values too small or too large for fp32 squares are summed in
 * double. */
void ab_census_add(ab_census *census, const float *values, int64_t n);

/* Adds n elements stored in `format`: fp32, fp16, bf16, fp64 (rounded to fp32 first), or a format without
 * a storage type kept in fp32. */
void ab_census_add_stored(ab_census *census, const void *data, const ab_format *format, int64_t n);

/* Same for n elements that lie `stride` elements apart (may be negative or 0). Bit-identical to gathering
 * them first. */
void ab_census_add_strided(ab_census *census, const void *data, const ab_format *format, int64_t n,
                           int64_t stride);

/* into += from. Exact for counts; sums of squares are added in double. */
void ab_census_merge(ab_census *into, const ab_census *from);

/* Number of finite non-zero values. */
int64_t ab_census_nonzero(const ab_census *census);

/* Number of finite non-zero values v with 2^exponent <= |v| < 2^(exponent + 1); 0 outside AB_CENSUS_EMIN ..
 * AB_CENSUS_EMAX. */
int64_t ab_census_at(const ab_census *census, int exponent);

/* Outcome counts of storing value * 2^scale_log2 in `format`. flushed + subnormal + normal + overflowed =
 * nonzero. */
typedef struct ab_whatif {
    int64_t flushed, subnormal, normal, overflowed;
    double flushed_energy; /* share of the sum of squares in flushed values; 0 if none */
} ab_whatif;

/* The common case of whatif.h: power-of-two scale, round to nearest even, not saturating, subnormals kept.
 * Exact for every row of formats.def at every scale_log2 in [-60, 60]. AB_CONFIG outside [-126, 127], and
 * where the counts are not sufficient for an exact result (a format with a limit inside a mantissa class,
 * like fp4_e2m1): use the bounds of whatif.h then. */
AB_MUST_CHECK ab_status ab_census_whatif(const ab_census *census, const ab_format *format, int scale_log2,
                                         ab_whatif *result);

AB_END_DECLS

#endif
