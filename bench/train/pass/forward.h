/* The forward pass: half copies of the weights where they are out of date, then every op and cast in
 * order. */
#ifndef AB_BENCH_TRAIN_PASS_FORWARD_H
#define AB_BENCH_TRAIN_PASS_FORWARD_H

#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

/* Runs it over the batch that is in the input tensors. Errors name the op. */
AB_MUST_CHECK ab_status ab_forward(ab_walk *walk);

/* The weighted sum of the losses, unscaled; a loss that is not a number is always the same NaN. */
AB_MUST_CHECK ab_status ab_forward_loss(const ab_walk *walk, float *loss);

AB_END_DECLS

#endif
