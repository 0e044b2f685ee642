/* Known mistakes of training scripts that a run can make on purpose (--fault). The step loop tests the bit
 * where the mistake would occur; this file only defines names and texts. */
#ifndef AB_BENCH_TRAIN_FAULT_H
#define AB_BENCH_TRAIN_FAULT_H

#include "bench/data/data.h"
#include "kernels/core/status.h"

AB_BEGIN_DECLS

typedef enum ab_fault_number {
#define AB_FAULT(id, text) AB_FAULT_NUMBER_##id,
#include "bench/train/faults.def"
#undef AB_FAULT
    AB_FAULT_COUNT
} ab_fault_number;

/* Sets of faults. */
enum {
#define AB_FAULT(id, text) AB_FAULT_##id = 1 << AB_FAULT_NUMBER_##id,
#include "bench/train/faults.def"
#undef AB_FAULT
    AB_FAULT_NONE = 0
};

/* Faults that apply to resumed runs only. */
enum {
    AB_FAULTS_OF_RESUMING = AB_FAULT_resume_without_masters | AB_FAULT_resume_without_optimizer |
                            AB_FAULT_resume_without_batch_norm | AB_FAULT_resume_without_scaler |
                            AB_FAULT_resume_without_position | AB_FAULT_resume_without_schedule
};

/* Faults of the data. */
enum { AB_FAULTS_OF_DATA = AB_FAULT_nan_inputs | AB_FAULT_normalize_by_zero | AB_FAULT_shuffled_labels };

/* The rows of faults.def by number in [0, AB_FAULT_COUNT). */
const char *ab_fault_name(int number);
const char *ab_fault_text(int number);

/* Adds the fault `name` to the set; "none" clears the set; AB_USAGE suggests the nearest name. */
AB_MUST_CHECK ab_status ab_fault_add(const char *name, unsigned *set);

/* Injects data faults into a batch that was written correctly. Depends on seed and sample only. */

/* Modifies n samples of `each` inputs in place according to `faults` (fault.h: AB_FAULTS_OF_DATA). Token ids
 * cannot be NaN. */
void ab_inject_data_fault(unsigned faults, const ab_data *data, uint64_t seed, const int64_t *index,
                          int64_t n, int64_t each, void *samples, void *targets);

AB_END_DECLS

#endif
