/* Saves and restores running statistics (batch norm), so that a training step can run without changing the
 * cell. */
#ifndef AB_BENCH_TRAIN_MEMORY_RUNNING_STATS_H
#define AB_BENCH_TRAIN_MEMORY_RUNNING_STATS_H

#include "bench/train/memory/memory.h"

AB_BEGIN_DECLS

/* Copies all of them in their storage format to memory that the caller frees. AB_NO_MEMORY; *copy is NULL
 * after an error. */
AB_MUST_CHECK ab_status ab_running_stats_keep(const ab_cell_memory *memory, void **copy);

/* Restores a copy. */
AB_MUST_CHECK ab_status ab_running_stats_restore(const ab_cell_memory *memory, const void *copy);

AB_END_DECLS

#endif
