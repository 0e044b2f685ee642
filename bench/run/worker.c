/* Runs one cell and writes its events. It owns no files and prints nothing but events. */
#define _GNU_SOURCE
#include "bench/run/worker.h"

#include "bench/run/config.h"
#include "bench/run/json_lines.h"
#include "bench/run/shared_data.h"
#include "kernels/core/parallel.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

enum { FLUSH_NS = 50 * 1000 * 1000 };

int64_t ab_monotonic_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- probes ---------------------------------------------------------------------------------------------- */

/* All probes behind the one observer an op sees. */
typedef struct probe_set {
    ab_observer observer; /* first */
    int count;
    void **state;
    ab_probe_tensor *tensor;
} probe_set;

static void see_all(ab_observer *observer, int id, int thread, const float *values, int64_t n) {
    probe_set *set = (probe_set *)(void *)observer;
    for (int p = 0; p < set->count && id >= 0; p++) ab_probe_at(p)->see(set->state[p], id, thread, values, n);
}

static void probe_set_destroy(probe_set *set) {
    for (int p = 0; p < set->count && set->state; p++) ab_probe_at(p)->destroy(set->state[p]);
    free(set->state);
    free(set->tensor);
}

static ab_status probe_set_create(probe_set *set, const ab_cell *cell, const ab_format *half) {
    int tensors = ab_cell_observed_count(cell);
    *set = (probe_set){.observer = {see_all}};
    set->state = calloc((size_t)ab_probe_count() + 1, sizeof *set->state);
    set->tensor = calloc((size_t)tensors + 1, sizeof *set->tensor);
    if (!set->state || !set->tensor) return ab_fail(AB_NO_MEMORY, "probes: out of memory");
    for (int i = 0; i < tensors; i++) {
        const ab_observed *about = ab_cell_observed_at(cell, i);
        set->tensor[i] =
            (ab_probe_tensor){.name = about->name,
                              .layer = about->layer,
                              .role = about->weight ? AB_ROLE_WEIGHT_GRADIENT : AB_ROLE_ACTIVATION_GRADIENT,
                              .cast = about->cast};
    }
    ab_probe_setup setup = {set->tensor, tensors, ab_parallel_lanes(), half};
    for (; set->count < ab_probe_count(); set->count++)
        AB_TRY(ab_probe_at(set->count)->create(&setup, &set->state[set->count]));
    return AB_OK;
}

static void probes_event(const probe_set *set, int64_t every) {
    ab_json_line line;
    ab_json_line_begin(&line, stdout, "probes");
    line.sink.integer(&line.sink, "every", every);
    for (int p = 0; p < set->count; p++) ab_probe_at(p)->report(set->state[p], &line.sink);
    ab_json_line_end(&line);
}

/* ---- events ---------------------------------------------------------------------------------------------- */

static void implementations(ab_probe_sink *sink, const ab_cell *cell) {
    static const char *const passes[] = {"forward", "backward_data", "backward_weights"};
    const ab_plan *plan = ab_cell_plan(cell);
    sink->begin_array(sink, "implementations");
    for (int n = 0; n < plan->nodes; n++) {
        const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
        if (!op || !ab_cell_describe(cell, n, "forward")) continue;
        sink->begin_object(sink, NULL);
        sink->text(sink, "op", op->name);
        sink->text(sink, "type", op->op->name);
        sink->text(sink, "format", plan->tensor[plan->node[n].out].format->name);
        for (size_t i = 0; i < AB_COUNT_OF(passes); i++)
            sink->text(sink, passes[i], ab_cell_describe(cell, n, passes[i]));
        sink->end(sink);
    }
    sink->end(sink);
}

static void memory_bytes(ab_probe_sink *sink, const ab_cell *cell) {
    sink->begin_object(sink, "memory_bytes");
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
        sink->integer(sink, ab_mem_category_name((ab_mem_category)c),
                      ab_cell_bytes(cell, (ab_mem_category)c));
    sink->integer(sink, "total", ab_cell_bytes_total(cell));
    sink->end(sink);
}

static void start_event(const ab_cell *cell) {
    const ab_plan *plan = ab_cell_plan(cell);
    ab_json_line line;
    ab_json_line_begin(&line, stdout, "start");
    line.sink.integer(&line.sink, "casts_per_step", plan->activation_casts + plan->weight_casts);
    line.sink.number(&line.sink, "flops_per_step", plan->flops);
    memory_bytes(&line.sink, cell);
    implementations(&line.sink, cell);
    ab_json_line_end(&line);
    fflush(stdout);
}

static void step_event(int64_t step, const ab_step_result *result, bool probed, int64_t time_ns) {
    uint32_t bits;
    memcpy(&bits, &result->loss, sizeof bits);
    printf("{\"event\":\"step\",\"step\":%" PRId64 ",\"loss_bits\":%" PRIu32
           ",\"scale\":%.17g,\"skipped\":%s,\"probed\":%s,"
           "\"time_ns\":%" PRId64 "}\n",
           step, bits, result->scale, result->skipped ? "true" : "false", probed ? "true" : "false", time_ns);
}

static ab_status evaluation_event(ab_cell *cell, int64_t limit) {
    ab_eval_result result;
    AB_TRY(ab_cell_evaluate(cell, AB_SPLIT_TEST, limit, &result));
    ab_json_line line;
    ab_json_line_begin(&line, stdout, "evaluation");
    line.sink.integer(&line.sink, "test_count", result.count);
    line.sink.number(&line.sink, "test_accuracy", (double)result.correct / (double)result.count);
    line.sink.number(&line.sink, "test_loss", result.loss);
    ab_json_line_end(&line);
    return AB_OK;
}

static void end_event(int64_t first_step_at, const ab_worker_task *task) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    ab_json_line line;
    ab_json_line_begin(&line, stdout, "end");
    line.sink.integer(&line.sink, "start_to_first_step_ns",
                      first_step_at ? first_step_at - task->spawned_ns : 0);
    line.sink.integer(&line.sink, "max_rss_bytes", (int64_t)usage.ru_maxrss * 1024);
    line.sink.integer(&line.sink, "elapsed_ns", ab_monotonic_ns() - task->spawned_ns);
    ab_json_line_end(&line);
}

/* ---- running --------------------------------------------------------------------------------------------- */

/* All steps. Probed steps are every n-th, starting with the first; their times are marked. */
static ab_status run_steps(ab_cell *cell, const ab_run_config *config, probe_set *probes,
                           int64_t *first_step_at) {
    int64_t flushed_at = ab_monotonic_ns();
    for (int64_t step = 0; step < config->steps; step++) {
        bool probed = probes && step % config->probe_every == 0;
        ab_step_result result;
        int64_t before = ab_monotonic_ns();
        AB_TRY(ab_cell_step(cell, probed ? &probes->observer : NULL, &result));
        int64_t now = ab_monotonic_ns();
        if (probed)
            for (int p = 0; p < probes->count; p++) ab_probe_at(p)->step_end(probes->state[p], step);
        step_event(step, &result, probed, (probed ? ab_monotonic_ns() : now) - before);
        if (step == 0) *first_step_at = now;
        if (now - flushed_at < FLUSH_NS) continue;
        fflush(stdout);
        flushed_at = now;
    }
    return AB_OK;
}

static ab_status run_cell(const ab_worker_task *task, const ab_run_config *config, const ab_cell_spec *spec,
                          const char *save_path) {
    ab_status status = AB_OK;
    ab_cell *cell = NULL;
    probe_set probes = {.count = 0};
    bool probing = task->full && config->probe_every > 0;
    int64_t first_step_at = 0;
    ab_cell_config settings = ab_cell_config_of(config, spec);
    AB_TRY_GOTO(ab_cell_create(&settings, &cell));
    start_event(cell);
    if (probing) AB_TRY_GOTO(probe_set_create(&probes, cell, spec->half));
    AB_TRY_GOTO(run_steps(cell, config, probing ? &probes : NULL, &first_step_at));
    if (probing) probes_event(&probes, config->probe_every);
    if (task->full) AB_TRY_GOTO(evaluation_event(cell, config->eval_limit));
    if (task->full && save_path) AB_TRY_GOTO(ab_cell_save(cell, save_path));
    end_event(first_step_at, task);
out:
    probe_set_destroy(&probes);
    ab_cell_destroy(cell);
    return status;
}

static ab_status find_spec(const ab_run_config *config, const char *id, ab_cell_spec *spec) {
    ab_cell_spec *cells;
    int count;
    AB_TRY(ab_run_cells(config, &cells, &count));
    ab_status status = ab_fail(AB_INTERNAL, "worker: no cell '%s'", id);
    for (int i = 0; i < count; i++) {
        if (strcmp(cells[i].id, id) != 0) continue;
        *spec = cells[i];
        status = AB_OK;
    }
    free(cells);
    return status;
}

static ab_status run_task(const ab_worker_task *task, int argc, char **argv) {
    ab_options options;
    ab_run_config config;
    ab_cell_spec spec;
    AB_TRY(ab_options_parse(argc, argv, &options));
    AB_TRY(ab_run_config_create(&options, task->data_fd < 0, &config));
    if (task->data_fd >= 0) AB_TRY(ab_shared_data_map((int)task->data_fd, &config.data));
    
    AB_TRY(ab_parallel_start(config.threads));
    AB_TRY(ab_run_config_steps(&options, &config));
    AB_TRY(find_spec(&config, task->cell, &spec));
    ab_status status = run_cell(task, &config, &spec, options.text[AB_OPTION_save_weights]);
    if (task->data_fd >= 0) config.data = NULL;
    ab_run_config_clear(&config);
    return status;
}

ab_status ab_worker_main(int argc, char **argv) {
    if (argc < AB_WORKER_ARGS - 1) return ab_fail(AB_USAGE, "worker: started by `ampbench run`, not by hand");
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a worker does not outlive its parent */
    ab_worker_task task = {argv[1], atoll(argv[2]), atoll(argv[3]), atoll(argv[4])};
    ab_status status = run_task(&task, argc - 4, argv + 4);
    if (status != AB_OK) {
        ab_json_line line;
        ab_json_line_begin(&line, stdout, "error");
        line.sink.text(&line.sink, "message", ab_error_message());
        ab_json_line_end(&line);
    }
    fflush(stdout);
    return status;
}
