/* The forward pass: updates outdated half copies of the weights, then runs every op and cast in order. */
#ifndef AB_BENCH_TRAIN_PASS_FORWARD_H
#define AB_BENCH_TRAIN_PASS_FORWARD_H

#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

/* Runs the forward pass on the batch in the input tensors. Errors name the op. */
AB_MUST_CHECK ab_status ab_forward(ab_walk *walk);

/* The same in parts: what comes before the first node, and node `n` alone, an op or a cast. */
AB_MUST_CHECK ab_status ab_forward_start(ab_walk *walk);
AB_MUST_CHECK ab_status ab_forward_node(ab_walk *walk, int n);

/* The weighted sum of the losses, unscaled; a NaN loss always has the same bits. */
AB_MUST_CHECK ab_status ab_forward_loss(const ab_walk *walk, float *loss);

AB_END_DECLS

#endif
