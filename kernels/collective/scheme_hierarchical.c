/* Hierarchical: a ring inside each group of consecutive ranks (a machine), then a ring over the groups' sums.
 * The last group may be smaller. */
#include "kernels/collective/collective.h"
#include "kernels/collective/fold.h"

#include <string.h>

static int64_t arrays(int64_t ranks) {
    (void)ranks;
    return 1;
}

/* The sum of the group that begins at rank `first`, into sum[n]. */
static void reduce_group(const ab_reduction *reduction, const ab_reduce_block *block, int64_t first,
                         float *sum) {
    int64_t left = block->ranks - first, ranks = left < reduction->group ? left : reduction->group;
    ab_fold_cycle(reduction->wire, sum, block->row + first, ranks, block->start % ranks, block->n);
}

static void reduce(const ab_reduction *reduction, const ab_reduce_block *block) {
    int64_t groups = (block->ranks + reduction->group - 1) / reduction->group,
            start = block->start / reduction->group;
    const float *group = block->scratch;
    reduce_group(reduction, block, start * reduction->group, block->sum);
    for (int64_t g = 1; g < groups; g++) {
        reduce_group(reduction, block, (start + g) % groups * reduction->group, block->scratch);
        ab_fold_rows(reduction->wire, block->sum, &group, 1, block->n);
    }
}

const ab_collective ab_collective_hierarchical = {.name = "hierarchical",
                                                  .text = "rings of G ranks, then a ring of their sums",
                                                  .groups = true,
                                                  .arrays = arrays,
                                                  .reduce = reduce};
