/* Which loss scales 2^k are valid for a set of tensors, from their censuses. No input or output, no
 * allocation.
 *
 * A scale is high enough for a tensor if at most a given share of its finite non-zero values, and of their
 * sum of squares, is flushed to zero; it is low enough if no value overflows. Both follow from whatif.h and
 * are monotonic in k, so the valid scales are a range k_lo .. k_hi; k_lo > k_hi means that there is none,
 * which is a valid result. */
#ifndef AB_REPORTS_ADVISE_SCALE_ADVICE_H
#define AB_REPORTS_ADVISE_SCALE_ADVICE_H

#include "kernels/census/whatif.h"

AB_BEGIN_DECLS

typedef struct ab_scale_goal {
    double flushed_share;  /* of the finite non-zero values, at most (inclusive); 0.001 is customary */
    double flushed_energy; /* of the sum of squares, at most; 1: no limit */
    ab_ftz ftz;
    int k_min, k_max; /* scales considered, within -126 .. 127 */
} ab_scale_goal;

typedef struct ab_scale_range {
    bool vacuous; /* no finite non-zero value: every scale is valid */
    int k_lo;     /* k_max + 1 if no scale considered is high enough */
    int k_hi;     /* k_min - 1 if none is low enough */
} ab_scale_range;

/* True if any scale meets the goal. */
bool ab_scale_feasible(const ab_scale_range *range);

/* The range of one tensor. AB_CONFIG if the goal's scales are not ordered and within limits. If a census only
 * bounds a count (whatif.h), the safe bound is used. */
AB_MUST_CHECK ab_status ab_scale_range_of(const ab_census *census, const ab_format *format,
                                          const ab_scale_goal *goal, ab_scale_range *range);

/* One scale for many tensors. Pooled counts hide a small tensor that is flushed entirely; `every` is
 * stricter: each tensor meets the goal. */
typedef struct ab_scale_advice {
    ab_scale_range pooled, every;
    int low_tensor, high_tensor; /* index of the tensor that sets every.k_lo and every.k_hi (the first of
                                    several); -1 if vacuous */
    bool feasible;               /* by `every` */
    int k;                       /* if feasible: one octave below every.k_hi if every.k_lo allows it */
} ab_scale_advice;

/* Incremental, so the censuses need not exist at once: begin, add the range of every tensor, finish with the
 * census `pool` that all of them were merged into. */
void ab_scale_advice_begin(ab_scale_advice *advice, const ab_scale_goal *goal);
void ab_scale_advice_add(ab_scale_advice *advice, int tensor, const ab_scale_range *range);
AB_MUST_CHECK ab_status ab_scale_advice_finish(ab_scale_advice *advice, const ab_census *pool,
                                               const ab_format *format, const ab_scale_goal *goal);

/* ---- expected extremes ----------------------------------------------------------------------- */

typedef struct ab_gumbel {
    double mu, beta; /* beta = 0: all steps are equal */
} ab_gumbel;

/* Gumbel distribution fitted by L-moments: beta = lambda_2 / ln 2, mu = lambda_1 - 0.5772 beta (Hosking,
 * L-moments, 1990). The largest magnitude varies between steps, so a single observed maximum is not enough.
 * `log2_max` holds the log2 of the largest magnitude of each of `steps` steps (or blocks of steps), in
 * ascending order; at least two. */
ab_gumbel ab_gumbel_fit(const double *log2_max, int steps);

/* The value that a step exceeds with probability alpha, 0 < alpha < 1; 1/2000 for a dynamic scale that
 * doubles every 2000 steps. */
double ab_gumbel_quantile(const ab_gumbel *law, double alpha);

AB_END_DECLS

#endif
