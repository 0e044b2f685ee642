/* The gradients of the trained parameters between the backward pass and the optimizer: summed over
 * micro-batches, unscaled with the finite check, clipped, measured. The scaler decides whether a step is
 * skipped. */
#ifndef AB_BENCH_TRAIN_UPDATE_GRADIENTS_H
#define AB_BENCH_TRAIN_UPDATE_GRADIENTS_H

#include "bench/amp/scaler/scaler.h"
#include "bench/train/memory/memory.h"
#include "bench/train/observe/observation.h"
#include "bench/train/optim/clip.h"
#include "bench/train/pass/layer_scales.h"
#include "bench/train/pass/walk.h"

AB_BEGIN_DECLS

typedef struct ab_gradients {
    const ab_cell_memory *memory;      /* borrowed, as are the next three */
    const ab_observation *observation; /* is called with unscaled gradients */
    const ab_trained_params *trained;
    const ab_step_position *position;
    ab_unscale_item *item; /* [trained->count]: scaled and unscaled gradient; owned */
    float *waiting;   /* [trained->count]: factor that the update still has to apply to `from`, or to what was
                         made; 0: none; owned */
    ab_tensor **made; /* [trained->count]: the half tensor that the backward pass makes, which is only cast to
                         the fp32 gradient; NULL: none; owned */
    void **place;     /* [trained->count]: memory of `made`; owned */
    bool keeps_made;  /* in this pass: `made` is in the memory of the gradient, and not cast */
    ab_tensor **clipped; /* [trained->count]: scratch list; owned */
    bool masters;        /* some weight has a master */
} ab_gradients;

/* `gradients` must be all zero. Errors: AB_NO_MEMORY. ab_gradients_fini frees it, also after an error. */
AB_MUST_CHECK ab_status ab_gradients_init(ab_gradients *gradients, const ab_cell_memory *memory,
                                          const ab_observation *observation, const ab_trained_params *trained,
                                          const ab_step_position *position);
void ab_gradients_fini(ab_gradients *gradients);

/* The following functions take the execution settings (`exec`, with the step's observer) and the current
 * scaler. */

/* Call after a micro-batch's backward pass: adds gradients to sums that are kept in other tensors. */
AB_MUST_CHECK ab_status ab_gradients_sum(const ab_gradients *gradients, const ab_exec *exec);

/* Whether a parameter's gradient is complete when the step's last backward pass has left its ops. */
bool ab_gradients_end_with_backward(const ab_gradients *gradients);

/* A fault (AB_FAULT_unscale_each_micro_batch): unscales the sums before the last micro-batch. */
AB_MUST_CHECK ab_status ab_gradients_unscale_sums(const ab_gradients *gradients, const ab_exec *exec,
                                                  const ab_scaler *scaler);

/* Call after the last backward pass: unscales every gradient. *nonfinite: a scaled gradient was non-finite;
 * *overflow: and the scaler checks for that. With `leave` fp32 gradients are only checked, and wait for the
 * update to unscale them while it reads them. If gradients need no unscaling (a fixed scale of 1 without
 * masters), small ones and a part of each row of large ones are checked, and only if the watch may request a
 * replay; *nonfinite is a hint then. `layers`: per-layer scales, or NULL. */
AB_MUST_CHECK ab_status ab_gradients_unscale(ab_gradients *gradients, const ab_exec *exec,
                                             const ab_scaler *scaler, const ab_layer_scales *layers,
                                             bool leave, bool *nonfinite, bool *overflow);

/* Whether gradients may wait for the update to unscale them, which the scaler decides: not if they are not
 * unscaled at all. */
bool ab_gradients_can_wait(const ab_gradients *gradients, const ab_scaler *scaler);

/* Forgets what is waiting: a new pass overwrites the gradients. keep_made: gradients will wait, and those
 * that the pass makes in half stay so, in the memory of their fp32 tensors, where the backward pass then
 * writes them. */
void ab_gradients_begin(ab_gradients *gradients, bool keep_made);

/* Unscales what is waiting; for readers of unscaled gradients. Observers are not called. */
AB_MUST_CHECK ab_status ab_gradients_settle(const ab_gradients *gradients);

/* What the update reads: the unscaled gradient of trained parameter i as a tensor times *factor, rounded to
 * fp32: without unscaling what is waiting. */
const ab_tensor *ab_gradients_left(const ab_gradients *gradients, int i, float *factor);

/* Losses with their own scales: after the backward pass of loss position->loss_id its gradients are unscaled
 * and added to those of earlier passes. */
AB_MUST_CHECK ab_status ab_gradients_unscale_loss(ab_gradients *gradients, const ab_exec *exec,
                                                  const ab_scaler *scaler, bool *overflow);

/* Multiplies the unscaled gradients by a factor; observers are not called (`exec` without observer). */
AB_MUST_CHECK ab_status ab_gradients_rescale(const ab_gradients *gradients, const ab_exec *unobserved,
                                             double factor);

/* Clips the scaled gradients (`scaled`) or the unscaled ones. *norm: of all gradients before clipping; 0
 * without clipping by norm. */
AB_MUST_CHECK ab_status ab_gradients_clip(const ab_gradients *gradients, const ab_clip_config *clip,
                                          bool scaled, double *norm);

/* For scalers that use gradient magnitudes: the largest magnitude of the unscaled gradients, and the number
 * of elements above the scaler's edge (a fraction of fp16's maximum) when scaled. Call before clipping.
 * Errors: AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_gradients_measure(const ab_gradients *gradients, const ab_scaler *scaler,
                                             ab_scaler_seen *seen);

AB_END_DECLS

#endif
