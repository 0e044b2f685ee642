/* Always-on statistics of weights: the trained ones at one moment, and how far averaged ones are from
 * them. */
#ifndef AB_BENCH_TRAIN_OBSERVE_WEIGHT_STATS_H
#define AB_BENCH_TRAIN_OBSERVE_WEIGHT_STATS_H

#include "bench/train/memory/memory.h"
#include "bench/train/observe/always_on_stats.h"

AB_BEGIN_DECLS

/* The trained weights as they are now (masters where there are any), against the range of `half` (NULL:
 * fp16). AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_weight_stats_take(const ab_cell_memory *memory, const ab_format *half,
                                             ab_always_on_weights *weights);

/* The averaged weights as they are now beside the trained ones; `decay` is the average's. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_weight_stats_take_average(const ab_cell_memory *memory, double decay,
                                                     ab_always_on_average *average);

AB_END_DECLS

#endif
