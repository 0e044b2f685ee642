/* How far a flushed share may be from that of another run of the same kind: values of one step are
 * correlated, and neighbouring steps too, so the binomial interval is that of the number of independent
 * values which gives the observed variance of the columns' shares (Korn and Graubard 1998), reduced for the
 * uncertainty of that variance: Student's t, degrees of freedom from the number of independent stretches of
 * the run. */
#ifndef AB_REPORTS_STATS_FLUSH_INTERVAL_H
#define AB_REPORTS_STATS_FLUSH_INTERVAL_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

enum { AB_FLUSH_COLUMNS = 256 }; /* as a record has, at most */

typedef struct ab_flush_interval {
    double share, low, high; /* 95 % */
} ab_flush_interval;

/* values[n], lost[n]: of n columns of steps, at most AB_FLUSH_COLUMNS. samples, how often the variance
 * counts: 1: this run's share; 2: the difference from a run as long, whose share varies as much; the part of
 * the steps that was not probed: the share of all steps (correction for a finite population). */
void ab_flush_interval_of(const double *values, const double *lost, int n, double samples,
                          ab_flush_interval *interval);

AB_END_DECLS

#endif
