/* Computes gradients from batches: forward and backward over every micro-batch of a step, then unscaling. */
#ifndef AB_BENCH_TRAIN_CELL_STEP_H
#define AB_BENCH_TRAIN_CELL_STEP_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

/* Runs the batches of the next step and sums the scaled gradients; if losses have their own scales, the
 * unscaled ones. `noted`: the batches are counted in the always-on statistics. *loss: unscaled, mean over
 * micro-batches; *overflows: bit k: a gradient scaled by scaler k was non-finite. */
AB_MUST_CHECK ab_status ab_gradient_pass_batches(ab_cell *cell, bool noted, float *loss, unsigned *overflows);

/* The same, then unscales: writes the loss, the overflows and, with a fault, the norm of `result`.
 * *nonfinite: a scaled gradient was non-finite, as far as gradients were checked. A replayed step is not
 * counted. */
AB_MUST_CHECK ab_status ab_gradient_pass(ab_cell *cell, ab_step_result *result, bool *nonfinite);

/* Replays the current step so that it can be observed. */

/* Replays a non-finite step (`nonfinite`, or its loss) if the watch requests it, and sets result->replayed.
 * Gradients and result keep the same bits. Errors: AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_replay_if_requested(ab_cell *cell, bool nonfinite, ab_step_result *result);

AB_END_DECLS

#endif
