/* Rank order: rank 0's contribution, plus rank 1's, plus rank 2's; every element in the same order. */
#include "kernels/collective/collective.h"
#include "kernels/collective/fold.h"

static void reduce(const ab_reduction *reduction, const ab_reduce_block *block) {
    ab_fold_cycle(reduction->wire, block->sum, block->row, block->ranks, 0, block->n);
}

const ab_collective ab_collective_rank_order = {
    .name = "rank-order", .text = "ranks 0, 1, 2, ... in turn, rounded at every hop", .reduce = reduce};
