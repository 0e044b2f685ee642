/* Ring: a chunk starts at one rank and travels round all others; each adds its own and rounds.
 * Reduce-scatter, and all-reduce by reduce-scatter and all-gather, give the same sums. */
#include "kernels/collective/collective.h"
#include "kernels/collective/fold.h"

static void reduce(const ab_reduction *reduction, const ab_reduce_block *block) {
    ab_fold_cycle(reduction->wire, block->sum, block->row, block->ranks, block->start, block->n);
}

const ab_collective ab_collective_ring = {.name = "ring",
                                          .text =
                                              "each chunk travels once round all ranks, rounded at every hop",
                                          .reduce = reduce};
