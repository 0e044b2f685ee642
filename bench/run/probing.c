/* Connects a cell, the probes and the governor. */
#include "bench/run/probing.h"

#include "bench/run/json_lines.h"
#include "bench/timer/timer.h"
#include "bench/train/ranks/link.h"
#include "kernels/core/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static ab_status describe(ab_probing *probing, const ab_cell *cell) {
    int tensors = ab_cell_observed_count(cell), params = ab_cell_trained_count(cell);
    probing->tensor = calloc((size_t)tensors + 1, sizeof *probing->tensor);
    probing->param = calloc((size_t)params + 1, sizeof *probing->param);
    if (!probing->tensor || !probing->param) return ab_fail(AB_NO_MEMORY, "probes: out of memory");
    for (int i = 0; i < tensors; i++) {
        const ab_observed *about = ab_cell_observed_at(cell, i);
        probing->tensor[i] = (ab_probe_tensor){about->name, about->layer, about->role, about->cast};
    }
    for (int i = 0; i < params; i++) probing->param[i] = *ab_cell_trained_at(cell, i);
    return AB_OK;
}

static ab_probe_optimizer optimizer_of(const ab_run_config *config) {
    const ab_optimizer_config *optim = &config->optim;
    ab_probe_optimizer optimizer = {.lr = optim->lr,
                                    .weight_decay = optim->weight_decay,
                                    .beta1 = optim->beta1,
                                    .beta2 = config->optimizer->knobs & AB_KNOB_ALPHA ? optim->alpha
                                                                                      : optim->beta2,
                                    .eps = optim->eps,
                                    .second_moment = config->optimizer->second_moment};
    for (int i = 0; i < config->optimizer->states; i++) optimizer.state[i] = config->optimizer->state[i];
    return optimizer;
}

static ab_probe_setup setup_of(const ab_probing *probing, const ab_run_config *config, const ab_cell *cell,
                               const ab_format *half) {
    return (ab_probe_setup){.tensor = probing->tensor,
                            .tensors = ab_cell_observed_count(cell),
                            .threads = ab_parallel_threads(),
                            .half = half,
                            .param = probing->param,
                            .params = ab_cell_trained_count(cell),
                            .optimizer = optimizer_of(config),
                            .steps = config->steps,
                            .every = config->probe_every,
                            .seed = config->seed,
                            .governed = config->probe_budget > 0,
                            .scale_reacts = ab_scaler_checks(ab_cell_scaler(cell)),
                            .accumulate = config->accumulate_half ? half : NULL};
}

ab_status ab_probing_start(ab_probing *probing, const ab_run_config *config, ab_cell *cell,
                           const ab_format *half) {
    *probing = (ab_probing){.active = config->probes != 0 && config->probe_every > 0,
                            .budget = config->probe_budget,
                            .steps = config->steps};
    if (!probing->active) return AB_OK;
    ab_governor_start(&probing->governor, config->probe_every);
    const bool on_cpu = strcmp(config->device->name, "cpu") == 0;
    probing->clock = on_cpu ? ab_processor_ns : ab_monotonic_ns;
    probing->lanes = on_cpu ? ab_parallel_threads() : 1;
    AB_TRY(ab_probe_set_create(config->probes, on_cpu ? ab_thread_processor_ns : ab_monotonic_ns,
                               &probing->set));
    ab_watch watch = ab_probe_set_watch(probing->set);
    ab_cell_watch(cell, &watch);
    AB_TRY(describe(probing, cell));
    ab_probe_setup setup = setup_of(probing, config, cell, half);
    return ab_probe_set_start(probing->set, &setup);
}

void ab_probing_clear(ab_probing *probing) {
    ab_probe_set_destroy(probing->set);
    free(probing->tensor);
    free(probing->param);
    *probing = (ab_probing){.active = false};
}

static int64_t spent_in_probes(const ab_probing *probing) {
    return probing->lanes * ab_probe_set_cost_ns(probing->set);
}

ab_observer *ab_probing_next(ab_probing *probing) {
    if (!probing->active) return NULL;
    probing->begun_ns = probing->clock();
    if (!ab_governor_due(&probing->governor)) return NULL;
    probing->spent_ns = spent_in_probes(probing);
    return ab_probe_set_observer(probing->set);
}

int64_t ab_probing_count_unprobed(const ab_probing *probing, int64_t most) {
    if (!probing->active) return most;
    int64_t since = probing->governor.steps % probing->governor.every;
    int64_t left = since == 0 ? 0 : probing->governor.every - since;
    return left < most ? left : most;
}

void ab_probing_note(ab_probing *probing, int64_t time_ns) {
    if (probing->active) ab_governor_note(&probing->governor, false, time_ns, 0);
}

int64_t ab_probing_step_end(ab_probing *probing, int64_t step, const ab_observer *observer, bool replayed,
                            int64_t begun_ns) {
    if (observer) ab_probe_set_step_end(probing->set, step);
    int64_t time = ab_monotonic_ns() - begun_ns;
    if (replayed)
        ab_governor_skip(&probing->governor);
    else if (probing->active)
        ab_governor_note(&probing->governor, observer != NULL, probing->clock() - probing->begun_ns,
                         observer ? spent_in_probes(probing) - probing->spent_ns : 0);
    return time;
}

/* ---- report ---------------------------------------------------------------------------------- */

static void report_sampling(const ab_probing *probing, ab_probe_sink *sink) {
    const ab_governor *governor = &probing->governor;
    sink->begin_object(sink, "sampling");
    sink->text(sink, "mode", probing->budget > 0 ? "chosen" : "fixed");
    sink->number(sink, "budget", probing->budget > 0 ? probing->budget : (double)NAN);
    sink->integer(sink, "steps_total", probing->steps);
    sink->integer(sink, "cost_ns", ab_governor_cost_ns(governor));
    sink->number(sink, "cost_share", ab_governor_cost_share(governor));
    sink->number(sink, "confidence", 0.95);
    sink->end(sink);
}

void ab_probing_event(const ab_probing *probing) {
    if (!probing->active) return;
    ab_json_line line;
    ab_json_line_begin(&line, stdout, "probes");
    line.sink.integer(&line.sink, "every", probing->governor.every);
    report_sampling(probing, &line.sink);
    ab_probe_set_report(probing->set, &line.sink);
    ab_json_line_end(&line);
}

/* ---- what probing costs ---------------------------------------------------------------------- */

enum { PAIRS_LEAST = 3, PAIRS_MOST = 9, ENOUGH_NS = 80 * 1000 * 1000 };

/* Steps of the device's own loop, where it has one, are what probed steps are compared with. */
static ab_status time_unprobed(const ab_probing *probing, ab_cell *cell, int64_t *time_ns) {
    ab_step_result result[2];
    int64_t times[2];
    if (ab_cell_window(cell) >= 2) {
        AB_TRY(ab_cell_run_steps(cell, 2, result, times));
        *time_ns = times[1];
        return AB_OK;
    }
    const int64_t begun = probing->clock();
    AB_TRY(ab_cell_step(cell, NULL, result));
    *time_ns = probing->clock() - begun;
    return AB_OK;
}

static ab_status time_probed(ab_probing *probing, ab_cell *cell, int64_t step, int64_t *time_ns) {
    ab_step_result result;
    const int64_t begun = probing->clock();
    AB_TRY(ab_cell_step(cell, ab_probe_set_observer(probing->set), &result));
    ab_probe_set_step_end(probing->set, step);
    *time_ns = probing->clock() - begun;
    return AB_OK;
}

ab_status ab_probing_measure(ab_probing *probing, ab_cell *cell, ab_probe_cost *cost) {
    double plain[PAIRS_MOST], probed[PAIRS_MOST];
    const int64_t begun = ab_monotonic_ns();
    int n = 0;
    for (int pair = 0; pair <= PAIRS_MOST; pair++) { /* the first one warms up */
        int64_t without, with;
        bool enough = n >= PAIRS_LEAST && ab_monotonic_ns() - begun > ENOUGH_NS;
        AB_TRY(ab_rank_link_agree(&enough)); /* ranks make the same steps */
        if (enough) break;
        AB_TRY(time_unprobed(probing, cell, &without));
        AB_TRY(time_probed(probing, cell, 2 * pair + 1, &with));
        if (pair == 0) continue;
        plain[n] = (double)without;
        probed[n++] = (double)with;
    }
    cost->step_ns = ab_median(plain, n);
    cost->probe_ns = fmax(0, ab_median(probed, n) - cost->step_ns);
    return AB_OK;
}
