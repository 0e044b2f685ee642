/* Batch norms whose statistics are those of all ranks (--sync-bn): simulated ranks run their passes beside
 * each other, each with activations and gradients of its own; processes exchange the statistics. */
#ifndef AB_BENCH_TRAIN_CELL_SYNC_H
#define AB_BENCH_TRAIN_CELL_SYNC_H

#include "bench/train/memory/memory.h"
#include "bench/train/ranks/rank_turns.h"
#include "bench/train/recipe.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

struct ab_cell;

/* Of a cell whose other parts exist; nothing without the recipe's sync_bn. AB_NO_MEMORY. ab_sync_fini frees
 * it, also after an error. */
AB_MUST_CHECK ab_status ab_sync_init(struct ab_cell *cell);
void ab_sync_fini(struct ab_cell *cell);

/* What training batch norms are to use; NULL: nothing is synchronised. */
const ab_norm_sync *ab_sync_norm(const struct ab_cell *cell);

/* Whether simulated ranks run by ab_sync_run. */
bool ab_sync_is_simulated(const struct ab_cell *cell);

/* Bytes that ab_sync_init adds to a category. workspace: bytes of one. */
int64_t ab_sync_bytes(const ab_plan *plan, const ab_rank_recipe *ranks, ab_mem_category category,
                      int64_t workspace);

/* Runs run(context, rank) for every simulated rank, beside each other. cell->position.rank, the places of the
 * tensors and the workspace are those of the rank that runs, afterwards those of rank 0. */
AB_MUST_CHECK ab_status ab_sync_run(struct ab_cell *cell, ab_status (*run)(void *context, int rank),
                                    void *context);

AB_END_DECLS

#endif
