/* All-to-all: every rank gets all contributions to its part, in the wire format, adds them in fp32 and rounds
 * the sum once (Megatron's reduce_scatter_with_fp32_accumulation). */
#include "kernels/collective/collective.h"
#include "kernels/collective/fold.h"
#include "kernels/format/convert.h"

static void reduce(const ab_reduction *reduction, const ab_reduce_block *block) {
    ab_fold_cycle(&ab_format_fp32, block->sum, block->row, block->ranks, 0, block->n);
    ab_round_array(block->sum, reduction->wire, &(ab_rounding){.mode = AB_ROUND_NEAREST_EVEN}, block->n);
}

const ab_collective ab_collective_alltoall = {
    .name = "alltoall", .text = "contributions are exchanged, added in fp32, rounded once", .reduce = reduce};
