/* 95 % confidence interval of a share estimated from the probed steps only.
 *
 * A probed step is one cluster of correlated values, so the sample size is the number of steps, not of values
 * (Cochran, "Sampling Techniques", chapters 6 and 9: ratio estimate from clusters, with the finite population
 * correction). Because that variance is 0 when all steps agree, the interval is never narrower than Wilson's
 * score interval on the values. It assumes that unprobed steps behave like probed ones: rare events between
 * probed steps are not covered. */
#ifndef AB_PROBES_INTERVAL_H
#define AB_PROBES_INTERVAL_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* Sums over probed steps that had values; part / whole is the share. */
typedef struct ab_share_sums {
    int64_t steps;
    double part, whole, part_part, part_whole, whole_whole;
} ab_share_sums;

typedef struct ab_interval {
    double share, low, high;
} ab_interval;

/* Adds one step. Steps without values do not count. */
void ab_share_add(ab_share_sums *sums, int64_t part, int64_t whole);

/* `probed` of the run's `total` steps were probed (total 0: unknown, treated as infinite). All probed: the
 * exact share. One step of several: [0, 1]. No values: share 0, [0, 1]. */
ab_interval ab_share_interval(const ab_share_sums *sums, int64_t probed, int64_t total);

AB_END_DECLS

#endif
