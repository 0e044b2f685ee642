/* Activation recomputation (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): a block that
 * keeps no activations makes them anew before its backward pass. */
#ifndef AB_BENCH_TRAIN_PASS_RECOMPUTE_H
#define AB_BENCH_TRAIN_PASS_RECOMPUTE_H

#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

/* Recomputes what the backward passes of the block whose last node is `last` read, bit for bit. Nobody sees
 * it, and running statistics stay as they are. Errors name the op. */
AB_MUST_CHECK ab_status ab_recompute_block(const ab_walk *walk, int last);

AB_END_DECLS

#endif
