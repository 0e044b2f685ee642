/* The backward pass: computes the scaled gradients of weights and activations from the loss gradients. */
#ifndef AB_BENCH_TRAIN_PASS_BACKWARD_H
#define AB_BENCH_TRAIN_PASS_BACKWARD_H

#include "bench/train/pass/layer_scales.h"
#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

/* Whether losses have their own scales, and hence one backward pass each (apex's num_losses). */
static inline bool ab_backward_by_loss(const ab_plan *plan) { return plan->scalers > 1; }

/* Writes the loss gradients: scale * share * weight of the loss; 0 for losses of other backward passes than
 * position->loss_id. */
AB_MUST_CHECK ab_status ab_backward_start(const ab_walk *walk, const ab_step_position *position, double scale,
                                          double share);

/* Runs the backward pass from the loss gradients. Weight gradients of later micro-batches accumulate, unless
 * they are summed into the masters' gradients or each loss has its own pass. `layers`: per-layer scales, or
 * NULL. Errors name the op. */
AB_MUST_CHECK ab_status ab_backward(const ab_walk *walk, const ab_step_position *position,
                                    ab_layer_scales *layers);

/* Activation recomputation (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): a block that
 * keeps no activations recomputes them before its backward pass. */

/* Recomputes, bit for bit, the tensors that the backward passes of the block ending at node `last` read.
 * Observers are not called; running statistics do not change. Errors name the op. */
AB_MUST_CHECK ab_status ab_recompute_block(const ab_walk *walk, int last);

AB_END_DECLS

#endif
