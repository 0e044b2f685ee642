/* Injects data faults into a batch that was written correctly. Depends on seed and sample only. */
#ifndef AB_BENCH_TRAIN_INJECT_DATA_FAULT_H
#define AB_BENCH_TRAIN_INJECT_DATA_FAULT_H

#include "bench/data/data.h"

AB_BEGIN_DECLS

/* Modifies n samples of `each` inputs in place according to `faults` (fault.h: AB_FAULTS_OF_DATA). Token ids
 * cannot be NaN. */
void ab_inject_data_fault(unsigned faults, const ab_data *data, uint64_t seed, const int64_t *index,
                          int64_t n, int64_t each, void *samples, void *targets);

AB_END_DECLS

#endif
