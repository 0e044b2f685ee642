/* Always-on statistics of weights: the trained weights at one point in time, and the distance of the averaged
 * weights from them. */
#ifndef AB_BENCH_TRAIN_OBSERVE_WEIGHT_STATS_H
#define AB_BENCH_TRAIN_OBSERVE_WEIGHT_STATS_H

#include "bench/train/memory/memory.h"
#include "bench/train/observe/always_on_stats.h"

AB_BEGIN_DECLS

/* Statistics of the current trained weights (masters if there are any) against the range of `half` (NULL:
 * fp16). Errors: AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_weight_stats_take(const ab_cell_memory *memory, const ab_format *half,
                                             ab_always_on_weights *weights);

/* Compares the current averaged weights with the trained ones; `decay` is that of the average. Errors:
 * AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_weight_stats_take_average(const ab_cell_memory *memory, double decay,
                                                     ab_always_on_average *average);

AB_END_DECLS

#endif
