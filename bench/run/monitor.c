/* Reads the steps that arrived since the last look. */
#include "bench/run/monitor.h"

#include "bench/amp/apex_lines.h"
#include "bench/run/config/configure.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/text.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { LINE = 160 };

const char *ab_monitor_line(int64_t step, int64_t each, const ab_step_event *event, int64_t skipped,
                            char *text) {
    char scale[AB_TEXT_NUMBER];
    ab_text_show(text, LINE, "epoch: %" PRId64 " step: %" PRId64 ", loss is %.7g, scale %s", step / each + 1,
                 step % each + 1, (double)event->loss, ab_text_scale(scale, event->scale));
    if (skipped > 0) ab_text_append(text, LINE, ", %" PRId64 " skipped", skipped);
    if (event->skipped) ab_text_append(text, LINE, ", this step too: a gradient overflowed");
    return text;
}

/* Steps an epoch; without data one epoch is the whole run. */
static int64_t steps_an_epoch(const ab_run_config *config) {
    const int64_t samples = config->data ? config->data->split[AB_SPLIT_TRAIN].count : 0;
    const int64_t step = ab_run_step_samples(config);
    assert(step > 0);
    return samples >= step ? samples / step : INT64_MAX;
}

/* The loss scale that an overflow at `scale` leaves. */
static double scale_after(const ab_monitor *m, double scale) {
    const ab_run_config *config = m->config;
    const ab_scaler_config given =
        ab_scaler_limited(&m->cell->policy.loss_scale.scaler, config->min_loss_scale, config->max_loss_scale,
                          (double)config->scale_window);
    const ab_scaler_seen seen = {.overflow = true, .amax = (double)INFINITY};
    ab_scaler scaler;
    ab_scaler_start(&scaler, &given);
    scaler.scale = scale;
    return ab_scaler_update(&scaler, &seen).skip ? scaler.scale : scale;
}

/* apex replaces the optimizer's step once: of several scalers the first one that overflowed is named. */
static void say_skip(const ab_monitor *m, const ab_process *process, int64_t i) {
    int scaler = 0;
    double scale = process->step[i].scale;
    if (process->scalers > 0) {
        while (scaler + 1 < process->scalers && !(process->overflows[i] >> scaler & 1)) scaler++;
        scale = process->scales[i * process->scalers + scaler];
    }
    ab_apex_print_skip(scaler, scale_after(m, scale), stderr);
}

static bool is_due(const ab_monitor *m, int64_t step) {
    return m->logs && m->config->log_every > 0 && (step + 1) % m->config->log_every == 0;
}

static void say_step(ab_monitor *m, const ab_process *process, int64_t i) {
    const ab_step_event *event = &process->step[i];
    const int64_t step = m->config->first_step + i;
    const bool due = is_due(m, step), apex = m->apex && event->skipped;
    char text[LINE];
    m->skipped += event->skipped;
    if (due || apex) ab_progress_clear_line(m->progress);
    if (apex) say_skip(m, process, i);
    if (due)
        ab_print(stderr, "%s\n", ab_monitor_line(step, steps_an_epoch(m->config), event, m->skipped, text));
}

bool ab_monitor_has_lines(const ab_run_config *config, const ab_cell_spec *cell) {
    return config->log_every > 0 || ab_apex_prints(&cell->policy);
}

ab_status ab_monitor_start(ab_monitor *m, const ab_run_config *config, const ab_cell_spec *cell,
                           bool first_round, int64_t steps, ab_progress *progress) {
    *m = (ab_monitor){.config = config,
                      .cell = cell,
                      .progress = progress,
                      .logs = first_round,
                      .apex = first_round && ab_apex_prints(&cell->policy)};
    ab_progress_process(progress, &m->run, cell->id, steps);
    if (first_round && config->log_every > 0) ab_print(stderr, "%s\n", cell->id);
    return m->apex ? ab_apex_print_properties(&cell->policy, stderr) : AB_OK;
}

void ab_monitor_see(ab_monitor *m, const ab_process *process) {
    for (; m->seen < process->steps; m->seen++) say_step(m, process, m->seen);
    if (process->steps == 0) return;
    const ab_step_event *last = &process->step[process->steps - 1];
    ab_progress_step(m->progress, &m->run, process->steps,
                     (ab_progress_now){(double)last->loss, last->scale, m->skipped});
}
