/* Measures what probing costs, and chooses the probed steps. */
#include "bench/run/state.h"

#include "bench/run/probing.h"
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
static ab_status measure_probing(ab_run_state *r, const ab_cell_spec *cell, ab_probe_cost *cost, int *costs) {
    const ab_process_watch watch = {ab_run_no_tick, NULL, r->config.cell_timeout_s, &ab_run_stop_requested,
                                    &r->link};
    ab_process process;
    AB_TRY(ab_run_start_task(r, (int)(cell - r->cells), AB_WORKER_PROBING, 0));
    AB_TRY(ab_process_run(r->worker_argv, &watch, &process));
    AB_TRY(ab_run_end_task(r, &process));
    const cJSON *event = process.probe_cost;
    if (event && !process.reason[0])
        cost[(*costs)++] =
            (ab_probe_cost){ab_json_number(event, "step_ns", 0), ab_json_number(event, "probe_ns", 0)};
    ab_process_clear(&process);
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
    if (!cost) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    ab_status status = AB_OK;
    for (int i = 0; i < r->count && ab_probe_has_choice(config->steps) && !ab_run_stop_requested; i++)
        if (is_measured(r, i)) AB_TRY_GOTO(measure_probing(r, &r->cells[i], cost, &costs));
    config->probe_every =
        ab_probe_interval(config->probe_budget, config->steps, ab_run_trainings(r), cost, costs);
    ab_record_probing(r->document, config->probe_every, config->probe_budget, cost, costs);
out:
    free(cost);
    return status;
}
