/* Measures what probing costs, and chooses the probed steps. */
#include "bench/run/state.h"

#include "bench/run/probing.h"
#include "bench/run/process.h"
#include "bench/run/record.h"
#include "bench/run/worker.h"
#include "reports/record/json.h"

#include <stdlib.h>
#include <string.h>

/* Whether what probing costs is measured for this cell: the first of its level and half format. */
static bool is_measured(const ab_run_state *r, int cell) {
    for (int i = 0; i < cell; i++)
        if (r->cells[i].level == r->cells[cell].level && r->cells[i].half == r->cells[cell].half)
            return false;
    return true;
}

/* A cell that fails here fails again, and is reported, when it is run. */
static ab_status take(ab_run_state *r, ab_running *running, ab_probe_cost *cost, int *costs) {
    const cJSON *event = running->process.probe_cost;
    AB_TRY(ab_run_end_task(r, &running->process));
    if (event && !running->process.reason[0])
        cost[(*costs)++] =
            (ab_probe_cost){ab_json_number(event, "step_ns", 0), ab_json_number(event, "probe_ns", 0)};
    return AB_OK;
}

/* Costs of `count` cells at a time. On a CPU they are processor time, which a neighbour on another processor
 * does not add to. */
static ab_status measure_together(ab_run_state *r, const int *cells, int count, ab_probe_cost *cost,
                                  int *costs) {
    const ab_process_watch watch = {ab_run_no_tick, NULL, r->config.cell_timeout_s * count,
                                    &ab_run_stop_requested, &r->link};
    const int threads = count > 1 ? r->config.threads / count : 0;
    ab_running *running = calloc((size_t)count, sizeof *running), *left[AB_PROCESSES_MOST];
    ab_status status = AB_OK;
    int n = 0, ended;
    if (!running) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    for (; n < count; n++) {
        AB_TRY_GOTO(ab_run_start_task(r, cells[n], AB_WORKER_PROBING, 0, threads));
        ab_running_start(r->worker_argv, &watch, &running[n]);
        left[n] = &running[n];
    }
    while (n > 0) {
        AB_TRY_GOTO(ab_processes_wait(left, n, &ended));
        AB_TRY_GOTO(take(r, left[ended], cost, costs));
        ab_running_end(left[ended]);
        left[ended] = left[--n];
    }
out:
    for (int i = 0; i < n; i++) ab_running_end(left[i]);
    free(running);
    return status;
}

/* Fills cost[*costs]; cells: room for their numbers. */
static ab_status measure_all(ab_run_state *r, int *cells, ab_probe_cost *cost, int *costs) {
    int count = 0;
    if (!ab_probe_has_choice(r->config.steps)) return AB_OK;
    for (int i = 0; i < r->count; i++)
        if (is_measured(r, i)) cells[count++] = i;
    for (int done = 0; done < count && !ab_run_stop_requested;) {
        const int width = ab_run_width(r, cells[done], count - done);
        AB_TRY(measure_together(r, cells + done, width, cost, costs));
        done += width;
    }
    return AB_OK;
}

/* The same steps in every cell: those of the document that is resumed, or those that the budget allows. */
ab_status ab_run_choose_probed_steps(ab_run_state *r) {
    ab_run_config *config = &r->config;
    const double chosen = ab_json_number(r->document, "design.probing.every", 0);
    int costs = 0;
    if (config->probe_budget <= 0) return AB_OK;
    if (chosen >= 1) {
        config->probe_every = (int64_t)chosen;
        return AB_OK;
    }
    ab_probe_cost *cost = calloc((size_t)r->count + 1, sizeof *cost);
    int *cells = calloc((size_t)r->count + 1, sizeof *cells);
    ab_status status = AB_OK;
    if (!cost || !cells) AB_TRY_GOTO(ab_fail(AB_NO_MEMORY, "run: out of memory"));
    AB_TRY_GOTO(measure_all(r, cells, cost, &costs));
    config->probe_every =
        ab_probe_interval(config->probe_budget, config->steps, ab_run_trainings(r), cost, costs);
    ab_record_probing(r->document, config->probe_every, config->probe_budget, cost, costs);
out:
    free(cells);
    free(cost);
    return status;
}
