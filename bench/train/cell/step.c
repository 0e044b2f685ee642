/* The order of a training step: gradients, an optional replay, scaler update, optimizer step. */
#include "bench/train/cell/gradient_pass.h"
#include "bench/train/cell/parts.h"
#include "bench/train/cell/replay.h"

static ab_status update_weights(ab_cell *cell) {
    const ab_exec unobserved = ab_walk_unobserved(&cell->walk);
    cell->position.taken++;
    ab_walk_weights_changed(&cell->walk);
    return ab_weight_update_run(&cell->update, &unobserved, cell->position.taken, cell->position.advanced);
}

static ab_status finish_step(ab_cell *cell, const ab_step_result *result) {
    ab_step_position *at = &cell->position;
    if (!result->skipped) AB_TRY(update_weights(cell));
    if (!result->skipped || cell->config.recipe.schedule_on_skip) at->advanced++;
    cell->observation.observer = NULL;
    ab_always_on_step_end(&cell->always_on, at->steps, result->skipped);
    at->steps++;
    return AB_OK;
}

static ab_status clip(ab_cell *cell, ab_step_result *result) {
    return ab_gradients_clip(&cell->gradients, &cell->config.recipe.clip, false, &result->grad_norm);
}

static ab_status update_scale(ab_cell *cell, int k, const ab_scaler_seen *seen, ab_step_result *result) {
    return ab_loss_scalers_update(&cell->scalers, k, cell->position.steps, seen, &result->skipped);
}

/* Losses with their own scales: gradients are unscaled already, each by its loss's scale; one loss's overflow
 * skips the step. */
static ab_status decide_by_loss(ab_cell *cell, ab_step_result *result) {
    AB_TRY(clip(cell, result));
    for (int k = 0; k < cell->scalers.count; k++) {
        const ab_scaler_seen seen = {.overflow = result->overflows >> k & 1u};
        AB_TRY(update_scale(cell, k, &seen, result));
    }
    result->overflow = result->overflows != 0;
    return AB_OK;
}

/* Gradients were divided by the scale before the scaler update; a scaler that updates first divides by the
 * new scale. */
static ab_status rescale(ab_cell *cell, double factor) {
    const ab_exec unobserved = ab_walk_unobserved(&cell->walk);
    return ab_gradients_rescale(&cell->gradients, &unobserved, factor);
}

static ab_status decide(ab_cell *cell, ab_step_result *result) {
    const bool clipped = cell->config.recipe.faults & AB_FAULT_clip_before_unscale;
    const ab_scaler *scaler = &cell->scalers.scaler[0];
    const bool first = scaler->kind->updates_first;
    ab_scaler_seen seen = {.overflow = result->overflow};
    if (scaler->kind->sees & ~(unsigned)AB_SEES_LAYER)
        AB_TRY(ab_gradients_measure(&cell->gradients, scaler, &seen));
    if (first) AB_TRY(update_scale(cell, 0, &seen, result));
    if (first && scaler->scale != result->scale && !result->skipped)
        AB_TRY(rescale(cell, result->scale / scaler->scale));
    if (!clipped) AB_TRY(clip(cell, result));
    return first ? AB_OK : update_scale(cell, 0, &seen, result);
}

static ab_step_result start_result(const ab_cell *cell) {
    const ab_loss_scalers *scalers = &cell->scalers;
    ab_step_result result = {.scale = scalers->scaler[0].scale,
                             .lr = ab_weight_update_rate(&cell->update, cell->position.advanced).lr};
    for (int k = 0; k < scalers->count; k++) result.scales[k] = scalers->scaler[k].scale;
    return result;
}

ab_status ab_cell_step(ab_cell *cell, ab_observer *observer, ab_step_result *result) {
    const ab_watch *watch = &cell->observation.watch;
    bool nonfinite;
    cell->observation.observer = observer;
    cell->walk.exec.training = true;
    *result = start_result(cell);
    if (observer && watch->begin) watch->begin(watch->context, cell->position.steps, result->scale);
    AB_TRY(ab_gradient_pass(cell, result, &nonfinite));
    AB_TRY(ab_replay_if_asked(cell, nonfinite, result));
    AB_TRY(cell->scalers.count > 1 ? decide_by_loss(cell, result) : decide(cell, result));
    return finish_step(cell, result);
}
