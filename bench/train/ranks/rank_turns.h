/* Simulated ranks that need numbers of each other in the middle of a pass: each runs on a stack of its own,
 * one at a time, in the order of the ranks; one that waits for the others lets the next one go on.
 * Single-threaded. */
#ifndef AB_BENCH_TRAIN_RANKS_RANK_TURNS_H
#define AB_BENCH_TRAIN_RANKS_RANK_TURNS_H

#include "kernels/core/status.h"

#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_rank_turns ab_rank_turns;

/* What the ranks do. Both are called with `context`. */
typedef struct ab_rank_play {
    ab_status (*run)(void *context, int rank);
    void (*enter)(void *context, int rank); /* before a rank begins or goes on */
    void *context;
} ab_rank_play;

/* Stacks for `ranks` ranks. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_rank_turns_create(int ranks, ab_rank_turns **turns);
void ab_rank_turns_destroy(ab_rank_turns *turns); /* NULL is a no-op */

/* Runs all ranks to their end; `enter` is called for rank 0 at last. Returns the failure of the first one
 * that failed. */
AB_MUST_CHECK ab_status ab_rank_turns_run(ab_rank_turns *turns, const ab_rank_play *play);

/* Within run: n floats of every rank, all[rank][n], valid until the rank's next call. All ranks call it
 * equally often. Fails if another rank failed. */
AB_MUST_CHECK ab_status ab_rank_turns_gather(ab_rank_turns *turns, const float *own, int64_t n,
                                             const float **all);

AB_END_DECLS

#endif
