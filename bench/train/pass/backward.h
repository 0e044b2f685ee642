/* The backward pass: from loss gradients to the scaled gradients of weights and activations. */
#ifndef AB_BENCH_TRAIN_PASS_BACKWARD_H
#define AB_BENCH_TRAIN_PASS_BACKWARD_H

#include "bench/train/pass/layer_scales.h"
#include "bench/train/pass/position.h"
#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

/* Whether losses have their own scales, so that there is a backward pass for each (apex's num_losses). */
static inline bool ab_backward_by_loss(const ab_plan *plan) { return plan->scalers > 1; }

/* Writes the losses' gradients: `scale` times `share` times the weight of a loss; 0 for losses that another
 * backward pass than position->loss_id is for. */
AB_MUST_CHECK ab_status ab_backward_start(const ab_walk *walk, const ab_step_position *position, double scale,
                                          double share);

/* Runs it, from loss gradients that are there. Weights' gradients of later micro-batches are added to those
 * before, unless masters' gradients take them over or each loss has its own pass. `layers`: their own scales,
 * or NULL. Errors name the op. */
AB_MUST_CHECK ab_status ab_backward(const ab_walk *walk, const ab_step_position *position,
                                    ab_layer_scales *layers);

AB_END_DECLS

#endif
