/* The forward pass: updates outdated half copies of the weights, then runs every op and cast in order. */
#ifndef AB_BENCH_TRAIN_PASS_FORWARD_H
#define AB_BENCH_TRAIN_PASS_FORWARD_H

#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

/* Runs the forward pass on the batch in the input tensors. Errors name the op. */
AB_MUST_CHECK ab_status ab_forward(ab_walk *walk);

/* The weighted sum of the losses, unscaled; a NaN loss always has the same bits. */
AB_MUST_CHECK ab_status ab_forward_loss(const ab_walk *walk, float *loss);

AB_END_DECLS

#endif
