/* Rounds of processes, one after the other. */
#include "bench/run/state.h"

#include "bench/memory/limits.h"
#include "bench/run/process.h"
#include "bench/run/record.h"
#include "bench/run/worker.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/files/outfile.h"
#include "reports/record/build.h"
#include "reports/record/json.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Standard input of a part is open as long as somebody wants it. */
static void watch_input(const ab_run_state *r) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    if (r->watches && poll(&in, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0)
        ab_run_stop_requested = SIGHUP;
}

static void tick(void *context, const ab_process *process) {
    ab_run_state *r = context;
    watch_input(r);
    ab_monitor_see(&r->monitor, process);
}

/* Adds "option path" to a worker's words if there is a pattern; `words` counts them. */
static ab_status add_file(ab_run_state *r, ab_option_id id, const char *pattern, const ab_cell_spec *cell,
                          char *path, size_t size, int *words) {
    static char names[AB_OPTION_COUNT][AB_OPTION_NAME];
    if (!pattern || !pattern[0]) return AB_OK;
    AB_TRY(ab_cell_file(ab_option_name(id, names[id]), pattern, cell->id, path, size));
    r->worker_argv[(*words)++] = names[id];
    r->worker_argv[(*words)++] = path;
    return AB_OK;
}

/* Remembers the first cell that ran out of memory, with the numbers of its plan. */
static void note_memory_failure(ab_run_state *r, const ab_cell_spec *cell, const char *reason) {
    const ab_cell_config settings = ab_cell_config_of(&r->config, cell);
    ab_memory_limit limit;
    ab_plan *plan;
    if (r->short_of_memory++ > 0 || ab_cell_compile(&settings, &plan) != AB_OK) return;
    ab_memory_limit_of("", r->config.device, &limit);
    ab_text_show(r->memory_failure, sizeof r->memory_failure,
                 "%s: %s; its plan has %" PRId64 " bytes of tensors, %" PRId64 " bytes are left: %s",
                 cell->id, reason, ab_memory_needed(&settings, plan), limit.left, limit.text);
    ab_plan_destroy(plan);
}

static ab_status run_process(ab_run_state *r, int round, int position) {
    int index = r->order[round * r->count + position];
    const ab_cell_spec *cell = &r->cells[index];
    char weights[4096] = "", checkpoint[4096] = "", gradients[4096] = "";
    const int64_t steps = round == 0 ? r->config.steps : r->later_steps;
    AB_TRY(ab_run_start_task(r, index, round == 0 ? AB_WORKER_FULL : AB_WORKER_TIMED, steps));
    int n = AB_WORKER_ARGS;
    while (r->worker_argv[n]) n++;
    const int words = n;
    if (round == 0) {
        AB_TRY(add_file(r, AB_OPTION_save_weights, r->options.text[AB_OPTION_save_weights], cell, weights,
                        sizeof weights, &n));
        AB_TRY(add_file(r, AB_OPTION_save_gradients, r->options.text[AB_OPTION_save_gradients], cell,
                        gradients, sizeof gradients, &n));
        AB_TRY(add_file(r, AB_OPTION_checkpoint, r->checkpoints, cell, checkpoint, sizeof checkpoint, &n));
    }
    ab_process_watch watch = {tick, r, r->config.cell_timeout_s, &ab_run_stop_requested, &r->link};
    ab_process process;
    const cJSON *added = NULL;
    ab_progress_process(&r->progress, cell->id, steps);
    AB_TRY(ab_monitor_start(&r->monitor, &r->config, cell, round == 0, &r->progress));
    ab_status status = ab_process_run(r->worker_argv, &watch, &process);
    while (n > words) r->worker_argv[--n] = NULL;
    if (status == AB_OK) status = ab_run_end_task(r, &process);
    if (process.short_of_memory) note_memory_failure(r, cell, process.reason);
    if (process.reason[0]) { /* it may have been killed while it wrote */
        ab_outfile_remove_stale(weights);
        ab_outfile_remove_stale(checkpoint);
    }
    if (status == AB_OK)
        status = ab_record_process(r->record.cell[index], round, position, round == 0, &process, &added);
    if (r->document) ab_record_limits(r->document, &process);
    ab_progress_process_done(&r->progress, process.interrupted ? "" : process.reason);
    ab_process_clear(&process);
    return status == AB_OK ? ab_run_keep(r, index, round == 0, added) : status;
}

ab_status ab_run_rounds(ab_run_state *r) {
    char build[AB_BUILD_TEXT];
    ab_progress_start(&r->progress, r->part || r->options.given[AB_OPTION_quiet], ab_run_count_due(r),
                      r->config.batch, ab_build_slow(ab_json_at(r->document, "generator"), build));
    for (int round = 0; round < r->config.rounds; round++) {
        if (round == 1) AB_TRY(ab_run_choose_steps(r));
        for (int p = 0; p < r->count; p++) {
            if (!ab_run_is_due(r, round, p)) continue;
            AB_TRY(run_process(r, round, p));
            if (r->group.failed && !ab_run_stop_requested) return ab_fail(AB_SYSTEM, "%s", r->group.reason);
            if (ab_run_stop_requested)
                return ab_fail(AB_INTERRUPTED, "interrupted; finish with: ampbench run --resume --out %s",
                               r->options.text[AB_OPTION_out]);
        }
    }
    ab_progress_end(&r->progress);
    AB_TRY(ab_group_send_task(&r->group, &(ab_group_task){.cell = -1}));
    r->group.ended = true;
    return AB_OK;
}
