/* The trained parameters' gradients between the backward pass and the optimizer: summed over micro-batches,
 * unscaled with the finite check, clipped, measured. Decides nothing: whether a step is skipped is the
 * scaler's matter. */
#ifndef AB_BENCH_TRAIN_UPDATE_GRADIENTS_H
#define AB_BENCH_TRAIN_UPDATE_GRADIENTS_H

#include "bench/amp/scaler/scaler.h"
#include "bench/train/memory/memory.h"
#include "bench/train/memory/params.h"
#include "bench/train/observe/observation.h"
#include "bench/train/optim/clip.h"
#include "bench/train/pass/layer_scales.h"
#include "bench/train/pass/position.h"

AB_BEGIN_DECLS

typedef struct ab_gradients {
    const ab_cell_memory *memory;      /* borrowed, as are the next three */
    const ab_observation *observation; /* is shown unscaled gradients */
    const ab_trained_params *trained;
    const ab_step_position *position;
    ab_unscale_item *item; /* [trained->count]: from the scaled gradient to the unscaled one; owned */
    ab_tensor **clipped;   /* [trained->count]: room for a list; owned */
    bool masters;          /* some weight has one */
} ab_gradients;

/* `gradients` must be all zero. AB_NO_MEMORY. ab_gradients_fini frees it, also after an error. */
AB_MUST_CHECK ab_status ab_gradients_init(ab_gradients *gradients, const ab_cell_memory *memory,
                                          const ab_observation *observation, const ab_trained_params *trained,
                                          const ab_step_position *position);
void ab_gradients_fini(ab_gradients *gradients);

/* Functions that follow take how ops run (`exec`, with the step's observer) and the scaler in force. */

/* After a micro-batch's backward pass: adds what is summed elsewhere than where it was made. */
AB_MUST_CHECK ab_status ab_gradients_sum(const ab_gradients *gradients, const ab_exec *exec);

/* A fault (AB_FAULT_unscale_each_micro_batch): unscales the sums before the last micro-batch. */
AB_MUST_CHECK ab_status ab_gradients_unscale_sums(const ab_gradients *gradients, const ab_exec *exec,
                                                  const ab_scaler *scaler);

/* After the last backward pass: unscales every gradient; *nonfinite: a scaled one was not finite; *overflow:
 * and the scaler looks at that. Where gradients are left alone (a fixed scale of 1 without masters) only the
 * small ones are looked at, and only if the watch may ask for a replay of the step: *nonfinite is a hint
 * then. `layers`: their own scales, or NULL. */
AB_MUST_CHECK ab_status ab_gradients_unscale(ab_gradients *gradients, const ab_exec *exec,
                                             const ab_scaler *scaler, const ab_layer_scales *layers,
                                             bool *nonfinite, bool *overflow);

/* Losses with their own scales: after the backward pass of loss position->loss_id its gradients are unscaled
 * and added to those of the passes before. */
AB_MUST_CHECK ab_status ab_gradients_unscale_loss(ab_gradients *gradients, const ab_exec *exec,
                                                  const ab_scaler *scaler, bool *overflow);

/* Multiplies the unscaled gradients by a factor; nobody sees it (`exec` without observer). */
AB_MUST_CHECK ab_status ab_gradients_rescale(const ab_gradients *gradients, const ab_exec *unobserved,
                                             double factor);

/* Clips the gradients as they are now: those that are still scaled, or those that were unscaled. *norm:
 * before, of all; 0 without clipping by norm. */
AB_MUST_CHECK ab_status ab_gradients_clip(const ab_gradients *gradients, const ab_clip_config *clip,
                                          bool scaled, double *norm);

/* For scalers that follow the size of the gradients: the largest magnitude of the unscaled ones, and how many
 * elements lie above the scaler's edge (a share of fp16's largest number) when scaled. Before clipping.
 * AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_gradients_measure(const ab_gradients *gradients, const ab_scaler *scaler,
                                             ab_scaler_seen *seen);

AB_END_DECLS

#endif
