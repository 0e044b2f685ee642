/* How far a flushed share may be from that of another run of the same kind: values of one step are
 * correlated, and neighbouring steps too, so the binomial interval is that of the number of independent
 * values which gives the observed variance of the columns' shares (Korn and Graubard 1998), reduced for the
 * uncertainty of that variance: Student's t, degrees of freedom from the number of independent stretches of
 * the run. */
#ifndef AB_REPORTS_ADVISE_FLUSH_INTERVAL_H
#define AB_REPORTS_ADVISE_FLUSH_INTERVAL_H

#include "reports/advise/advise_series.h"

AB_BEGIN_DECLS

typedef struct ab_flush_interval {
    double share, low, high; /* 95 % */
} ab_flush_interval;

/* values[n], lost[n]: of n columns of steps, at most AB_SERIES_COLUMNS; those that overflowed left out.
 * samples: 1: of this run's share; 2: of the difference from a run as long, whose share varies as much. */
void ab_flush_interval_of(const double *values, const double *lost, int n, int samples,
                          ab_flush_interval *interval);

AB_END_DECLS

#endif
