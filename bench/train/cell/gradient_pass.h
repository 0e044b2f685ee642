/* From batches to gradients: forward and backward over every micro-batch of a step, then unscaling. */
#ifndef AB_BENCH_TRAIN_CELL_GRADIENT_PASS_H
#define AB_BENCH_TRAIN_CELL_GRADIENT_PASS_H

#include "bench/train/cell/cell.h"

AB_BEGIN_DECLS

/* The batches of the next step: scaled gradients, summed; of losses with their own scales, unscaled ones.
 * `noted`: always-on statistics see the batches. *loss: unscaled, the mean over micro-batches; *overflows:
 * bit k: with scaler k a scaled gradient was not finite. */
AB_MUST_CHECK ab_status ab_gradient_pass_batches(ab_cell *cell, bool noted, float *loss, unsigned *overflows);

/* The same, and unscaled: writes the loss, the overflows and, with a fault, the norm of `result`. *nonfinite:
 * a scaled gradient was not finite, as far as anybody looks. A replayed step is not noted. */
AB_MUST_CHECK ab_status ab_gradient_pass(ab_cell *cell, ab_step_result *result, bool *nonfinite);

AB_END_DECLS

#endif
