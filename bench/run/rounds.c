/* Rounds of processes: timed ones one after the other, others side by side. */
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
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Standard input of a part is open as long as somebody wants it. */
static void watch_input(const ab_run_state *r) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    if (r->watches && poll(&in, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0)
        ab_run_stop_requested = SIGHUP;
}

/* A process that runs. */
typedef struct place {
    ab_run_state *r;
    int cell; /* its number */
    ab_process_place at;
    char weights[4096], checkpoint[4096], gradients[4096]; /* files that it writes; "": none */
    ab_monitor monitor;
    ab_running running;
} place;

static void tick(void *context, const ab_process *process) {
    place *p = context;
    watch_input(p->r);
    ab_monitor_see(&p->monitor, process);
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

/* Sets the words of the process. They point into *p. */
static ab_status set_words(ab_run_state *r, place *p, int64_t steps) {
    const ab_cell_spec *cell = &r->cells[p->cell];
    const bool full = p->at.round == 0;
    AB_TRY(ab_run_start_task(r, p->cell, full ? AB_WORKER_FULL : AB_WORKER_TIMED, steps,
                             p->at.beside ? p->at.threads : 0));
    int n = r->words;
    if (full) {
        AB_TRY(add_file(r, AB_OPTION_save_weights, r->options.text[AB_OPTION_save_weights], cell, p->weights,
                        sizeof p->weights, &n));
        AB_TRY(add_file(r, AB_OPTION_save_gradients, r->options.text[AB_OPTION_save_gradients], cell,
                        p->gradients, sizeof p->gradients, &n));
        AB_TRY(
            add_file(r, AB_OPTION_checkpoint, r->checkpoints, cell, p->checkpoint, sizeof p->checkpoint, &n));
    }
    r->worker_argv[n] = NULL;
    return AB_OK;
}

/* A process beside others may take as much longer as it has fewer of the threads. */
static ab_status begin(ab_run_state *r, int round, int position, const ab_run_stretch *stretch, place *p) {
    const int64_t steps = round == 0 ? r->config.steps : r->later_steps;
    *p = (place){.r = r,
                 .cell = r->order[round * r->count + position],
                 .at = {round, position, stretch->width - 1, stretch->threads}};
    const ab_process_watch watch = {tick, p, r->config.cell_timeout_s * stretch->width,
                                    &ab_run_stop_requested, &r->link};
    AB_TRY(set_words(r, p, steps));
    AB_TRY(ab_monitor_start(&p->monitor, &r->config, &r->cells[p->cell], round == 0, steps, &r->progress));
    ab_running_start(r->worker_argv, &watch, &p->running);
    r->worker_argv[r->words] = NULL;
    return AB_OK;
}

/* After the process has ended; `status`: how reading it went. */
static ab_status take(ab_run_state *r, place *p, ab_status status) {
    ab_process *process = &p->running.process;
    const cJSON *added = NULL;
    if (status == AB_OK) status = ab_run_end_task(r, process);
    if (process->short_of_memory) note_memory_failure(r, &r->cells[p->cell], process->reason);
    if (process->reason[0]) { /* it may have been killed while it wrote */
        ab_outfile_remove_stale(p->weights);
        ab_outfile_remove_stale(p->checkpoint);
    }
    if (status == AB_OK) status = ab_record_process(r->record.cell[p->cell], &p->at, process, &added);
    if (r->document) ab_record_limits(r->document, process);
    ab_progress_process_done(&r->progress, &p->monitor.run, process->interrupted ? "" : process->reason);
    ab_running_end(&p->running);
    return status == AB_OK ? ab_run_keep(r, p->cell, p->at.round == 0, added) : status;
}

/* The processes that run, in the first `count` of `width` places. */
typedef struct crew {
    place **place;
    ab_running *running[AB_PROCESSES_MOST];
    int count;
} crew;

/* Waits for one of them, and takes it out. */
static ab_status wait_for_one(ab_run_state *r, crew *c) {
    int ended;
    ab_status status = ab_processes_wait(c->running, c->count, &ended);
    place *over = c->place[ended];
    c->count--;
    c->place[ended] = c->place[c->count];
    c->running[ended] = c->running[c->count];
    c->place[c->count] = over;
    return take(r, over, status);
}

static ab_status run_due(ab_run_state *r, int round, const ab_run_stretch *stretch, crew *c) {
    for (int p = stretch->from; p < stretch->end || c->count > 0;) {
        const bool begins = p < stretch->end && c->count < stretch->width && !ab_run_stop_requested;
        if (!begins && c->count == 0) return AB_OK;
        if (!begins) {
            AB_TRY(wait_for_one(r, c));
        } else if (ab_run_is_due(r, round, p++)) {
            place *next = c->place[c->count];
            AB_TRY(begin(r, round, p - 1, stretch, next));
            c->running[c->count++] = &next->running;
        }
    }
    return AB_OK;
}

static ab_status run_stretch(ab_run_state *r, int round, const ab_run_stretch *stretch) {
    place *all = calloc((size_t)stretch->width, sizeof *all), *at[AB_PROCESSES_MOST];
    crew c = {.place = at};
    if (!all) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    for (int i = 0; i < stretch->width; i++) at[i] = &all[i];
    const ab_status status = run_due(r, round, stretch, &c);
    for (int i = 0; i < c.count; i++) ab_running_end(c.running[i]); /* after a failure */
    free(all);
    return status;
}

ab_status ab_run_rounds(ab_run_state *r) {
    char build[AB_BUILD_TEXT];
    ab_progress_start(&r->progress, r->part || r->options.given[AB_OPTION_quiet], ab_run_count_due(r),
                      r->config.batch, ab_build_slow(ab_json_at(r->document, "generator"), build));
    for (int round = 0; round < r->config.rounds; round++) {
        if (round == 1) AB_TRY(ab_run_choose_steps(r));
        for (int p = 0; p < r->count; p++) {
            if (!ab_run_is_due(r, round, p)) continue;
            const ab_run_stretch stretch = ab_run_stretch_at(r, round, p);
            AB_TRY(run_stretch(r, round, &stretch));
            p = stretch.end - 1;
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
