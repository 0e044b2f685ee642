/* Plain loops: they run at probed steps only. */
#include "bench/train/ranks/reduction_counts.h"

#include <math.h>

void ab_reduction_count_sent(ab_reduction_counts *counts, const float *before, const float *after,
                             double *sums, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        counts->sent += before[i] != 0;
        counts->sent_flushed += before[i] != 0 && after[i] == 0;
        counts->sent_overflowed += isfinite(before[i]) && !isfinite(after[i]);
        sums[i] += (double)before[i];
    }
}

void ab_reduction_count_results(ab_reduction_counts *counts, const float *result, const double *sums,
                                const bool *finite, int64_t ranks, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        const double mean = sums[i] / (double)ranks, off = (double)result[i] - mean;
        if (!isfinite(mean)) continue;
        counts->means += mean != 0;
        counts->flushed += mean != 0 && result[i] == 0;
        counts->overflowed += finite[i] && !isfinite(result[i]);
        if (!isfinite(result[i])) continue;
        counts->energy += mean * mean;
        counts->error += off * off;
        counts->along += off * mean;
    }
}
