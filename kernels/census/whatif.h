/* What-if: the effect of storing value * scale in a format, computed from a census.
 *
 * As in training, the fp32 value is multiplied by the scale in IEEE fp32, subnormals kept, and the product
 * is rounded once, to nearest even, not saturating. Shares are relative to the finite non-zero values.
 * Three limits on the magnitude determine all four outcomes, because every step is monotone. */
#ifndef AB_KERNELS_CENSUS_WHATIF_H
#define AB_KERNELS_CENSUS_WHATIF_H

#include "kernels/census/census.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* Smallest fp32 magnitudes (bits without the sign) that are not flushed to zero, that become normal, and
 * that overflow (to inf, NaN, or above the maximum of a format that has neither); AB_WHATIF_NEVER if none
 * does:
 *   flushed: m < kept;              subnormal: kept <= m < normal;
 *   normal: normal <= m < overflow;  overflowed: overflow <= m. */
enum { AB_WHATIF_NEVER = 0x7f800000 };
typedef struct ab_whatif_limits {
    uint32_t kept, normal, overflow;
} ab_whatif_limits;

/* The limits at a scale, which must be a positive normal fp32 number (else AB_CONFIG). ftz: as in
 * format.h; a product that is subnormal in the format is flushed, tested before or after rounding. */
AB_MUST_CHECK ab_status ab_whatif_find_limits(const ab_format *format, float scale, ab_ftz ftz,
                                              ab_whatif_limits *limits);

/* Cumulative totals of a census from the smallest exponent upwards, for repeated predictions. */
typedef struct ab_census_totals {
    int64_t below[AB_CENSUS_EXPONENTS + 1]; /* number of values in lower rows */
    double energy[AB_CENSUS_EXPONENTS + 1]; /* their sum of squares, estimated: see ab_whatif_range */
} ab_census_totals;

/* Computes the cumulative totals of a census. */
void ab_census_total(const ab_census *census, ab_census_totals *totals);

/* Lower and upper bounds of the counts; equal if `exact`, which holds when no limit is strictly inside a
 * mantissa class with values. The energy share is an estimate: every square of the smaller side, flushed
 * or not, is replaced by the mean square of its mantissa class, so it is accurate within a factor 0.6 to
 * 2 and typically a few percent. */
typedef struct ab_whatif_range {
    ab_whatif low, high;
    bool exact;
} ab_whatif_range;

/* The prediction for one format and scale, given its limits. */
void ab_whatif_evaluate(const ab_census *census, const ab_census_totals *totals,
                        const ab_whatif_limits *limits, ab_whatif_range *range);

AB_END_DECLS

#endif
