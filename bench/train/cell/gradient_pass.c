/* The order of the passes within one batch and one step. */
#include "bench/train/cell/gradient_pass.h"

#include "bench/train/cell/parts.h"
#include "bench/train/pass/backward.h"
#include "bench/train/pass/forward.h"

#include <math.h>

/* Weight of one batch in the step's mean. */
static double batch_share(const ab_cell *cell) {
    const bool summed = cell->config.recipe.faults & AB_FAULT_accumulation_not_averaged;
    return summed ? 1.0 : 1.0 / (double)cell->position.micro_batches;
}

static ab_status backward(ab_cell *cell) {
    const double scale = cell->scalers.scaler[cell->position.loss_id].scale;
    AB_TRY(ab_backward_start(&cell->walk, &cell->position, scale, batch_share(cell)));
    return ab_backward(&cell->walk, &cell->position, cell->layers);
}

/* apex: with amp.scale_loss(loss[k], optimizer, loss_id=k) as scaled: scaled.backward(), in sequence. */
static ab_status backward_by_loss(ab_cell *cell, unsigned *overflows) {
    int *k = &cell->position.loss_id;
    for (*k = 0; *k < cell->scalers.count; ++*k) {
        const ab_exec exec = ab_walk_exec(&cell->walk);
        bool overflow = false;
        AB_TRY(backward(cell));
        AB_TRY(ab_gradients_unscale_loss(&cell->gradients, &exec, &cell->scalers.scaler[*k], &overflow));
        *overflows |= (unsigned)overflow << *k;
    }
    *k = 0;
    return AB_OK;
}

static ab_status sum_gradients(ab_cell *cell) {
    const ab_exec exec = ab_walk_exec(&cell->walk);
    AB_TRY(ab_gradients_sum(&cell->gradients, &exec));
    if (!(cell->config.recipe.faults & AB_FAULT_unscale_each_micro_batch)) return AB_OK;
    return ab_gradients_unscale_sums(&cell->gradients, &exec, &cell->scalers.scaler[0]);
}

/* Forward and backward over one batch; its gradients accumulate into those of the step. */
static ab_status run_batch(ab_cell *cell, bool noted, float *loss, unsigned *overflows) {
    const ab_step_position *at = &cell->position;
    const int64_t number = at->steps * at->micro_batches + at->micro;
    cell->walk.exec.step = (uint32_t)number;
    ab_batches_choose(&cell->batches, number);
    AB_TRY(ab_batches_load(&cell->batches, AB_SPLIT_TRAIN, noted ? at->steps : -1));
    AB_TRY(ab_forward(&cell->walk));
    AB_TRY(ab_forward_loss(&cell->walk, loss));
    if (ab_backward_by_loss(cell->plan)) return backward_by_loss(cell, overflows);
    AB_TRY(backward(cell));
    return sum_gradients(cell);
}

ab_status ab_gradient_pass_batches(ab_cell *cell, bool noted, float *loss, unsigned *overflows) {
    ab_step_position *at = &cell->position;
    double sum = 0;
    *overflows = 0;
    for (at->micro = 0; at->micro < at->micro_batches; at->micro++) {
        AB_TRY(run_batch(cell, noted, loss, overflows));
        sum += (double)*loss;
    }
    const float mean = (float)(sum / (double)at->micro_batches);
    if (at->micro_batches > 1) *loss = isnan(mean) ? NAN : mean;
    return AB_OK;
}

ab_status ab_gradient_pass(ab_cell *cell, ab_step_result *result, bool *nonfinite) {
    AB_TRY(ab_gradient_pass_batches(cell, !cell->observation.is_replay, &result->loss, &result->overflows));
    *nonfinite = result->overflows != 0;
    if (ab_backward_by_loss(cell->plan)) return AB_OK;
    if (cell->config.recipe.faults & AB_FAULT_clip_before_unscale)
        AB_TRY(ab_gradients_clip(&cell->gradients, &cell->config.recipe.clip, true, &result->grad_norm));
    const ab_exec exec = ab_walk_exec(&cell->walk);
    AB_TRY(ab_gradients_unscale(&cell->gradients, &exec, &cell->scalers.scaler[0], cell->layers, nonfinite,
                                &result->overflow));
    result->overflows = result->overflow;
    return AB_OK;
}
