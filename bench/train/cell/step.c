/* The order of a training step: gradients, an optional replay, scaler update, optimizer step. */
#include "bench/train/cell/step.h"

#include "bench/train/cell/parts.h"
#include "bench/train/cell/replicas.h"
#include "bench/train/cell/sync.h"
#include "bench/train/memory/memory.h"
#include "bench/train/pass/backward.h"
#include "bench/train/pass/forward.h"

#include <math.h>
#include <stdlib.h>

static ab_status update_weights(ab_cell *cell) {
    const ab_exec unobserved = ab_walk_unobserved(&cell->walk);
    cell->position.taken++;
    ab_walk_weights_changed(&cell->walk);
    AB_TRY(ab_weight_update_run(&cell->update, &unobserved, cell->position.taken, cell->position.advanced));
    if (cell->update.half_copies) cell->walk.copies_version = cell->walk.params_version;
    return AB_OK;
}

static ab_status finish_step(ab_cell *cell, ab_step_result *result) {
    ab_step_position *at = &cell->position;
    result->correct = cell->score.correct;
    result->scored = cell->score.count;
    if (!result->skipped) AB_TRY(update_weights(cell));
    AB_TRY(ab_replica_fault(cell));
    ab_step_times_part(cell->walk.times, AB_TIMED_UPDATE);
    if (!result->skipped || cell->config.recipe.schedule_on_skip) at->advanced++;
    cell->observation.observer = NULL;
    ab_always_on_step_end(&cell->always_on, at->steps, result->skipped);
    at->steps++;
    ab_step_times_part(cell->walk.times, AB_TIMED_OTHER);
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
    ab_step_times_begin(cell->walk.times);
    if (observer && watch->begin) watch->begin(watch->context, cell->position.steps, result->scale);
    AB_TRY(ab_gradient_pass(cell, result, &nonfinite));
    AB_TRY(ab_replay_if_requested(cell, nonfinite, result));
    AB_TRY(cell->scalers.count > 1 ? decide_by_loss(cell, result) : decide(cell, result));
    ab_step_times_part(cell->walk.times, AB_TIMED_UNSCALE);
    return finish_step(cell, result);
}

/* The order of the passes within one batch and one step. */

int64_t ab_cell_rank_samples(const ab_cell *cell, int64_t rank) {
    const int64_t last = cell->config.recipe.ranks.last_samples;
    return last > 0 && rank == cell->position.ranks - 1 ? last : cell->plan->batch;
}

/* So that every sample of the step counts the same: its rank's samples over the mean of all ranks'. */
double ab_cell_rank_weight(const ab_cell *cell, int64_t rank) {
    const int64_t ranks = cell->position.ranks, last = ab_cell_rank_samples(cell, ranks - 1),
                  all = (ranks - 1) * cell->plan->batch + last;
    if (last == cell->plan->batch || cell->config.recipe.faults & AB_FAULT_ranks_weighted_alike) return 1;
    return (double)(ab_cell_rank_samples(cell, rank) * ranks) / (double)all;
}

/* Weight of one batch in the step's mean. */
static double batch_share(const ab_cell *cell) {
    const bool summed = cell->config.recipe.faults & AB_FAULT_accumulation_not_averaged;
    const double weight = ab_cell_rank_weight(cell, cell->position.rank);
    return summed ? weight : weight / (double)cell->position.micro_batches;
}

/* A short batch as its samples in turn: their mean loss is that of a batch of them alone. */
static void repeat_samples(ab_cell *cell) {
    const int64_t samples = ab_cell_rank_samples(cell, cell->position.rank);
    for (int64_t i = samples; i < cell->plan->batch; i++)
        cell->batches.index[i] = cell->batches.index[i % samples];
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

/* Ranks that are processes send gradients while the last backward pass goes on. */
static ab_status send_complete(void *context, int node) {
    ab_cell *cell = context;
    const ab_status status = ab_rank_gradients_passed(&cell->ranks, node);
    ab_step_times_part(cell->walk.times, AB_TIMED_REDUCTION);
    return status;
}

static bool sends_early(const ab_cell *cell) {
    const ab_step_position *at = &cell->position;
    if (at->ranks == 1 || !ab_rank_link_is_open() || ab_rank_gradients_in_wire(&cell->ranks)) return false;
    return ab_rank_gradients_every_batch(&cell->ranks) ||
           (at->micro + 1 == at->micro_batches && ab_gradients_end_with_backward(&cell->gradients));
}

static ab_status backward_and_send(ab_cell *cell) {
    cell->walk.passed = sends_early(cell) ? send_complete : NULL;
    cell->walk.passed_context = cell;
    const ab_status status = backward(cell);
    cell->walk.passed = NULL;
    return status;
}

/* Forward and backward over one batch; its gradients accumulate into those of the step. */
static ab_status run_batch(ab_cell *cell, bool noted, float *loss, unsigned *overflows) {
    const ab_step_position *at = &cell->position;
    const int64_t number = (at->steps * at->ranks + at->rank) * at->micro_batches + at->micro;
    cell->walk.exec.step = (uint32_t)number;
    ab_batches_choose(&cell->batches, number);
    repeat_samples(cell);
    const bool read = at->ranks > 1 || (noted && ab_batches_are_counted(&cell->batches));
    AB_TRY(ab_batches_load(&cell->batches, &cell->walk, AB_SPLIT_TRAIN, read));
    ab_step_times_part(cell->walk.times, AB_TIMED_BATCH);
    if (noted)
        AB_TRY(ab_batches_count(&cell->batches, at->steps, cell->batches.samples, cell->batches.targets));
    ab_step_times_part(cell->walk.times, AB_TIMED_STATISTICS);
    AB_TRY(ab_forward(&cell->walk));
    AB_TRY(ab_forward_loss(&cell->walk, loss));
    AB_TRY(ab_score_batch(&cell->score, &cell->batches));
    ab_step_times_part(cell->walk.times, AB_TIMED_OTHER);
    if (ab_backward_by_loss(cell->plan)) return backward_by_loss(cell, overflows);
    AB_TRY(backward_and_send(cell));
    if (ab_rank_gradients_in_wire(&cell->ranks)) return ab_rank_gradients_add(&cell->ranks, at->rank);
    return ab_rank_gradients_every_batch(&cell->ranks) ? AB_OK : sum_gradients(cell);
}

/* Passes of all ranks before one reduction: over micro-batches [first, until). */
typedef struct span {
    bool noted;
    int64_t first, until;
    float *loss; /* of the last batch */
    double *sum; /* of all losses */
    unsigned *overflows;
} span;

/* The batches of one rank; adds their losses to *sum. */
static ab_status run_rank(ab_cell *cell, const span *s) {
    ab_step_position *at = &cell->position;
    for (at->micro = s->first; at->micro < s->until; at->micro++) {
        if (at->ranks > 1) AB_TRY(ab_rank_gradients_begin(&cell->ranks));
        AB_TRY(run_batch(cell, s->noted, s->loss, s->overflows));
        const double weighted = (double)*s->loss * ab_cell_rank_weight(cell, at->rank);
        *s->sum += weighted;
        if (at->ranks > 1) cell->ranks.loss[at->rank * at->micro_batches + at->micro] = weighted;
    }
    const ab_status status = at->ranks > 1 ? ab_rank_gradients_keep(&cell->ranks, at->rank) : AB_OK;
    if (at->ranks > 1) ab_step_times_part(cell->walk.times, AB_TIMED_REDUCTION);
    return status;
}

/* The other ranks, as replicas of the first: their running statistics are lost, as torch's DDP broadcasts
 * those of rank 0 before every forward pass. */
static ab_status run_other_ranks(ab_cell *cell, const span *s) {
    ab_step_position *at = &cell->position;
    void *kept;
    AB_TRY(ab_running_stats_keep(&cell->memory, &kept));
    ab_status status = AB_OK;
    for (at->rank = 1; at->rank < at->ranks && status == AB_OK; at->rank++) status = run_rank(cell, s);
    at->rank = 0;
    if (status == AB_OK) status = ab_running_stats_restore(&cell->memory, kept);
    free(kept);
    return status == AB_OK ? ab_rank_gradients_reduce(&cell->ranks) : status;
}

typedef struct beside {
    ab_cell *cell;
    const span *span;
    float loss[AB_RANKS_MOST];
    double sum[AB_RANKS_MOST]; /* of each rank's losses */
} beside;

static ab_status run_rank_beside(void *context, int rank) {
    beside *all = context;
    span own = *all->span;
    own.loss = &all->loss[rank];
    own.sum = &all->sum[rank];
    return run_rank(all->cell, &own);
}

/* All simulated ranks at once: their batch norms wait for each other. */
static ab_status run_ranks_beside(ab_cell *cell, const span *s) {
    beside all = {.cell = cell, .span = s};
    AB_TRY(ab_sync_run(cell, run_rank_beside, &all));
    *s->loss = all.loss[cell->position.ranks - 1];
    for (int64_t r = 0; r < cell->position.ranks; r++) *s->sum += all.sum[r];
    return ab_rank_gradients_reduce(&cell->ranks);
}

/* The other ranks are other processes. */
static ab_status meet_other_ranks(ab_cell *cell, double *sum) {
    const ab_step_position *at = &cell->position;
    ab_rank_gradients *ranks = &cell->ranks;
    ranks->correct = cell->score.correct;
    ranks->score = cell->score.count;
    AB_TRY(ab_rank_gradients_reduce(ranks));
    if (!ab_rank_gradients_end_step(ranks)) return AB_OK;
    cell->score.correct = ranks->correct;
    cell->score.count = ranks->score;
    *sum = 0;
    for (int64_t i = 0; i < at->ranks * at->micro_batches; i++) *sum += ranks->loss[i];
    return AB_OK;
}

static ab_status run_ranks(ab_cell *cell, const span *s) {
    if (ab_sync_is_simulated(cell)) return run_ranks_beside(cell, s);
    cell->walk.exec.sync = ab_sync_norm(cell);
    const ab_status status = run_rank(cell, s);
    cell->walk.exec.sync = NULL;
    if (status != AB_OK || cell->position.ranks == 1) return status;
    return ab_rank_link_is_open() ? meet_other_ranks(cell, s->sum) : run_other_ranks(cell, s);
}

/* The reduced gradients of a micro-batch join those of earlier ones. */
static ab_status accumulate(ab_cell *cell, int64_t micro) {
    cell->position.micro = micro;
    AB_TRY(sum_gradients(cell));
    return ab_rank_gradients_accumulate(&cell->ranks);
}

static ab_status run_spans(ab_cell *cell, bool noted, float *loss, double *sum, unsigned *overflows) {
    const int64_t last = cell->position.micro_batches;
    const bool each = ab_rank_gradients_every_batch(&cell->ranks);
    span s = {.noted = noted, .loss = loss, .sum = sum, .overflows = overflows};
    for (; s.first < last; s.first = s.until) {
        s.until = each ? s.first + 1 : last;
        AB_TRY(run_ranks(cell, &s));
        if (each) AB_TRY(accumulate(cell, s.first));
    }
    return AB_OK;
}

/* Whether nothing but the update reads the unscaled gradients of the step. */
static bool unscales_late(const ab_cell *cell) {
    const ab_scaler_kind *kind = cell->scalers.scaler[0].kind;
    const ab_clip_config *clip = &cell->config.recipe.clip;
    return !cell->layers && clip->norm <= 0 && clip->value <= 0 && kind->sees == 0 && !kind->updates_first &&
           ab_weight_update_unscales(&cell->update);
}

/* Whether half gradients need not be cast to fp32 before the update: nobody looks at the step, nor reads
 * gradients before their scaler does. */
static bool keeps_made(const ab_cell *cell) {
    const unsigned readers = AB_FAULT_clip_before_unscale;
    const ab_step_position *at = &cell->position;
    return unscales_late(cell) && at->micro_batches == 1 && at->ranks == 1 &&
           !ab_backward_by_loss(cell->plan) && !cell->observation.follower &&
           !(cell->config.recipe.faults & readers) &&
           ab_gradients_can_wait(&cell->gradients, &cell->scalers.scaler[0]);
}

ab_status ab_gradient_pass_batches(ab_cell *cell, bool noted, float *loss, unsigned *overflows) {
    const ab_step_position *at = &cell->position;
    const int64_t batches = at->micro_batches * at->ranks;
    double sum = 0;
    ab_gradients_begin(&cell->gradients, noted && keeps_made(cell));
    cell->score.correct = cell->score.count = 0;
    cell->ranks.noted = noted;
    cell->ranks.counts = noted && cell->observation.observer != NULL;
    *overflows = 0;
    AB_TRY(run_spans(cell, noted, loss, &sum, overflows));
    if (at->ranks > 1) ab_step_times_part(cell->walk.times, AB_TIMED_REDUCTION);
    const float mean = (float)(sum / (double)batches);
    if (batches > 1) *loss = isnan(mean) ? NAN : mean;
    return AB_OK;
}

ab_status ab_gradient_pass(ab_cell *cell, ab_step_result *result, bool *nonfinite) {
    AB_TRY(ab_gradient_pass_batches(cell, !cell->observation.is_replay, &result->loss, &result->overflows));
    *nonfinite = result->overflows != 0;
    if (ab_backward_by_loss(cell->plan)) return AB_OK;
    if (cell->config.recipe.faults & AB_FAULT_clip_before_unscale)
        AB_TRY(ab_gradients_clip(&cell->gradients, &cell->config.recipe.clip, true, &result->grad_norm));
    const ab_exec exec = ab_walk_exec(&cell->walk);
    AB_TRY(ab_gradients_unscale(&cell->gradients, &exec, &cell->scalers.scaler[0], cell->layers,
                                unscales_late(cell), nonfinite, &result->overflow));
    result->overflows = result->overflow;
    return AB_OK;
}

/* Nothing that a step reads has changed since it ran, except running statistics, which a training step only
 * writes; they are restored. */

static bool is_requested(const ab_cell *cell, const ab_step_result *result) {
    const ab_watch *watch = &cell->observation.watch;
    return watch->wants_replay && watch->wants_replay(watch->context, cell->position.steps, result->scale);
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

ab_status ab_replay_if_requested(ab_cell *cell, bool nonfinite, ab_step_result *result) {
    void *kept;
    if (!nonfinite && isfinite(result->loss)) return AB_OK; /* on all ranks alike */
    bool requested = is_requested(cell, result);
    if (cell->position.ranks > 1) AB_TRY(ab_rank_link_agree(&requested)); /* other ranks have no probes */
    if (!requested) return AB_OK;
    AB_TRY(ab_running_stats_keep(&cell->memory, &kept));
    ab_status status = replay(cell, result);
    if (status == AB_OK) status = ab_running_stats_restore(&cell->memory, kept);
    free(kept);
    return status;
}
