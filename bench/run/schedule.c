/* Which process of a cell runs when. */
#include "bench/run/state.h"

#include "bench/memory/limits.h"
#include "bench/run/process.h"
#include "bench/run/record.h"
#include "bench/run/timed_steps.h"
#include "kernels/core/rng.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>

/* Only the losses of the noise floor and of further seeds are used: one round is enough. */
bool ab_run_is_timed(const ab_run_state *r, int cell) {
    return !r->cells[cell].perturbation && r->cells[cell].seed == r->config.seed;
}

/* Each round runs every timed cell once, in a random order per round. */
ab_status ab_run_draw_order(ab_run_state *r) {
    int n = r->count;
    r->order = calloc((size_t)(r->config.rounds * n), sizeof *r->order);
    if (!r->order) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    for (int64_t round = 0; round < r->config.rounds; round++) {
        int *order = r->order + round * n;
        for (int i = 0; i < n; i++) order[i] = i;
        for (int i = n - 1; i > 0 && round > 0; i--) { /* the first round runs in the table's order */
            int j = (int)ab_rng_below(r->config.seed, AB_RNG_DESIGN, (uint32_t)round, (uint64_t)i,
                                      (uint64_t)i + 1);
            int swapped = order[i];
            order[i] = order[j];
            order[j] = swapped;
        }
        for (int i = 0; i < n; i++)
            if (round > 0 && !ab_run_is_timed(r, order[i])) order[i] = -1;
    }
    return AB_OK;
}

/* The cell's first round, NULL if it is not there. */
static const cJSON *first_round(const cJSON *cell) {
    const cJSON *process = cJSON_GetArrayItem(ab_json_at(cell, "processes"), 0);
    return ab_json_number(process, "round", -1) == 0 ? process : NULL;
}

/* Whether the process's threads waited for a processor while others had it. */
static bool was_disturbed(const cJSON *process) {
    const double share = 0.1, waited = ab_json_number(process, "run_delay_ns", 0);
    return waited > share * ab_json_number(process, "elapsed_ns", 0);
}

/* The steps that the later rounds of this cell need. */
static ab_status needed_steps(const cJSON *process, int64_t all, int64_t *needed) {
    const cJSON *item, *list = ab_json_at(process, "step_time_ns");
    double *times = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *times);
    int64_t n = 0;
    if (!times) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    cJSON_ArrayForEach(item, list) times[n++] = item->valuedouble;
    *needed = was_disturbed(process) ? all : ab_timed_steps(times, n, all);
    free(times);
    return AB_OK;
}

ab_status ab_run_choose_steps(ab_run_state *r) {
    const int64_t all = r->config.steps, given = r->config.timed_steps;
    r->later_steps = given > 0 && given < all ? given : all;
    if (given != AB_TIMED_STEPS_AUTO) return AB_OK;
    r->later_steps = 1;
    for (int i = 0; i < r->count; i++) {
        int64_t needed = 1;
        if (ab_run_is_timed(r, i) && strcmp(ab_record_status(r->record.cell[i]), "failed") != 0)
            AB_TRY(needed_steps(first_round(r->record.cell[i]), all, &needed));
        r->later_steps = needed > r->later_steps ? needed : r->later_steps;
    }
    return AB_OK;
}

double ab_run_trainings(const ab_run_state *r) {
    const ab_run_config *config = &r->config;
    const int64_t least = config->timed_steps == AB_TIMED_STEPS_AUTO ? AB_TIMED_STEPS_LEAST
                          : config->timed_steps == 0                 ? config->steps
                                                                     : config->timed_steps;
    const double share = least < config->steps ? (double)least / (double)config->steps : 1;
    double trainings = 0;
    for (int64_t i = 0; i < config->rounds * r->count; i++)
        if (r->order[i] >= 0) trainings += i < r->count ? 1 : share;
    return trainings / r->count;
}

bool ab_run_is_due(const ab_run_state *r, int round, int position) {
    int index = r->order[round * r->count + position];
    return index >= 0 && !ab_record_has_round(r->record.cell[index], round) &&
           strcmp(ab_record_status(r->record.cell[index]), "failed") != 0;
}

int ab_run_count_due(const ab_run_state *r) {
    int due = 0;
    for (int round = 0; round < r->config.rounds; round++)
        for (int p = 0; p < r->count; p++) due += ab_run_is_due(r, round, p);
    return due;
}

/* ---- side by side ---------------------------------------------------------------------------- */

/* Bytes that a process of this cell may take: its tensors, as much again for workspace and what probes keep,
 * and 128 MiB for the program, libraries, generated code and its view of the data. INT64_MAX: not known. */
static int64_t room_of(const ab_run_state *r, int cell) {
    const ab_cell_config settings = ab_cell_config_of(&r->config, &r->cells[cell]);
    ab_plan *plan;
    if (ab_cell_compile(&settings, &plan) != AB_OK) return INT64_MAX;
    const int64_t needed = ab_memory_needed(&settings, plan);
    ab_plan_destroy(plan);
    return 2 * needed + ((int64_t)128 << 20);
}

int ab_run_width(const ab_run_state *r, int cell, int count) {
    int width = count < r->config.threads ? count : r->config.threads;
    ab_memory_limit limit;
    if (width > AB_PROCESSES_MOST) width = AB_PROCESSES_MOST;
    if (width < 2 || strcmp(r->config.device->name, "cpu") != 0 || r->group.mpi) return 1;
    ab_memory_limit_of("", r->config.device, &limit);
    const int64_t fit = limit.left / room_of(r, cell);
    return fit < width ? (fit > 1 ? (int)fit : 1) : width;
}

static bool is_alone(const ab_run_state *r, int cell) {
    return ab_run_is_timed(r, cell) || ab_monitor_has_lines(&r->config, &r->cells[cell]);
}

ab_run_stretch ab_run_stretch_at(const ab_run_state *r, int round, int from) {
    const int *order = r->order + round * r->count;
    ab_run_stretch stretch = {from, from + 1, 1, 0};
    if (is_alone(r, order[from])) return stretch;
    int count = 1;
    while (stretch.end < r->count && (order[stretch.end] < 0 || !is_alone(r, order[stretch.end])))
        count += ab_run_is_due(r, round, stretch.end++);
    stretch.width = ab_run_width(r, order[from], count);
    stretch.threads = stretch.width > 1 ? r->config.threads / stretch.width : 0;
    return stretch;
}
