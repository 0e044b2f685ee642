/* Nothing that a step reads has changed since it ran, except running statistics, which a training step only
 * writes; they are restored. */
#include "bench/train/cell/replay.h"

#include "bench/train/cell/gradient_pass.h"
#include "bench/train/cell/parts.h"
#include "bench/train/memory/running_stats.h"

#include <math.h>
#include <stdlib.h>

static bool is_requested(const ab_cell *cell, bool nonfinite, const ab_step_result *result) {
    const ab_watch *watch = &cell->observation.watch;
    if (!watch->wants_replay || (!nonfinite && isfinite(result->loss))) return false;
    return watch->wants_replay(watch->context, cell->position.steps, result->scale);
}

/* The observer has already counted the values of the step: it is not called in the replay. */
static ab_status replay(ab_cell *cell, ab_step_result *result) {
    ab_observation *observation = &cell->observation;
    ab_observer *observer = observation->observer;
    bool nonfinite;
    observation->is_replay = result->replayed = true;
    observation->observer = NULL;
    ab_status status = ab_gradient_pass(cell, result, &nonfinite);
    observation->observer = observer;
    observation->is_replay = false;
    return status;
}

ab_status ab_replay_if_asked(ab_cell *cell, bool nonfinite, ab_step_result *result) {
    void *kept;
    if (!is_requested(cell, nonfinite, result)) return AB_OK;
    AB_TRY(ab_running_stats_keep(&cell->memory, &kept));
    ab_status status = replay(cell, result);
    if (status == AB_OK) status = ab_running_stats_restore(&cell->memory, kept);
    free(kept);
    return status;
}
