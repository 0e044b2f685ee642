/* Per-layer scales in the backward pass (AdaLoss, bench/amp/scaler/scaler_adaloss.c), following the layers of
 * the original (kumasento/gradient-scaling, ada_loss/chainer_impl).
 *
 * The chain of a gradient is the product of the scales applied to it so far; at a loss it is 1. A layer
 * (conv2d, linear) computes its weight gradients from the incoming gradient, gets a scale from its scaler,
 * multiplies the incoming gradient by it and computes its input gradient from the product. Other ops
 * propagate the chain unchanged. Gradients with different chains are rescaled to one chain before they are
 * added. Weight gradients are divided by their chain when they are unscaled: in fp32 if the optimizer's
 * weights are fp32, whereas the original rounds the quotient to half. Gradients in fp32 are not scaled. */
#ifndef AB_BENCH_TRAIN_PASS_LAYER_SCALES_H
#define AB_BENCH_TRAIN_PASS_LAYER_SCALES_H

#include "bench/amp/scaler/scaler.h"
#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

typedef struct ab_layer_scales ab_layer_scales;

/* *layers is NULL if the scaler is of another kind, else owned by the caller. `settings` are copied; memory
 * and position (for messages) are borrowed. AB_CONFIG for networks that the original has no rule for. */
AB_MUST_CHECK ab_status ab_layer_scales_create(const ab_cell_memory *memory, const ab_step_position *position,
                                               const ab_scaler_config *settings, ab_layer_scales **layers);
void ab_layer_scales_destroy(ab_layer_scales *layers); /* NULL is a no-op */

/* Call before a backward pass; in a replay it restores the scales from before the step. NULL is a no-op. */
void ab_layer_scales_begin(ab_layer_scales *layers, bool is_replay);

/* Runs instead of the backward function of node `node`'s op. AB_CONFIG where the original raises an
 * exception. */
AB_MUST_CHECK ab_status ab_layer_scales_backward(ab_layer_scales *layers, const ab_walk *walk, int node,
                                                 const ab_exec *exec);

/* Records that gradient `to` is a cast of gradient `from`. NULL is a no-op. */
void ab_layer_scales_cast(ab_layer_scales *layers, int to, int from);

/* Rescales two gradients to a common chain before they are added. NULL is a no-op. AB_CONFIG if there is no
 * common chain. */
AB_MUST_CHECK ab_status ab_layer_scales_align(ab_layer_scales *layers, const ab_walk *walk, int to, int from);

/* Divisor of the gradient of parameter `param` of the plan. */
double ab_layer_scales_of_param(const ab_layer_scales *layers, int param);

/* Number of layers, in forward order (0 for NULL); their names, borrowed from the net; their scalers; their
 * scales in the last step (NULL for NULL). */
int ab_layer_scales_count(const ab_layer_scales *layers);
const char *ab_layer_scales_name(const ab_layer_scales *layers, int i);
ab_scaler *ab_layer_scales_scaler(ab_layer_scales *layers, int i);
const double *ab_layer_scales_values(const ab_layer_scales *layers);

AB_END_DECLS

#endif
