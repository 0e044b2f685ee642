/* The run: schedules the cells and runs one process after the other. */
#define _GNU_SOURCE
#include "bench/run/run.h"

#include "bench/memory/limits.h"
#include "bench/mpi/group.h"
#include "bench/run/configure.h"
#include "bench/run/digest.h"
#include "bench/run/environment.h"
#include "bench/run/monitor.h"
#include "bench/run/progress.h"
#include "bench/run/record.h"
#include "bench/run/shared_data.h"
#include "bench/run/worker.h"
#include "bench/timer/timer.h"
#include "build_info.h"
#include "kernels/core/log.h"
#include "kernels/core/rng.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/files/outfile.h"
#include "kernels/mpi/mpi.h"
#include "reports/record/journal.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static volatile sig_atomic_t stop_requested;

static void on_signal(int number) { stop_requested = number; }

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

typedef struct run {
    ab_options options;
    ab_run_config config;
    ab_cell_spec *cells;
    int count;
    int *order; /* [rounds][count]; -1: nothing at this position */
    cJSON *document;
    ab_replay replay;        /* with --resume: the options of the document */
    ab_journal_cells record; /* the cells of the document */
    ab_journal journal;
    int kept;                    /* processes in the journal */
    int64_t saved_ns, saving_ns; /* when the document was last written, and how long that took */
    char **worker_argv;          /* argv of a worker; the words of the task are set per process */
    char task[5][32];            /* texts of those words */
    char checkpoints[4096];      /* pattern of checkpoint files; "": none */
    ab_run_locks locks;
    int data_fd;
    ab_group group; /* with --ranks mpi */
    ab_process_link link;
    int64_t started_ns;
    ab_progress progress;
    ab_monitor monitor;
    int short_of_memory;         /* cells that failed because memory ran out */
    const ab_run_driver *driver; /* with --launch */
    void *driven;
    int *part;                 /* [count], of a part: the cells' numbers in the whole run */
    bool watches;              /* a part that ends with standard input */
    char memory_failure[1024]; /* the first of them */
} run;

/* ---- before ---------------------------------------------------------------------------------- */

/* Only the losses of the noise floor and of further seeds are used: one round is enough. */
static bool is_timed(const run *r, int cell) {
    return !r->cells[cell].perturbation && r->cells[cell].seed == r->config.seed;
}

/* Each round runs every timed cell once, in a random order per round. */
static ab_status draw_order(run *r) {
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
            if (round > 0 && !is_timed(r, order[i])) order[i] = -1;
    }
    return AB_OK;
}

/* Checks every file that `option` would write or read. */
static ab_status check_files(const run *r, const char *option, const char *pattern, bool written) {
    char path[4096];
    if (r->count > 1 && !strstr(pattern, "%c"))
        return ab_fail(AB_USAGE, "%s: %d cells would %s the same file; put %%c (the cell's id) into '%s'",
                       option, r->count, written ? "write" : "go on from", pattern);
    for (int i = 0; i < r->count; i++) {
        AB_TRY(ab_cell_file(option, pattern, r->cells[i].id, path, sizeof path));
        if (written) AB_TRY(ab_output_check_writable(option, path));
    }
    return AB_OK;
}

/* Cells run one after the other: each is compared with all that is left. */
static ab_status check_plans(const run *r) {
    const bool check = !r->options.given[AB_OPTION_no_memory_check] && !r->driver;
    ab_memory_limit limit;
    ab_memory_limit_of("", r->config.device, &limit);
    for (int i = 0; i < r->count; i++) {
        ab_plan *plan;
        const ab_cell_config settings = ab_cell_config_of(&r->config, &r->cells[i]);
        AB_TRY(ab_cell_compile(&settings, &plan));
        ab_status status = check ? ab_memory_check(&limit, &settings, plan, r->cells[i].id) : AB_OK;
        ab_plan_destroy(plan);
        AB_TRY(status);
    }
    return AB_OK;
}

/* Checks what would otherwise only fail in a worker: plans of all cells, shapes of initial weights. */
static ab_status dry_run(const run *r) {
    AB_TRY(check_plans(r));
    const char *resumed = r->config.resume_file;
    if (resumed) AB_TRY(check_files(r, "--resume-from", resumed, false));
    for (int i = 0; i < (resumed ? r->count : r->config.init_file ? 1 : 0); i++) {
        ab_cell *cell;
        ab_cell_config settings = ab_cell_config_of(&r->config, &r->cells[i]);
        AB_TRY(ab_cell_create(&settings, &cell));
        ab_status status = ab_cell_continue(&r->config, &r->cells[i], cell);
        ab_cell_destroy(cell);
        if (status != AB_OK) return status;
    }
    return AB_OK;
}

static ab_status check_outputs(run *r) {
    const char *json = r->options.text[AB_OPTION_json], *weights = r->options.text[AB_OPTION_save_weights];
    const char *color = r->options.text[AB_OPTION_color];
    if (json && strcmp(json, "-") != 0)
        return ab_fail(AB_USAGE, "--json: expected -, found '%s'; --out FILE names a file", json);
    if (strcmp(color, "auto") != 0 && strcmp(color, "always") != 0 && strcmp(color, "never") != 0)
        return ab_fail(AB_USAGE, "--color: expected auto, always or never, found '%s'", color);
    /* first: it makes the folder that the weights may go to */
    AB_TRY(ab_output_prepare(&r->options, &r->locks));
    if (weights) {
        AB_TRY(check_files(r, "--save-weights", weights, true));
        AB_TRY(ab_output_lock("--save-weights", weights, &r->locks.weights));
    }
    const char *gradients = r->options.text[AB_OPTION_save_gradients];
    if (gradients) AB_TRY(check_files(r, "--save-gradients", gradients, true));
    if (!r->checkpoints[0]) return AB_OK;
    AB_TRY(check_files(r, "--checkpoint", r->checkpoints, true));
    return ab_output_lock("--checkpoint", r->checkpoints, &r->locks.checkpoints);
}

/* "ampbench worker <task> <configuration options>". Words of the task are set by set_task. */
static ab_status build_worker_argv(run *r) {
    const size_t most = AB_WORKER_ARGS + AB_OPTIONS_WORDS + 4 + 1;
    r->worker_argv = calloc(most, sizeof *r->worker_argv);
    if (!r->worker_argv) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    ab_options_words(&r->options, r->worker_argv + AB_WORKER_ARGS);
    return AB_OK;
}

/* Checkpoints are written to the document's folder unless --checkpoint names a path. */
static ab_status place_checkpoints(run *r) {
    const char *given = r->options.text[AB_OPTION_checkpoint], *out = r->options.text[AB_OPTION_out];
    const char *slash = strrchr(out, '/');
    if (given && r->config.checkpoint_every == 0)
        return ab_fail(AB_USAGE, "--checkpoint: say how often with --checkpoint-every N");
    if (r->config.checkpoint_every > 0)
        AB_TRY(ab_text_path(given ? "--checkpoint" : "--out", r->checkpoints, sizeof r->checkpoints, "%.*s%s",
                            slash && !given ? (int)(slash + 1 - out) : 0, out,
                            given ? given : "checkpoint-%c.safetensors"));
    const char *from = r->config.resume_file;
    if (from && strcmp(from, r->checkpoints) == 0)
        return ab_fail(
            AB_USAGE,
            "--checkpoint would overwrite the files that --resume-from %s reads; give it another name", from);
    return AB_OK;
}

/* Looking a cell up by its number in the document takes a walk through the cells before it. */
static ab_status list_cells(run *r) {
    cJSON *cell;
    ab_journal_cells *record = &r->record;
    record->list = cJSON_GetObjectItem(r->document, "cells");
    record->cell = calloc((size_t)r->count + 1, sizeof *record->cell);
    if (!record->cell) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    cJSON_ArrayForEach(cell, record->list) {
        if (record->count < r->count) record->cell[record->count++] = cell;
    }
    return AB_OK;
}

static uint64_t build_digest(void) {
    static const char text[] = AB_VERSION " " AB_GIT_SHA " " AB_FLAGS;
    return ab_digest_add(ab_digest_start(), text, sizeof text).state;
}

/* What the others must share with rank 0: the build, and the options of the configuration. */
static ab_status compare_ranks(run *r) {
    ab_digest options = ab_digest_start();
    for (int i = AB_WORKER_ARGS; r->worker_argv[i]; i++)
        options = ab_digest_add(options, r->worker_argv[i], strlen(r->worker_argv[i]) + 1);
    return ab_group_compare(&r->group, &(ab_group_identity){options.state, build_digest()});
}

static ab_status prepare(run *r, int argc, char *const *argv) {
    AB_TRY(ab_run_config_create(&r->options, true, &r->config));
    AB_TRY(place_checkpoints(r));
    AB_TRY(ab_run_cells(&r->config, &r->cells, &r->count));
    AB_TRY(dry_run(r));
    AB_TRY(check_outputs(r));
    AB_TRY(draw_order(r));
    ab_environment_prepare_workers();
    AB_TRY(build_worker_argv(r));
    AB_TRY(compare_ranks(r));
    AB_TRY(ab_shared_data_create(r->config.data, &r->data_fd));
    if (r->document)
        AB_TRY(ab_resume_check(r->document, &r->config, &r->options, r->cells, r->count));
    else
        AB_TRY(ab_record_create(&r->config, &r->options, argc, argv, r->cells, r->count, r->order,
                                &r->document));
    return list_cells(r);
}

/* ---- during ---------------------------------------------------------------------------------- */

static double elapsed_s(const run *r) { return (double)(ab_monotonic_ns() - r->started_ns) * 1e-9; }

/* Writes the document as of now and begins its journal. */
static ab_status save(run *r) {
    const int64_t begun = ab_monotonic_ns();
    const char *path = r->options.text[AB_OPTION_out];
    ab_record_finish(r->document, false, 0, elapsed_s(r));
    AB_TRY(ab_result_summarise(r->document));
    AB_TRY(ab_result_write(r->document, path));
    AB_TRY(ab_journal_start(&r->journal, path, r->document));
    r->kept = 0;
    r->saved_ns = ab_monotonic_ns();
    r->saving_ns = r->saved_ns - begun;
    return AB_OK;
}

/* Writes the document for the last time: nothing is left for a journal. */
static ab_status save_finished(run *r, ab_status outcome) {
    ab_record_finish(r->document, true, ab_status_exit(outcome), elapsed_s(r));
    AB_TRY(ab_result_summarise(r->document));
    AB_TRY(ab_result_write(r->document, r->options.text[AB_OPTION_out]));
    ab_journal_end(&r->journal, r->options.text[AB_OPTION_out]);
    return AB_OK;
}

/* The journal keeps every process; the document is written again when that takes at most 5 % of the time
 * since the last. So the time of a run grows with its cells, and small documents are never old. */
static ab_status keep(run *r, int index, bool whole, const cJSON *process) {
    enum { REWRITING_SHARE = 20 };
    if (r->part)
        return ab_journal_print(stdout, r->part[index], r->record.cell[index], whole, process, elapsed_s(r));
    AB_TRY(ab_journal_add(&r->journal, index, r->record.cell[index], whole, process, elapsed_s(r)));
    r->kept++;
    const bool due = ab_monotonic_ns() - r->saved_ns >= REWRITING_SHARE * r->saving_ns;
    return due || stop_requested ? save(r) : AB_OK;
}

/* Standard input of a part is open as long as somebody wants it. */
static void watch_input(const run *r) {
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    char byte;
    if (r->watches && poll(&in, 1, 0) > 0 && read(STDIN_FILENO, &byte, 1) <= 0) stop_requested = SIGHUP;
}

static void tick(void *context, const ab_process *process) {
    run *r = context;
    watch_input(r);
    ab_monitor_see(&r->monitor, process);
}

/* Adds "option path" to a worker's words if there is a pattern; `words` counts them. */
static ab_status add_file(run *r, ab_option_id id, const char *pattern, const ab_cell_spec *cell, char *path,
                          size_t size, int *words) {
    static char names[AB_OPTION_COUNT][AB_OPTION_NAME];
    if (!pattern || !pattern[0]) return AB_OK;
    AB_TRY(ab_cell_file(ab_option_name(id, names[id]), pattern, cell->id, path, size));
    r->worker_argv[(*words)++] = names[id];
    r->worker_argv[(*words)++] = path;
    return AB_OK;
}

/* Remembers the first cell that ran out of memory, with the numbers of its plan. */
static void note_memory_failure(run *r, const ab_cell_spec *cell, const char *reason) {
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

static void set_task(run *r, const ab_cell_spec *cell, ab_worker_kind kind) {
    static char program[] = "ampbench", command[] = "worker";
    const int64_t value[] = {cell->place, kind, ab_monotonic_ns(), r->data_fd, r->config.probe_every};
    char *words[AB_WORKER_ARGS] = {program, command, (char *)(uintptr_t)cell->id};
    for (size_t i = 0; i < AB_COUNT_OF(value); i++) {
        ab_text_exact(r->task[i], sizeof r->task[i], "%" PRId64, value[i]);
        words[3 + i] = r->task[i];
    }
    memcpy(r->worker_argv, words, sizeof words);
}

/* ---- ranks of an MPI job --------------------------------------------------------------------- */

static ab_status serve(void *context, bool ready, int64_t deadline_ns) {
    run *r = context;
    return ab_group_serve(&r->group, ready, deadline_ns);
}

/* Sets the words of the task, here and at the other ranks. */
static ab_status start_task(run *r, int cell, ab_worker_kind kind) {
    set_task(r, &r->cells[cell], kind);
    if (!r->group.mpi) return AB_OK;
    if (r->group.failed) return ab_fail(AB_SYSTEM, "%s", r->group.reason);
    return ab_group_send_task(&r->group, &(ab_group_task){cell, kind, r->config.probe_every});
}

/* After a worker: waits for those of the other ranks. A failure there is one of this process. */
static ab_status end_task(run *r, ab_process *process) {
    if (!r->group.mpi || process->interrupted) return AB_OK;
    if (process->reason[0]) {
        ab_group_fail(&r->group, process->reason);
        return AB_OK;
    }
    if (ab_group_done(&r->group) == AB_OK) return AB_OK;
    if (stop_requested || r->group.place.rank > 0) return AB_INTERRUPTED;
    ab_text_show(process->reason, sizeof process->reason, "%s", ab_error_message());
    return AB_OK;
}

static void no_tick(void *context, const ab_process *process) {
    (void)context;
    (void)process;
}

/* A rank that is not the first: runs the workers that the first one names. */
static ab_status follow(run *r) {
    const ab_process_watch watch = {no_tick, NULL, 0, &stop_requested, &r->link};
    for (;;) {
        ab_group_task task;
        ab_process process;
        AB_TRY(ab_group_wait_task(&r->group, &task));
        r->group.ended = task.cell < 0 || task.cell >= r->count;
        if (r->group.ended) return AB_OK;
        r->config.probe_every = task.every;
        set_task(r, &r->cells[task.cell], (ab_worker_kind)task.kind);
        AB_TRY(ab_process_run(r->worker_argv, &watch, &process));
        ab_status status = end_task(r, &process);
        if (process.reason[0]) status = ab_fail(AB_SYSTEM, "%s", process.reason);
        ab_process_clear(&process);
        AB_TRY(status);
    }
}

/* What prepare does, without the outputs. */
static ab_status run_as_follower(run *r) {
    AB_TRY(ab_run_config_create(&r->options, true, &r->config));
    AB_TRY(ab_run_cells(&r->config, &r->cells, &r->count));
    ab_environment_prepare_workers();
    AB_TRY(build_worker_argv(r));
    AB_TRY(compare_ranks(r));
    AB_TRY(ab_shared_data_create(r->config.data, &r->data_fd));
    catch_signals();
    return follow(r);
}

/* ---- which steps are probed ------------------------------------------------------------------ */

/* Whether what probing costs is measured for this cell: the first of its level and half format. */
static bool is_measured(const run *r, int cell) {
    for (int i = 0; i < cell; i++)
        if (r->cells[i].level == r->cells[cell].level && r->cells[i].half == r->cells[cell].half)
            return false;
    return true;
}

/* A cell that fails here fails again, and is reported, when it is run. */
static ab_status measure_probing(run *r, const ab_cell_spec *cell, ab_probe_cost *cost, int *costs) {
    const ab_process_watch watch = {no_tick, NULL, r->config.cell_timeout_s, &stop_requested, &r->link};
    ab_process process;
    AB_TRY(start_task(r, (int)(cell - r->cells), AB_WORKER_PROBING));
    AB_TRY(ab_process_run(r->worker_argv, &watch, &process));
    AB_TRY(end_task(r, &process));
    const cJSON *event = process.probe_cost;
    if (event && !process.reason[0])
        cost[(*costs)++] =
            (ab_probe_cost){ab_json_number(event, "step_ns", 0), ab_json_number(event, "probe_ns", 0)};
    ab_process_clear(&process);
    return AB_OK;
}

/* The same steps in every cell: those of the document that is resumed, or those that the budget allows. */
static ab_status choose_probed_steps(run *r) {
    ab_run_config *config = &r->config;
    const double chosen = ab_json_number(r->document, "design.probing.every", 0);
    int processes = 0, costs = 0;
    if (config->probe_budget <= 0) return AB_OK;
    if (chosen >= 1) {
        config->probe_every = (int64_t)chosen;
        return AB_OK;
    }
    ab_probe_cost *cost = calloc((size_t)r->count + 1, sizeof *cost);
    if (!cost) return ab_fail(AB_NO_MEMORY, "run: out of memory");
    for (int64_t i = 0; i < config->rounds * r->count; i++) processes += r->order[i] >= 0;
    ab_status status = AB_OK;
    for (int i = 0; i < r->count && ab_probe_has_choice(config->steps) && !stop_requested; i++)
        if (is_measured(r, i)) AB_TRY_GOTO(measure_probing(r, &r->cells[i], cost, &costs));
    config->probe_every =
        ab_probe_interval(config->probe_budget, config->steps, (double)processes / r->count, cost, costs);
    ab_record_probing(r->document, config->probe_every, config->probe_budget, cost, costs);
out:
    free(cost);
    return status;
}

/* ---- processes ------------------------------------------------------------------------------- */

static ab_status run_process(run *r, int round, int position) {
    int index = r->order[round * r->count + position];
    const ab_cell_spec *cell = &r->cells[index];
    char weights[4096] = "", checkpoint[4096] = "", gradients[4096] = "";
    AB_TRY(start_task(r, index, round == 0 ? AB_WORKER_FULL : AB_WORKER_TIMED));
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
    ab_process_watch watch = {tick, r, r->config.cell_timeout_s, &stop_requested, &r->link};
    ab_process process;
    const cJSON *added = NULL;
    ab_progress_process(&r->progress, cell->id);
    AB_TRY(ab_monitor_start(&r->monitor, &r->config, cell, round == 0, &r->progress));
    ab_status status = ab_process_run(r->worker_argv, &watch, &process);
    while (n > words) r->worker_argv[--n] = NULL;
    if (status == AB_OK) status = end_task(r, &process);
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
    return status == AB_OK ? keep(r, index, round == 0, added) : status;
}

static bool is_due(const run *r, int round, int position) {
    int index = r->order[round * r->count + position];
    return index >= 0 && !ab_record_has_round(r->record.cell[index], round) &&
           strcmp(ab_record_status(r->record.cell[index]), "failed") != 0;
}

static int count_due(const run *r) {
    int due = 0;
    for (int round = 0; round < r->config.rounds; round++)
        for (int p = 0; p < r->count; p++) due += is_due(r, round, p);
    return due;
}

static ab_status run_rounds(run *r) {
    char build[AB_BUILD_TEXT];
    ab_progress_start(&r->progress, r->part || r->options.given[AB_OPTION_quiet], count_due(r),
                      r->config.steps, r->config.batch,
                      ab_build_slow(ab_json_at(r->document, "generator"), build));
    for (int round = 0; round < r->config.rounds; round++) {
        for (int p = 0; p < r->count; p++) {
            if (!is_due(r, round, p)) continue;
            AB_TRY(run_process(r, round, p));
            if (r->group.failed && !stop_requested) return ab_fail(AB_SYSTEM, "%s", r->group.reason);
            if (stop_requested)
                return ab_fail(AB_INTERRUPTED, "interrupted; finish with: ampbench run --resume --out %s",
                               r->options.text[AB_OPTION_out]);
        }
    }
    ab_progress_end(&r->progress);
    AB_TRY(ab_group_send_task(&r->group, &(ab_group_task){.cell = -1}));
    r->group.ended = true;
    return AB_OK;
}

/* ---- cells that run elsewhere ----------------------------------------------------------------- */

bool ab_run_is_done(const ab_run_work *work, int cell) {
    const run *r = work->run;
    if (strcmp(ab_record_status(r->record.cell[cell]), "failed") == 0) return true;
    for (int round = 0; round < (is_timed(r, cell) ? r->config.rounds : 1); round++)
        if (!ab_record_has_round(r->record.cell[cell], round)) return false;
    return true;
}

ab_status ab_run_take_machine(const ab_run_work *work, const char *name, cJSON *line, int *machine) {
    run *r = work->run;
    bool added;
    if (strcmp(ab_json_text(line, "run", ""), ab_json_text(r->document, "run.id", "-")) != 0)
        return ab_fail(AB_INPUT, "%s: cells of another run", name);
    AB_TRY(ab_record_machine(r->document, name, line, machine, &added));
    return added ? save(r) : AB_OK;
}

ab_status ab_run_take_line(const ab_run_work *work, cJSON *line, int machine, int *cell) {
    run *r = work->run;
    if (!ab_journal_take(&r->record, line, cell)) return ab_fail(AB_INPUT, "a part's line is not sound");
    cJSON *taken = r->record.cell[*cell];
    cJSON_DeleteItemFromObjectCaseSensitive(taken, "machine");
    cJSON_AddNumberToObject(taken, "machine", machine);
    return keep(r, *cell, true, NULL);
}

ab_status ab_run_give_up(const ab_run_work *work, int cell, const char *reason) {
    run *r = work->run;
    ab_record_fail(r->record.cell[cell], reason);
    return keep(r, cell, true, NULL);
}

/* Of the build and of what every cell is. */
static void identify(const run *r, char identity[34]) {
    char build[17], cells[17];
    ab_digest digest = ab_digest_start();
    for (int i = 0; i < r->count; i++) digest = ab_digest_add(digest, r->cells[i].digest, 16);
    ab_text_exact(identity, 34, "%s:%s", ab_digest_text((ab_digest){build_digest()}, build),
                  ab_digest_text(digest, cells));
}

static ab_status drive(run *r, bool *later) {
    ab_run_work work = {.options = &r->options,
                        .config = &r->config,
                        .document = r->document,
                        .cells = r->count,
                        .words = r->worker_argv + AB_WORKER_ARGS,
                        .stop = &stop_requested,
                        .run = r};
    identify(r, work.identity);
    ab_status status = r->driver->cells(r->driven, &work, later);
    const ab_status saved = status == AB_OK ? AB_OK : save(r);
    if (!stop_requested) return status == AB_OK ? saved : status;
    return ab_fail(AB_INTERRUPTED, "interrupted; finish with: ampbench run --resume --out %s",
                   r->options.text[AB_OPTION_out]);
}

/* All processes of all cells. A rank's failure, whenever it comes, stays in the document. */
static ab_status run_cells(run *r, bool *later) {
    ab_status status = choose_probed_steps(r);
    if (status == AB_OK) status = r->driver ? drive(r, later) : run_rounds(r);
    if (!r->group.failed || stop_requested) return status;
    ab_record_warn(r->document, r->group.reason);
    AB_TRY(save(r));
    return ab_fail(AB_SYSTEM, "%s; finish with: ampbench run --resume --out %s under mpirun", r->group.reason,
                   r->options.text[AB_OPTION_out]);
}

/* ---- after ----------------------------------------------------------------------------------- */

static ab_status verdict(const run *r) {
    int failed = 0;
    const cJSON *first = NULL; /* that failed */
    for (int i = r->count - 1; i >= 0; i--) {
        if (strcmp(ab_record_status(r->record.cell[i]), "ok") == 0) continue;
        first = r->record.cell[i];
        failed++;
    }
    if (failed && failed == r->short_of_memory)
        return ab_fail(AB_NO_MEMORY, "%d of %d cells ran out of memory; %s", failed, r->count,
                       r->memory_failure);
    if (failed)
        return ab_fail(AB_INTERNAL, "%d of %d cells failed; %s: %s", failed, r->count,
                       ab_json_text(first, "id", ""), ab_json_text(first, "reason", "no reason recorded"));
    const cJSON *determinism = cJSON_GetObjectItem(r->document, "determinism");
    if (cJSON_IsFalse(cJSON_GetObjectItem(determinism, "all_cells_deterministic")))
        ab_warn("a cell's losses differed between rounds: this machine's results are not reproducible bit "
                "for bit");
    return AB_OK;
}

/* Warns of injected faults. */
static void warn_of_faults(const ab_recipe *recipe) {
    for (int i = 0; i < AB_FAULT_COUNT; i++)
        if (recipe->faults >> i & 1u) ab_warn("--fault %s: %s", ab_fault_name(i), ab_fault_text(i));
    if (recipe->schedule_on_skip)
        ab_warn("--schedule-on-skip: the schedule runs ahead of the training at every skipped step");
}

static void warn_of(const run *r, const char *text) {
    if (!text[0]) return;
    ab_warn("%s", text);
    ab_record_warn(r->document, text);
}

/* Options without effect are said on stderr and in the document. */
static void warn_of_unused(const run *r) {
    char text[480];
    ab_level_options_unused(&r->options, r->config.level, r->config.levels, text, sizeof text);
    warn_of(r, text);
    ab_run_unused_scaling(&r->options, r->cells, r->count, text, sizeof text);
    warn_of(r, text);
}

static ab_status open_group(run *r) {
    const char *ranks = r->options.text[AB_OPTION_ranks];
    r->link = (ab_process_link){.fd = -1, .serve = serve, .context = r};
    if (strcmp(ranks, "mpi") != 0) return AB_OK;
    AB_TRY(ab_group_open(&r->group, &stop_requested));
    if (r->group.relay.mpi) r->link.fd = r->group.relay.socket;
    if (r->group.place.rank > 0) ab_log_set_level(AB_LOG_QUIET);
    return AB_OK;
}

static ab_status open_driver(run *r, bool *helps) {
    static const ab_option_id left_there[] = {AB_OPTION_save_weights, AB_OPTION_save_gradients,
                                              AB_OPTION_checkpoint_every};
    char name[AB_OPTION_NAME];
    if (!r->options.given[AB_OPTION_launch]) {
        r->driver = NULL;
        return AB_OK;
    }
    for (size_t i = 0; i < AB_COUNT_OF(left_there); i++)
        if (r->options.given[left_there[i]])
            return ab_fail(AB_USAGE, "--launch: %s would leave files on the machines that run the cells",
                           ab_option_name(left_there[i], name));
    if (strcmp(r->options.text[AB_OPTION_ranks], "mpi") == 0)
        return ab_fail(AB_USAGE,
                       "--launch: the processes of an MPI job are cells or ranks (--ranks mpi), not "
                       "both");
    catch_signals();
    return r->driver->open(&r->options, &stop_requested, &r->driven, helps);
}

static ab_status lock_resumed(run *r) {
    const char *out = r->options.text[AB_OPTION_out];
    return access(out, F_OK) == 0 ? ab_output_lock("--resume", out, &r->locks.document) : AB_OK;
}

/* Locked before it is read: a run that has not ended writes it. Of the processes of an MPI job only the first
 * one writes; if it cannot, it says so when it can tell the others. */
static ab_status read_resumed(run *r) {
    const ab_status locked = ab_mpi_launched_rank() == 0 ? lock_resumed(r) : AB_OK;
    if (!ab_mpi_launcher()) AB_TRY(locked);
    return ab_resume_options(&r->options, &r->document, &r->replay);
}

static ab_status run_all(run *r, int argc, char *const *argv) {
    bool helps = false, later = false;
    const bool resumed = r->options.given[AB_OPTION_resume];
    if (resumed) AB_TRY(read_resumed(r));
    AB_TRY(open_driver(r, &helps));
    if (helps) return r->driver->help(r->driven, &r->options);
    AB_TRY(open_group(r));
    if (r->group.place.rank > 0) return run_as_follower(r);
    if (resumed) AB_TRY(lock_resumed(r));
    AB_TRY(prepare(r, argc, argv));
    warn_of_faults(&r->config.recipe);
    warn_of_unused(r);
    if (r->config.why_not_gpu) ab_info("--device auto: the GPU is not used: %s", r->config.why_not_gpu);
    AB_TRY(save(r));
    catch_signals();
    AB_TRY(run_cells(r, &later));
    if (later) return AB_OK;
    ab_status outcome = verdict(r);
    AB_TRY(save_finished(r, outcome));
    AB_TRY(ab_output_reports(&r->options, r->document));
    return outcome == AB_OK ? AB_OK : verdict(r);
}

/* A rank that stops before its time says why; the job ends. */
static void end_group(run *r, ab_status status) {
    const bool finished = status == AB_OK || r->group.ended;
    if (!r->group.mpi) return;
    if (!finished && r->group.place.ranks > 1) ab_group_fail(&r->group, ab_error_message());
    if (!finished && r->group.place.rank == 0 && ab_error_message()[0])
        ab_print(stderr, "ampbench: %s\n", ab_error_message());
    ab_group_close(&r->group, ab_status_exit(status));
}

static void clear(run *r) {
    if (r->data_fd >= 0) close(r->data_fd);
    ab_run_config_clear(&r->config);
    cJSON_Delete(r->document);
    ab_replay_clear(&r->replay);
    ab_run_cells_free(r->cells, r->count);
    free(r->order);
    free(r->record.cell);
    free(r->worker_argv);
    free(r->part);
}

ab_status ab_run(int argc, char *const *argv, const ab_run_driver *driver) {
    run r = {.data_fd = -1, .started_ns = ab_monotonic_ns(), .driver = driver};
    AB_TRY(ab_options_parse(argc, argv, &r.options));
    if (r.options.given[AB_OPTION_verbose]) ab_log_set_level(AB_LOG_INFO);
    ab_status status = run_all(&r, argc, argv);
    end_group(&r, status);
    ab_journal_end(&r.journal, r.journal.out.stream && r.kept == 0 ? r.options.text[AB_OPTION_out] : NULL);
    ab_output_release(&r.options, &r.locks);
    if (r.driver) r.driver->close(r.driven, status);
    clear(&r);
    return status;
}

/* ---- a part of a run that another process records --------------------------------------------- */

/* Cells as text, "0-9,14", in increasing order. */
static ab_status parse_part(run *r, const char *text) {
    int last = -1, n = 0;
    r->part = calloc((size_t)r->count + 1, sizeof *r->part);
    if (!r->part) return ab_fail(AB_NO_MEMORY, "part: out of memory");
    for (const char *at = text; *at;) {
        int from, to, length = 0;
        if (sscanf(at, "%d-%d%n", &from, &to, &length) < 2) {
            length = 0;
            if (sscanf(at, "%d%n", &from, &length) == 1) to = from;
        }
        if (length == 0 || from <= last || to < from || to >= r->count)
            return ab_fail(AB_USAGE, "part: expected cells such as 0-9,14 below %d, found '%s'", r->count,
                           text);
        while (from <= to) r->part[n++] = last = from++;
        at += length;
        at += *at == ',';
    }
    for (int i = 0, kept = 0; i < r->count; i++) {
        if (kept < n && r->part[kept] == i)
            r->cells[kept++] = r->cells[i];
        else
            free(r->cells[i].id);
    }
    r->count = n;
    return AB_OK;
}

static ab_status check_identity(const run *r, const char *wanted) {
    char own[34];
    identify(r, own);
    if (strcmp(own, wanted) == 0) return AB_OK;
    if (strncmp(own, wanted, 17) != 0)
        return ab_fail(AB_NOT_COMPARABLE, "another build of ampbench (%s, %s)", AB_VERSION, AB_GIT_SHA);
    return ab_fail(AB_NOT_COMPARABLE, "the same options give other cells there: another network, data set or "
                                      "device");
}

static ab_status print_machine(const run *r, const char *id) {
    char class[17];
    cJSON *line = cJSON_CreateObject(), *document = r->document;
    cJSON *generator = cJSON_GetObjectItem(document, "generator"),
          *machine = cJSON_GetObjectItem(document, "environment");
    ab_environment_class(generator, machine, r->config.device, r->config.threads, class);
    cJSON_AddStringToObject(line, "schema", "ampbench-part");
    cJSON_AddStringToObject(line, "run", id);
    cJSON_AddStringToObject(line, "class", class);
    cJSON_AddNumberToObject(line, "threads", r->config.threads);
    if (getenv("SLURMD_NODENAME")) cJSON_AddStringToObject(line, "name", getenv("SLURMD_NODENAME"));
    cJSON_AddItemReferenceToObject(line, "generator", generator);
    cJSON_AddItemReferenceToObject(line, "environment", machine);
    cJSON_AddItemReferenceToObject(line, "comparability_key",
                                   cJSON_GetObjectItem(document, "comparability_key"));
    ab_json_print_line(line, stdout);
    cJSON_Delete(line);
    return fflush(stdout) == 0 ? AB_OK : ab_fail(AB_OUTPUT, "stdout: cannot write");
}

/* The processors are shared by `sharing` such processes. */
static void share_threads(run *r, int sharing, char text[16]) {
    if (sharing < 2 || r->options.given[AB_OPTION_threads]) return;
    r->config.threads = r->config.threads / sharing > 1 ? r->config.threads / sharing : 1;
    r->options.text[AB_OPTION_threads] = ab_text_exact(text, 16, "%d", r->config.threads);
    r->options.given[AB_OPTION_threads] = true;
}

static ab_status run_part(run *r, int argc, char *const *argv) {
    char threads[16];
    AB_TRY(ab_options_parse(argc - AB_PART_ARGS + 1, argv + AB_PART_ARGS - 1, &r->options));
    AB_TRY(ab_run_config_create(&r->options, true, &r->config));
    AB_TRY(ab_run_cells(&r->config, &r->cells, &r->count));
    AB_TRY(check_identity(r, argv[2]));
    AB_TRY(parse_part(r, argv[1]));
    AB_TRY(check_plans(r));
    AB_TRY(draw_order(r));
    share_threads(r, atoi(argv[4]), threads);
    r->config.probe_every = atoll(argv[3]);
    r->watches = strcmp(argv[6], "watch") == 0;
    ab_environment_prepare_workers();
    AB_TRY(build_worker_argv(r));
    AB_TRY(ab_shared_data_create(r->config.data, &r->data_fd));
    AB_TRY(ab_record_create(&r->config, &r->options, argc, argv, r->cells, r->count, r->order, &r->document));
    AB_TRY(list_cells(r));
    AB_TRY(print_machine(r, argv[5]));
    catch_signals();
    return run_rounds(r);
}

/* The process that reads the lines has the error's message from them. */
static void print_failure(ab_status status) {
    cJSON *line = cJSON_CreateObject();
    if (status == AB_OK || status == AB_INTERRUPTED || !line) return;
    cJSON_AddStringToObject(line, "error", ab_error_message());
    ab_json_print_line(line, stdout);
    cJSON_Delete(line);
    fflush(stdout);
}

ab_status ab_run_part(int argc, char *const *argv) {
    run r = {.data_fd = -1, .started_ns = ab_monotonic_ns(), .link = {.fd = -1, .serve = serve}};
    if (argc < AB_PART_ARGS) return ab_fail(AB_USAGE, "part: started by ampbench run --launch only");
    ab_log_set_level(AB_LOG_QUIET);
    r.link.context = &r;
    ab_status status = run_part(&r, argc, argv);
    print_failure(status);
    clear(&r);
    return status;
}
