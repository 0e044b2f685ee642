/* Tree: neighbours add in pairs, then pairs of pairs: log2(N) roundings instead of N - 1. A binary counter of
 * finished subtrees needs one array for each level. NCCL's double binary tree assigns ranks otherwise but
 * has the same depth. */
#include "kernels/collective/collective.h"
#include "kernels/collective/fold.h"

#include <string.h>

static int64_t arrays(int64_t ranks) {
    int64_t levels = 1;
    while (ranks >>= 1) levels++;
    return levels;
}

static void reduce(const ab_reduction *reduction, const ab_reduce_block *block) {
    int64_t n = block->n, depth = 0, weight[64];
    for (int64_t r = 0; r < block->ranks; r++) {
        float *top = block->scratch + depth * n;
        memcpy(top, block->row[r], (size_t)n * sizeof *top);
        weight[depth++] = 1;
        while (depth > 1 && (weight[depth - 1] == weight[depth - 2] || r == block->ranks - 1)) {
            const float *right = block->scratch + (depth - 1) * n;
            ab_fold_rows(reduction->wire, block->scratch + (depth - 2) * n, &right, 1, n);
            depth--;
            weight[depth - 1] += weight[depth];
        }
    }
    memcpy(block->sum, block->scratch, (size_t)n * sizeof *block->sum);
}

const ab_collective ab_collective_tree = {.name = "tree",
                                          .text = "neighbours add in pairs, then pairs of pairs",
                                          .arrays = arrays,
                                          .reduce = reduce};
