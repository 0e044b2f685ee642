/* Exact: contributions unrounded, added in double, rounded once to the wire format. What the format alone
 * costs; no library does this. Double adds N fp32 values with an error of at most N 2^-53 of their sizes. */
#include "kernels/collective/collective.h"
#include "kernels/format/convert.h"

static void reduce(const ab_reduction *reduction, const ab_reduce_block *block) {
    for (int64_t i = 0; i < block->n; i++) {
        double sum = 0;
        for (int64_t r = 0; r < block->ranks; r++) sum += (double)block->row[r][i];
        block->sum[i] = (float)sum;
    }
    ab_round_array(block->sum, reduction->wire, &(ab_rounding){.mode = AB_ROUND_NEAREST_EVEN}, block->n);
}

const ab_collective ab_collective_exact = {.name = "exact",
                                           .text = "added in double, rounded once: no order, no hops",
                                           .sums_wide = true,
                                           .reduce = reduce};
