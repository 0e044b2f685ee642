/* Scales of single layers (AdaLoss, bench/amp/scaler/scaler_adaloss.c) while a gradient goes back: how the
 * original's layers do it (kumasento/gradient-scaling, ada_loss/chainer_impl), walked over a plan.
 *
 * A gradient carries the product of the scales it has met, its chain; at a loss it is 1. A layer (conv2d,
 * linear) makes its weights' gradients from what comes, asks its machine for a scale, multiplies what comes
 * by it and makes its input's gradient from that. Other ops hand the chain on. Where gradients of two chains
 * are added they are brought to one of them first. Weights' gradients are divided by their chain when they
 * are unscaled: in fp32 where the optimizer's weights are, where the original rounds the quotient to half.
 * Gradients in fp32 need no scale and get none. */
#ifndef AB_BENCH_TRAIN_PASS_LAYER_SCALES_H
#define AB_BENCH_TRAIN_PASS_LAYER_SCALES_H

#include "bench/amp/scaler/scaler.h"
#include "bench/train/pass/position.h"
#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

typedef struct ab_layer_scales ab_layer_scales;

/* *layers becomes NULL where the scaler is of another kind. `settings` are copied; memory and position (for
 * messages) are borrowed. AB_CONFIG for networks that the original has no rule for. */
AB_MUST_CHECK ab_status ab_layer_scales_create(const ab_cell_memory *memory, const ab_step_position *position,
                                               const ab_scaler_config *settings, ab_layer_scales **layers);
void ab_layer_scales_destroy(ab_layer_scales *layers); /* NULL is a no-op */

/* Before a backward pass; of a step that is replayed it starts from the scales that the step started from.
 * NULL is a no-op. */
void ab_layer_scales_begin(ab_layer_scales *layers, bool is_replay);

/* In place of the backward of node `node`'s op. AB_CONFIG where the original raises. */
AB_MUST_CHECK ab_status ab_layer_scales_backward(ab_layer_scales *layers, const ab_walk *walk, int node,
                                                 const ab_exec *exec);

/* Gradient `to` is a cast of gradient `from`. NULL is a no-op. */
void ab_layer_scales_cast(ab_layer_scales *layers, int to, int from);

/* Brings two gradients to one chain, before they are added. NULL is a no-op. AB_CONFIG if there is none. */
AB_MUST_CHECK ab_status ab_layer_scales_meet(ab_layer_scales *layers, const ab_walk *walk, int to, int from);

/* What the gradient of parameter `param` of the plan is to be divided by. */
double ab_layer_scales_of_param(const ab_layer_scales *layers, int param);

/* Layers, in the order of the forward pass (0 for NULL); their names, borrowed from the net; their scalers;
 * their scales in the last step (NULL for NULL). */
int ab_layer_scales_count(const ab_layer_scales *layers);
const char *ab_layer_scales_name(const ab_layer_scales *layers, int i);
ab_scaler *ab_layer_scales_scaler(ab_layer_scales *layers, int i);
const double *ab_layer_scales_values(const ab_layer_scales *layers);

AB_END_DECLS

#endif
