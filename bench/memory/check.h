/* Refuses a training that cannot fit into memory before it starts. The policy: only what is certain is
 * refused. A cell writes every tensor of its plan, so it cannot run if the plan's tensors alone need more
 * than is left; workspace, libraries and data come on top and are not compared. */
#ifndef AB_BENCH_MEMORY_CHECK_H
#define AB_BENCH_MEMORY_CHECK_H

#include "bench/memory/limits.h"
#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

/* The limit for tensors on a device: its free memory if it has memory of its own, else ab_memory_limit_find.
 */
void ab_memory_limit_of(const char *root, const ab_device *device, ab_memory_limit *limit);

/* Bytes of a plan's tensors. */
int64_t ab_memory_needed(const ab_plan *plan);

/* AB_NO_MEMORY if the tensors of `plan`, made from `config`, need more than `limit` leaves. The message has
 * both numbers, the limit and what to change. `id`: the cell's. */
AB_MUST_CHECK ab_status ab_memory_check(const ab_memory_limit *limit, const ab_cell_config *config,
                                        const ab_plan *plan, const char *id);

AB_END_DECLS

#endif
