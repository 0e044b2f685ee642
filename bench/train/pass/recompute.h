/* Activation recomputation (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): a block that
 * keeps no activations recomputes them before its backward pass. */
#ifndef AB_BENCH_TRAIN_PASS_RECOMPUTE_H
#define AB_BENCH_TRAIN_PASS_RECOMPUTE_H

#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

/* Recomputes, bit for bit, the tensors that the backward passes of the block ending at node `last` read.
 * Observers are not called; running statistics do not change. Errors name the op. */
AB_MUST_CHECK ab_status ab_recompute_block(const ab_walk *walk, int last);

AB_END_DECLS

#endif
