/* Running statistics (batch norm's) set aside and restored, so that a training step can be run without
 * changing the cell. */
#ifndef AB_BENCH_TRAIN_MEMORY_RUNNING_STATS_H
#define AB_BENCH_TRAIN_MEMORY_RUNNING_STATS_H

#include "bench/train/memory/memory.h"

AB_BEGIN_DECLS

/* Copies all of them, as they are stored, to memory that the caller frees. AB_NO_MEMORY; *copy is NULL after
 * an error. */
AB_MUST_CHECK ab_status ab_running_stats_keep(const ab_cell_memory *memory, void **copy);

/* Puts a copy back. */
AB_MUST_CHECK ab_status ab_running_stats_restore(const ab_cell_memory *memory, const void *copy);

AB_END_DECLS

#endif
