/* The interval of a flushed share from the shares of columns of steps. */
#include "reports/stats/flush_interval.h"

#include "reports/stats/stats.h"

#include <math.h>

static const double confidence = 0.95, resolved = 1e-6,
                    fewest = 5; /* a smaller share, and fewer values, count as 0: they are clustered */

/* Largest lag, in columns, at which columns are taken to be correlated. */
static int reach_of(int n) { return n / 20; }

/* Subtracts a least-squares line: the drift of the run is not random. */
static void detrend(double *off, int n) {
    double mean = 0, xx = 0, xy = 0;
    const double middle = (n - 1) / 2.0;
    for (int i = 0; i < n; i++) {
        mean += off[i] / n;
        xx += (i - middle) * (i - middle);
        xy += (i - middle) * off[i];
    }
    for (int i = 0; i < n && xx > 0; i++) off[i] -= mean + xy / xx * (i - middle);
}

/* Variance of the share with autocovariances, weighted down with the lag (Bartlett's weights).
 */
static double variance_of(double *off, int n, double values) {
    const int reach = reach_of(n);
    double sum = 0;
    detrend(off, n);
    for (int lag = 0; lag <= reach; lag++) {
        const double weight = (lag == 0 ? 1 : 2) * (1 - lag / (reach + 1.0));
        for (int i = lag; i < n; i++) sum += weight * off[i] * off[i - lag];
    }
    return n > 2 ? fmax(sum, 0) * n / (n - 2) / (values * values) : 1;
}

void ab_flush_interval_of(const double *values, const double *lost, int n, double samples,
                          ab_flush_interval *interval) {
    double off[AB_FLUSH_COLUMNS], all = 0, flushed = 0;
    *interval = (ab_flush_interval){.high = 1};
    for (int i = 0; i < n; i++) {
        all += values[i];
        flushed += lost[i];
    }
    if (all <= 0) return;
    interval->share = flushed / all;
    for (int i = 0; i < n; i++) off[i] = lost[i] - interval->share * values[i];
    const int stretches = n / (reach_of(n) + 1);
    const double variance = variance_of(off, n, all), side = (1 - confidence) / 2,
                 known = ab_normal_point(side) / ab_student_point(stretches > 2 ? stretches - 1 : 1, side),
                 independent = variance > 0 ? interval->share * (1 - interval->share) / variance : all;
    ab_binomial_interval(interval->share, fmin(independent, all) / samples * known * known, confidence,
                         &interval->low, &interval->high);
    interval->high = fmax(interval->high, resolved);
    if (interval->share < resolved || flushed < fewest) interval->low = 0;
}
