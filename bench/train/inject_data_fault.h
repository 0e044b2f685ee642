/* Faults of data, made on purpose: what is wrong with a batch after it was written rightly. A function of
 * seed and sample alone. */
#ifndef AB_BENCH_TRAIN_INJECT_DATA_FAULT_H
#define AB_BENCH_TRAIN_INJECT_DATA_FAULT_H

#include "bench/data/data.h"

AB_BEGIN_DECLS

/* Spoils n samples of `each` inputs in place as `faults` says (fault.h: AB_FAULTS_OF_DATA). Token ids have no
 * NaN. */
void ab_inject_data_fault(unsigned faults, const ab_data *data, uint64_t seed, const int64_t *index,
                          int64_t n, int64_t each, void *samples, void *targets);

AB_END_DECLS

#endif
