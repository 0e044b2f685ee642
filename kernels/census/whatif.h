/* What-if: what storing value * scale in a format would do to the values a census has seen.
 *
 * The pipeline is the one real training has: the value in fp32 is multiplied by the scale in IEEE fp32,
 * subnormals kept, and the product is rounded once, to nearest even, not saturating. A share is of the
 * finite non-zero values. All four outcomes follow from three limits on the magnitude, because every step
 * is monotone. */
#ifndef AB_KERNELS_CENSUS_WHATIF_H
#define AB_KERNELS_CENSUS_WHATIF_H

#include "kernels/census/census.h"

#include <stdbool.h>

AB_BEGIN_DECLS

/* Smallest fp32 magnitudes (bits without the sign) that are not flushed to zero, that become normal
 * numbers, and that overflow (to inf, nan, or past the largest number of a format that has neither);
 * AB_WHATIF_NEVER where none does. So
 *   flushed: m < kept;              subnormal: kept <= m < normal;
 *   normal: normal <= m < overflow;  overflowed: overflow <= m. */
enum { AB_WHATIF_NEVER = 0x7f800000 };
typedef struct ab_whatif_limits {
    uint32_t kept, normal, overflow;
} ab_whatif_limits;

/* The limits at a scale, which must be a positive normal fp32 number (else AB_CONFIG). ftz: as in
 * format.h; a product that would become a subnormal number of the format is flushed, and the limit of that
 * is before or after rounding. */
AB_MUST_CHECK ab_status ab_whatif_find_limits(const ab_format *format, float scale, ab_ftz ftz,
                                              ab_whatif_limits *limits);

/* Running totals of a census from its smallest exponent upwards, for asking one census many questions. */
typedef struct ab_census_totals {
    int64_t below[AB_CENSUS_EXPONENTS + 1]; /* values of the rows before */
    double energy[AB_CENSUS_EXPONENTS + 1]; /* their sum of squares, estimated: see ab_whatif_range */
} ab_census_totals;

/* Sums over the bins of a census that predictions need again and again. */
void ab_census_total(const ab_census *census, ab_census_totals *totals);

/* Lower and upper bounds of the counts; the same numbers if `exact`, which holds when no limit lies
 * strictly inside a mantissa class that has values. The energy share is an estimate: every square of the
 * smaller side, flushed or not, is replaced by the mean square of its mantissa class, so it is right
 * within a factor 0.6 to 2 and typically a few percent. */
typedef struct ab_whatif_range {
    ab_whatif low, high;
    bool exact;
} ab_whatif_range;

/* The prediction for one format and scale, from limits that were found before. */
void ab_whatif_evaluate(const ab_census *census, const ab_census_totals *totals,
                        const ab_whatif_limits *limits, ab_whatif_range *range);

AB_END_DECLS

#endif
