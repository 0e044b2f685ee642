/* `ampbench fit`: the largest batch that fits a memory limit, per level: found on plans, then confirmed by
 * training steps in a separate process under that limit. All tensors and workspaces of a cell count, as in
 * the record; the resident set, which includes libraries and program, is shown as well. */
#define _GNU_SOURCE
#include "bench/cmd/cmd.h"
#include "bench/cmd/run_options.h"
#include "bench/memory/limits.h"
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "bench/run/environment.h"
#include "bench/run/process.h"
#include "bench/run/shared_data.h"
#include "bench/run/worker.h"
#include "bench/timer/timer.h"
#include "kernels/core/show.h"
#include "kernels/core/text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_BATCH = 1 << 20, STEPS = 2, MOST_TRIES = 24 };
static const double mib = 1024.0 * 1024.0;

static volatile sig_atomic_t never; /* an interrupt ends this process and its worker */

typedef struct fit {
    ab_options options;
    ab_run_config config;
    const ab_cell_spec *cell;
    int64_t most;                      /* number of samples */
    int64_t workspace, workspace_step; /* measured: of a batch of 1, and per further sample */
    char **argv;                       /* of a worker */
    int words;                         /* before --batch */
    int data_fd;
    /* of the last trial that fitted */
    int64_t batch, held, resident;
    int fitted; /* cells */
    double samples_per_s;
} fit;

/* ---- by the plan ----------------------------------------------------------------------------- */

static ab_cell_config settings_of(const fit *f, int64_t batch) {
    ab_cell_config settings = ab_cell_config_of(&f->config, f->cell);
    settings.batch = batch;
    return settings;
}

/* Computes the bytes that the plan of a batch and its workspace need. */
static ab_status predict(const fit *f, int64_t batch, int64_t *bytes) {
    ab_plan *plan = NULL;
    const ab_cell_config settings = settings_of(f, batch);
    AB_TRY(ab_cell_compile(&settings, &plan));
    *bytes = ab_memory_needed(&settings, plan) + f->workspace + f->workspace_step * (batch - 1);
    ab_plan_destroy(plan);
    return AB_OK;
}

/* The workspace of ops depends on the machine, so the ops are prepared, without memory for their tensors. */
static ab_status workspace_of(const fit *f, int64_t batch, int64_t *bytes) {
    ab_plan *plan = NULL;
    const ab_cell_config settings = settings_of(f, batch);
    AB_TRY(ab_cell_compile(&settings, &plan));
    ab_status status = ab_cell_workspace(&settings, plan, bytes);
    ab_plan_destroy(plan);
    return status;
}

/* Fails if even the plan of a batch of 1 is above the limit. */
static ab_status check_smallest(const fit *f) {
    int64_t bytes = 0;
    AB_TRY(predict(f, 1, &bytes));
    if (bytes <= f->config.memory_limit) return AB_OK;
    return ab_fail(AB_NO_MEMORY, "its plan needs %" PRId64 " bytes with a batch of 1, the limit is %" PRId64,
                   bytes, f->config.memory_limit);
}

/* The trials go up to the limit, or to the plan of all samples: that must be left on this machine. */
static ab_status check_machine(const fit *f) {
    ab_memory_limit limit;
    int64_t most = 0;
    if (f->options.given[AB_OPTION_no_memory_check]) return AB_OK;
    ab_memory_limit_of("", f->config.device, &limit);
    if (f->config.memory_limit <= limit.left) return AB_OK;
    if (predict(f, f->most, &most) == AB_OK && most <= limit.left) return AB_OK;
    return ab_fail(
        AB_NO_MEMORY,
        "--memory-limit: %.1f MiB are more than the %.1f MiB that are left: %s; give at most these, "
        "or --no-memory-check",
        (double)f->config.memory_limit / mib, (double)limit.left / mib, limit.text);
}

/* Finds the largest batch whose prediction fits; at least 1. */
static ab_status search_plans(const fit *f, int64_t *batch) {
    int64_t low = 1, high = 2, bytes = 0;
    while (high <= f->most) {
        AB_TRY(predict(f, high, &bytes));
        if (bytes > f->config.memory_limit) break;
        low = high;
        high *= 2;
    }
    if (high > f->most) high = f->most + 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        AB_TRY(predict(f, middle, &bytes));
        if (bytes <= f->config.memory_limit)
            low = middle;
        else
            high = middle;
    }
    *batch = low;
    return AB_OK;
}

/* Workspace is assumed linear between a batch of 1 and the batch found here, and is corrected by the measured
 * workspace of a cell with that batch. */
static ab_status find_by_plan(fit *f, int64_t *batch) {
    enum { CORRECTIONS = 3 };
    f->workspace_step = 0;
    AB_TRY(workspace_of(f, 1, &f->workspace));
    AB_TRY(check_smallest(f));
    *batch = 2;
    for (int i = 0; i < CORRECTIONS; i++) {
        int64_t bytes = 0, before = *batch;
        AB_TRY(workspace_of(f, before, &bytes));
        if (before > 1) f->workspace_step = (bytes - f->workspace) / (before - 1);
        AB_TRY(search_plans(f, batch));
        if (*batch == before) break;
    }
    return AB_OK;
}

/* ---- by a run -------------------------------------------------------------------------------- */

static double number_in(const cJSON *object, const char *key) {
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(object, key);
    return cJSON_IsNumber(value) ? value->valuedouble : 0;
}

static void remember(fit *f, int64_t batch, const ab_process *process) {
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(process->start, "memory_bytes");
    const int64_t time = process->step[process->steps - 1].time_ns; /* the first one warms up */
    f->batch = batch;
    f->held = (int64_t)number_in(memory, "total");
    f->resident = (int64_t)number_in(process->end, "max_rss_bytes");
    f->samples_per_s = time > 0 ? (double)batch * 1e9 / (double)time : 0;
}

static void no_tick(void *context, const ab_process *process) {
    (void)context;
    (void)process;
}

/* Trains a few steps with a batch. *fits is false if it ran out of memory; other failures are errors. */
static ab_status try_batch(fit *f, int64_t batch, bool *fits) {
    char size[32], steps[8], batch_name[] = "--batch", steps_name[] = "--steps";
    const ab_worker_task task = {.cell = f->cell->id,
                                 .place = f->cell->place,
                                 .kind = AB_WORKER_TIMED,
                                 .spawned_ns = ab_monotonic_ns(),
                                 .data_fd = f->data_fd,
                                 .every = 10};
    ab_worker_words words;
    ab_worker_write(&task, &words, f->argv);
    ab_text_exact(size, sizeof size, "%" PRId64, batch);
    ab_text_exact(steps, sizeof steps, "%d", (int)STEPS);
    char *last[] = {batch_name, size, steps_name, steps, NULL};
    memcpy(f->argv + f->words, last, sizeof last);
    ab_process_watch watch = {.tick = no_tick, .timeout_s = f->config.cell_timeout_s, .stop = &never};
    ab_process process;
    AB_TRY(ab_process_run(f->argv, &watch, &process));
    bool short_of_memory = process.short_of_memory || strstr(process.reason, "signal 9");
    ab_status status = AB_OK;
    *fits = process.reason[0] == '\0' && process.steps == STEPS;
    if (*fits)
        remember(f, batch, &process);
    else if (!short_of_memory)
        status = ab_fail(AB_INTERNAL, "%s at batch %" PRId64 ": %s", f->cell->id, batch, process.reason);
    ab_process_clear(&process);
    return status;
}

/* Searches from a batch that should fit for the largest that does: the next larger one was tried and did not
 * fit. */
static ab_status confirm(fit *f, int64_t batch) {
    int64_t low = 0, high = f->most + 1, step = 1;
    for (int tries = 0; high - low > 1 && tries < MOST_TRIES; tries++) {
        bool fits = false;
        AB_TRY(try_batch(f, batch, &fits));
        if (fits)
            low = batch;
        else
            high = batch;
        bool open = fits ? high == f->most + 1 : low == 0; /* no bound on that side yet */
        batch = !open ? low + (high - low) / 2 : fits ? low + step : high - step;
        if (open && (fits || low == 0)) step *= 2;
        if (batch >= high) batch = high - 1;
        if (batch <= low) batch = low + 1;
    }
    return AB_OK;
}

/* ---- levels ---------------------------------------------------------------------------------- */

static void print_row(const fit *f, int64_t by_plan, int64_t reference) {
    char against[32] = "-";
    if (reference > 0) ab_text_show(against, sizeof against, "%.2fx", (double)f->batch / (double)reference);
    char level[48];
    ab_text_show(level, sizeof level, "%s %s", f->cell->level->name, f->cell->half->name);
    ab_print(stdout, "  %-20s %9" PRId64 " %8s %9" PRId64 " %10.1f %10.1f %11.0f%s\n", level, f->batch,
             against, by_plan, (double)f->held / mib, (double)f->resident / mib, f->samples_per_s,
             f->batch == f->most ? "  all samples: the limit was not reached" : "");
}

static void print_too_large(const fit *f) {
    char level[48];
    ab_text_show(level, sizeof level, "%s %s", f->cell->level->name, f->cell->half->name);
    ab_print(stdout, "  %-20s %9s  not even a batch of 1: %s\n", level, "-", ab_error_message());
}

static ab_status fit_cell(fit *f, const ab_cell_spec *cell, int64_t *reference) {
    int64_t by_plan = 1;
    f->cell = cell;
    f->batch = 0;
    AB_TRY(check_machine(f));
    ab_status status = find_by_plan(f, &by_plan);
    if (status == AB_OK) status = confirm(f, by_plan);
    if (status == AB_OK && f->batch == 0) status = ab_fail(AB_NO_MEMORY, "no training step succeeded");
    if (status == AB_NO_MEMORY) print_too_large(f);
    if (status == AB_NO_MEMORY) return AB_OK;
    if (status != AB_OK) return status;
    f->fitted++;
    if (strcmp(cell->level->name, "O0") == 0 && *reference == 0) *reference = f->batch;
    print_row(f, by_plan, *reference);
    fflush(stdout);
    return AB_OK;
}

static ab_status fit_all(fit *f) {
    ab_cell_spec *cells;
    int count;
    int64_t reference = 0;
    AB_TRY(ab_run_cells(&f->config, &cells, &count));
    char text[AB_BUILD_TEXT];
    const char *warning = ab_environment_build_warning(text);
    ab_print(stdout, "%s%slargest batch of %s within %.1f MiB on %s\n\n  %-20s %9s %8s %9s %10s %10s %11s\n",
             warning ? warning : "", warning ? "\n" : "", f->config.net->name,
             (double)f->config.memory_limit / mib, f->config.device->name, "level", "batch", "vs O0",
             "by plan", "held MiB", "RSS MiB", "samples/s");
    ab_status status = AB_OK;
    for (int i = 0; i < count && status == AB_OK; i++)
        if (!cells[i].perturbation && cells[i].seed == f->config.seed)
            status = fit_cell(f, &cells[i], &reference);
    ab_run_cells_free(cells, count);
    if (status == AB_OK && f->fitted == 0)
        return ab_fail(AB_CONFIG, "--memory-limit: %.1f MiB hold no batch of %s",
                       (double)f->config.memory_limit / mib, f->config.net->name);
    if (status == AB_OK)
        puts("\nbatch: the largest one that trained; by plan: what the plan predicted\n"
             "held: every tensor and workspace; RSS: the process, its libraries and the data set included");
    return status;
}

/* ---- command line ---------------------------------------------------------------------------- */

static const char help[] =
    "usage: ampbench fit --memory-limit BYTES [--net NAME|FILE] [--level LIST] [OPTION]...\n\n"
    "Finds the largest batch that fits a memory limit (such as 512MiB or 2GB) at every level: by the plan "
    "first, then by\n"
    "training steps in a process that may not hold more. Takes the options of `ampbench run`, but for "
    "--batch and --steps.";

static ab_status check_options(const ab_options *options) {
    static const ab_option_id found[] = {AB_OPTION_batch, AB_OPTION_steps, AB_OPTION_epochs,
                                         AB_OPTION_resume_from, AB_OPTION_checkpoint_every};
    char name[AB_OPTION_NAME];
    for (size_t i = 0; i < AB_COUNT_OF(found); i++)
        if (options->given[found[i]])
            return ab_fail(AB_USAGE, "%s: fit does not take it: it finds the batch with steps of its own",
                           ab_option_name(found[i], name));
    if (options->given[AB_OPTION_memory_limit]) return AB_OK;
    return ab_fail(AB_USAGE, "fit: expected --memory-limit BYTES, such as 512MiB");
}

static ab_status prepare(fit *f, int argc, char **argv) {
    static char plural[] = "--levels";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--level") == 0) argv[i] = plural;
    AB_TRY(ab_options_parse(argc, argv, &f->options));
    AB_TRY(check_options(&f->options));
    AB_TRY(ab_refuse_outputs(&f->options, "fit", "the table"));
    f->argv = calloc(AB_WORKER_ARGS + AB_OPTIONS_WORDS + 8, sizeof *f->argv);
    if (!f->argv) return ab_fail(AB_NO_MEMORY, "fit: out of memory");
    f->words = AB_WORKER_ARGS + ab_options_words(&f->options, f->argv + AB_WORKER_ARGS);
    static char one[] = "1"; /* any batch size that the data set allows */
    f->options.text[AB_OPTION_batch] = one;
    AB_TRY(ab_run_config_create(&f->options, true, &f->config));
    f->most = f->config.data->split[AB_SPLIT_TRAIN].count;
    if (f->most > MOST_BATCH) f->most = MOST_BATCH;
    return ab_shared_data_create(f->config.data, &f->data_fd);
}

ab_status ab_cmd_fit(int argc, char **argv) {
    if (ab_asks_for_help(argc, argv)) {
        puts(help);
        return AB_OK;
    }
    fit f = {.data_fd = -1};
    ab_status status = prepare(&f, argc, argv);
    if (status == AB_OK) status = fit_all(&f);
    if (f.data_fd >= 0) close(f.data_fd);
    ab_run_config_clear(&f.config);
    free(f.argv);
    return status;
}
