/* What the reduction of simulated ranks does to gradients, counted at probed steps: each element's mean over
 * the ranks in double beside what the reduction made of it. */
#ifndef AB_BENCH_TRAIN_RANKS_REDUCTION_COUNTS_H
#define AB_BENCH_TRAIN_RANKS_REDUCTION_COUNTS_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* Of one gradient, over the counted steps. */
typedef struct ab_reduction_counts {
    int64_t sent, sent_flushed,
        sent_overflowed;                /* contributions that were not 0; that became 0, NaN or inf when
                                           they were divided and put into the format of the wire */
    int64_t means, flushed, overflowed; /* means that are not 0; that became 0; that became NaN or inf
                                           from contributions that were finite */
    double energy, error, along; /* sums over elements: mean^2, (result - mean)^2, (result - mean) mean */
} ab_reduction_counts;

/* Adds n contributions before and after division and rounding, and the former to the sums[n]. */
void ab_reduction_count_sent(ab_reduction_counts *counts, const float *before, const float *after,
                             double *sums, int64_t n);

/* Adds n results beside the sums of `ranks` contributions; finite[n]: whether all were finite as sent. */
void ab_reduction_count_results(ab_reduction_counts *counts, const float *result, const double *sums,
                                const bool *finite, int64_t ranks, int64_t n);

AB_END_DECLS

#endif
