/* Runs one cell and writes its events. It owns no files and prints only events. */
#define _GNU_SOURCE
#include "bench/run/worker.h"

#include "bench/profile/profile.h"
#include "bench/run/config/cells.h"
#include "bench/run/config/configure.h"
#include "bench/run/environment.h"
#include "bench/run/governor.h"
#include "bench/run/json_lines.h"
#include "bench/run/probing.h"
#include "bench/run/shared_data.h"
#include "bench/timer/timer.h"
#include "bench/train/ranks/link.h"
#include "kernels/core/parallel.h"
#include "kernels/core/process_setup.h"
#include "kernels/core/text.h"
#include "kernels/core/text_path.h"
#include "kernels/ops/product/repairs.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FLUSH_NS = 50 * 1000 * 1000 };

/* ---- events ---------------------------------------------------------------------------------- */

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

/* The scaler of each loss; the parent adds the traces of the scales. Nothing if one scaler is used for all
 * losses. */
static void own_scales(ab_probe_sink *sink, const ab_plan *plan) {
    if (plan->scalers <= 1) return;
    sink->begin_array(sink, "loss_scales");
    for (int k = 0; k < plan->scalers; k++) {
        sink->begin_object(sink, NULL);
        sink->integer(sink, "loss_id", k);
        sink->begin_array(sink, "losses");
        for (int i = 0; i < plan->losses; i++)
            if (plan->loss_id[i] == k) sink->text(sink, NULL, plan->net->op[plan->net->loss[i].op].name);
        sink->end(sink);
        sink->end(sink);
    }
    sink->end(sink);
}

static void layer_scales(ab_probe_sink *sink, const ab_cell *cell) {
    if (ab_cell_layers(cell) == 0) return;
    sink->begin_array(sink, "layer_scales");
    for (int i = 0; i < ab_cell_layers(cell); i++) {
        sink->begin_object(sink, NULL);
        sink->text(sink, "layer", ab_cell_layer_name(cell, i));
        sink->end(sink);
    }
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
    own_scales(&line.sink, plan);
    layer_scales(&line.sink, cell);
    ab_json_line_end(&line);
    fflush(stdout);
}

static void step_event(int64_t step, int scalers, const double *scales, const ab_step_result *result,
                       double norm, bool probed, int64_t time_ns) {
    uint32_t bits;
    memcpy(&bits, &result->loss, sizeof bits);
    printf("{\"event\":\"step\",\"step\":%" PRId64 ",\"loss_bits\":%" PRIu32
           ",\"scale\":%.17g,\"skipped\":%s,\"probed\":%s,"
           "\"time_ns\":%" PRId64,
           step, bits, result->scale, result->skipped ? "true" : "false", probed ? "true" : "false", time_ns);
    if (scalers > 0) {
        printf(",\"overflows\":%u,\"scales\":[", result->overflows);
        for (int k = 0; k < scalers; k++) printf("%s%.17g", k ? "," : "", scales[k]);
        putchar(']');
    }
    printf(",\"lr\":%.17g", result->lr);
    if (isfinite(norm)) printf(",\"gradient_norm\":%.9g", norm);
    if (result->scored > 0) printf(",\"accuracy\":%.9g", (double)result->correct / (double)result->scored);
    puts("}");
}

/* A step event with the scales of all losses or layers, for several scalers. */
static void step_event_with_scales(const ab_cell *cell, int64_t step, const ab_step_result *result,
                                   double norm, bool probed, int64_t time_ns) {
    const int losses = ab_cell_plan(cell)->scalers, layers = ab_cell_layers(cell);
    if (layers > 0)
        step_event(step, layers, ab_cell_layer_scales(cell), result, norm, probed, time_ns);
    else
        step_event(step, losses > 1 ? losses : 0, result->scales, result, norm, probed, time_ns);
}

/* NAN without classes, or if no row of logits could be ranked. */
static double accuracy_of(const ab_eval_result *result) {
    return result->correct >= 0 && result->ranked > 0 ? (double)result->correct / (double)result->count
                                                      : (double)NAN;
}

/* Writes nothing without averaged weights. */
static ab_status ema_evaluation(ab_cell *cell, int64_t limit, ab_probe_sink *sink) {
    ab_eval_result result;
    if (!ab_cell_plan(cell)->policy.keep.ema_format) return AB_OK;
    AB_TRY(ab_cell_evaluate_ema(cell, AB_SPLIT_TEST, limit, &result));
    if (result.correct >= 0) sink->number(sink, "ema_test_accuracy", accuracy_of(&result));
    sink->number(sink, "ema_test_loss", result.loss);
    return AB_OK;
}

/* Writes nothing if no loss reads targets. */
static ab_status shuffled_evaluation(ab_cell *cell, int64_t limit, ab_probe_sink *sink) {
    ab_shuffled_result result;
    AB_TRY(ab_cell_evaluate_shuffled(cell, AB_SPLIT_TEST, limit, &result));
    if (result.batches == 0) return AB_OK;
    sink->begin_object(sink, "test_loss_shuffled");
    sink->number(sink, "matched", result.matched);
    sink->number(sink, "shuffled", result.shuffled);
    sink->number(sink, "standard_error", result.error);
    sink->integer(sink, "batches", result.batches);
    sink->integer(sink, "shuffles", result.shuffles);
    sink->end(sink);
    return AB_OK;
}

static ab_status evaluation(ab_cell *cell, int64_t limit, ab_probe_sink *sink) {
    ab_eval_result result;
    AB_TRY(ab_cell_evaluate(cell, AB_SPLIT_TEST, limit, &result));
    sink->integer(sink, "test_count", result.count);
    sink->number(sink, "test_accuracy", accuracy_of(&result));
    if (isnan(accuracy_of(&result)))
        sink->text(sink, "test_accuracy_reason",
                   result.correct < 0 ? "the network's loss compares no classes"
                                      : "every output of the network is NaN");
    sink->number(sink, "test_loss", result.loss);
    AB_TRY(ema_evaluation(cell, limit, sink));
    return shuffled_evaluation(cell, limit, sink);
}

static ab_status no_evaluation(ab_probe_sink *sink) {
    sink->integer(sink, "test_count", 0);
    sink->number(sink, "test_accuracy", (double)NAN);
    sink->text(sink, "test_accuracy_reason", "of a floor's draws only the first is evaluated");
    sink->number(sink, "test_loss", (double)NAN);
    return AB_OK;
}

static ab_status evaluation_event(ab_cell *cell, const ab_cell_spec *spec, int64_t limit) {
    ab_json_line line;
    ab_json_line_begin(&line, stdout, "evaluation");
    ab_status status = spec->draw > 0 ? no_evaluation(&line.sink) : evaluation(cell, limit, &line.sink);
    if (status == AB_OK) status = ab_cell_report_always_on_stats(cell, &line.sink);
    ab_json_line_end(&line);
    return status;
}

/* Counts of corrected library results. */
static void repairs(ab_probe_sink *sink) {
    const ab_repair_counts counts = ab_repair_totals();
    if (counts.products == 0) return;
    sink->begin_object(sink, "library_repairs");
    sink->integer(sink, "products", counts.products);
    sink->integer(sink, "cleared", counts.cleared);
    sink->integer(sink, "restored", counts.restored);
    sink->end(sink);
}

static void end_event(int64_t first_step_at, const ab_worker_task *task, const ab_run_config *config,
                      int64_t energy_before) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    ab_json_line line;
    ab_json_line_begin(&line, stdout, "end");
    line.sink.integer(&line.sink, "start_to_first_step_ns",
                      first_step_at ? first_step_at - task->spawned_ns : 0);
    line.sink.integer(&line.sink, "max_rss_bytes", (int64_t)usage.ru_maxrss * 1024);
    line.sink.integer(&line.sink, "elapsed_ns", ab_monotonic_ns() - task->spawned_ns);
    int64_t delay = ab_run_delay_ns();
    line.sink.number(&line.sink, "run_delay_ns", delay < 0 ? (double)NAN : (double)delay);
    repairs(&line.sink);
    ab_device_facts_write(&line.sink, config->device, energy_before, config->steps * config->batch);
    ab_json_line_end(&line);
}

/* ---- running --------------------------------------------------------------------------------- */

/* Loops that the gate's self-test adds to every step as a known slowdown. */
static int64_t extra_work(void) {
    const char *text = getenv("AMPBENCH_EXTRA_WORK");
    return text ? atoll(text) : 0;
}

/* Runs unprobed steps that the device can execute in one call, if it supports several; their times are
 * measured by the device. Sets *ran to their number. */
static ab_status run_window(ab_cell *cell, const ab_run_config *config, ab_probing *probing, int64_t step,
                            int *ran) {
    enum { MOST = 64 };
    ab_step_result result[MOST];
    int64_t time_ns[MOST], most = ab_cell_window(cell), left = config->steps - step;
    most = most < MOST ? most : MOST;
    most = most < left ? most : left;
    if (config->checkpoint_every > 0) { /* a window ends where a checkpoint is due */
        int64_t until = config->checkpoint_every - (config->first_step + step) % config->checkpoint_every;
        most = most < until ? most : until;
    }
    *ran = (int)ab_probing_count_unprobed(probing, most > 1 ? most : 0);
    if (*ran < 2) *ran = 0;
    if (*ran == 0) return AB_OK;
    AB_TRY(ab_cell_run_steps(cell, *ran, result, time_ns));
    for (int i = 0; i < *ran; i++) {
        ab_probing_note(probing, time_ns[i]);
        step_event(step + i, 0, NULL, &result[i], (double)NAN, false, time_ns[i]);
    }
    fflush(stdout);
    return AB_OK;
}

/* `done`: steps of this run. */
static ab_status checkpoint_if_due(const ab_cell *cell, const ab_run_config *config, const char *checkpoint,
                                   int64_t done) {
    if (!checkpoint || (done + config->first_step) % config->checkpoint_every != 0) return AB_OK;
    return ab_cell_checkpoint(cell, checkpoint);
}

/* ---- reference gradients --------------------------------------------------------------------- */

/* Whether any tensor of the cell has another format than fp32. */
static bool has_low_precision(const ab_plan *plan) {
    for (int i = 0; i < plan->tensors; i++)
        if (plan->tensor[i].format && plan->tensor[i].format != &ab_format_fp32) return true;
    return false;
}

/* NULL if there is nothing to compare. */
static ab_status start_reference(const ab_run_config *config, const ab_cell_config *settings,
                                 const ab_cell *cell, ab_fp32_reference **reference) {
    if (config->shadow_every == 0 || !has_low_precision(ab_cell_plan(cell))) return AB_OK;
    return ab_fp32_reference_create(settings, config->shadow, AB_REFERENCE_OCTAVES, reference);
}

static ab_status compared_step(ab_cell *cell, ab_observer *observer, ab_fp32_reference *reference,
                               ab_step_result *result) {
    AB_TRY(ab_fp32_reference_before(reference, cell));
    AB_TRY(ab_cell_step(cell, observer, result));
    result->replayed = true; /* its time is not that of a normal step */
    return ab_fp32_reference_after(reference, cell, result);
}

static void reduction_event(const ab_cell *cell) {
    ab_json_line line;
    if (!ab_cell_has_reduction(cell)) return;
    ab_json_line_begin(&line, stdout, "reduction");
    ab_cell_report_reduction(cell, &line.sink);
    ab_json_line_end(&line);
}

/* What ranks with different numbers of samples count. */
static void rank_samples_event(const ab_cell *cell, const ab_run_config *config) {
    const ab_rank_recipe *ranks = &config->recipe.ranks;
    ab_json_line line;
    if (ranks->count < 2 || ranks->last_samples == 0) return;
    ab_json_line_begin(&line, stdout, "rank_samples");
    line.sink.begin_array(&line.sink, "ranks");
    for (int64_t r = 0; r < ranks->count; r++) {
        line.sink.begin_object(&line.sink, NULL);
        line.sink.integer(&line.sink, "samples", ab_cell_rank_samples(cell, r));
        line.sink.number(&line.sink, "weight", ab_cell_rank_weight(cell, r));
        line.sink.end(&line.sink);
    }
    line.sink.end(&line.sink);
    ab_json_line_end(&line);
}

static void communication_event(const ab_cell *cell) {
    ab_json_line line;
    if (!ab_cell_communicates(cell)) return;
    ab_json_line_begin(&line, stdout, "communication");
    ab_cell_report_communication(cell, &line.sink);
    ab_json_line_end(&line);
}

static void replicas_event(const ab_cell *cell, bool full) {
    ab_json_line line;
    if (!full || !ab_cell_checks_ranks(cell)) return;
    ab_json_line_begin(&line, stdout, "replicas");
    ab_cell_report_replicas(cell, &line.sink);
    ab_json_line_end(&line);
}

static void shadow_event(const ab_fp32_reference *reference, const ab_run_config *config) {
    if (!reference) return;
    ab_json_line line;
    ab_json_line_begin(&line, stdout, "shadow");
    line.sink.integer(&line.sink, "every", config->shadow_every);
    ab_fp32_reference_report(reference, &line.sink);
    ab_json_line_end(&line);
}

/* ---- gradients of further batches -------------------------------------------------------------- */

enum { SAVED_BATCHES = 16 };

/* FILE's name with the number of a batch before its suffix. */
static ab_status numbered(const char *file, int number, char *path, size_t size) {
    const char *slash = strrchr(file, '/'), *dot = strrchr(slash ? slash : file, '.');
    const int stem = dot ? (int)(dot - file) : (int)strlen(file);
    return ab_text_path("--save-gradients", path, size, "%.*s.%02d%s", stem, file, number,
                        dot ? dot : ".safetensors");
}

/* All at the weights that the run ended with. */
static ab_status save_gradients(ab_cell *cell, const char *file) {
    char path[4096];
    const int64_t steps = ab_cell_steps(cell);
    ab_json_line line;
    ab_status status = AB_OK;
    if (!file) return AB_OK;
    ab_json_line_begin(&line, stdout, "saved_gradients");
    line.sink.integer(&line.sink, "steps", steps);
    line.sink.number(&line.sink, "loss_scale", ab_cell_scaler(cell)->scale);
    line.sink.begin_array(&line.sink, "files");
    for (int k = 0; k < SAVED_BATCHES && status == AB_OK; k++) {
        ab_cell_seek(cell, steps + k);
        status = numbered(file, k, path, sizeof path);
        if (status == AB_OK) status = ab_cell_save_gradients(cell, path);
        line.sink.text(&line.sink, NULL, path);
    }
    line.sink.end(&line.sink);
    ab_json_line_end(&line);
    ab_cell_seek(cell, steps);
    return status;
}

/* ---- profile --------------------------------------------------------------------------------- */

enum { PROFILE_WARM_UP = 5, LIMIT_ATTEMPTS_NS = 20 * 1000 * 1000 };

/* Nothing is timed without --profile, and in a cell that only shows what chance does. */
static ab_status start_profile(const ab_run_config *config, const ab_cell_spec *spec, ab_cell *cell,
                               ab_profiler *profiler) {
    if (!config->profile || spec->perturbation || spec->seed != config->seed) return AB_OK;
    return ab_profiler_open(cell, config->steps - PROFILE_WARM_UP, profiler);
}

static bool is_profiled(const ab_profiler *profiler, int64_t step, const ab_observer *observer,
                        bool compared) {
    return profiler->cell && step >= PROFILE_WARM_UP && !observer && !compared;
}

/* `limits`: with those of the machine. */
static ab_status profile_event(const ab_profiler *profiler, const ab_run_config *config, bool limits) {
    ab_profile profile = {.cell = NULL};
    ab_machine_limits machine = {.format = {NULL}};
    if (!profiler->cell || profiler->steps == 0) return AB_OK;
    if (limits)
        AB_TRY(ab_machine_limits_measure(ab_run_product_formats(config), config->path, LIMIT_ATTEMPTS_NS,
                                         &machine));
    cJSON *event = cJSON_CreateObject();
    ab_status status = ab_profiler_rows(profiler, &config->recipe, false, &profile);
    cJSON_AddStringToObject(event, "event", "profile");
    if (limits) cJSON_AddItemToObject(event, "machine_limits", ab_machine_limits_json(&machine));
    cJSON *kept = cJSON_AddObjectToObject(event, "profile");
    if (status == AB_OK) ab_profile_add_json(kept, &profile);
    char *text = status == AB_OK ? cJSON_PrintUnformatted(event) : NULL;
    if (status == AB_OK && !text) status = ab_fail(AB_NO_MEMORY, "profile: out of memory");
    if (text) puts(text);
    cJSON_free(text);
    cJSON_Delete(event);
    ab_profile_clear(&profile);
    return status;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Runs all steps. The times of probed ones are marked. */
static ab_status run_steps(ab_cell *cell, const ab_run_config *config, ab_probing *probing,
                           ab_fp32_reference *reference, ab_profiler *profiler, const char *checkpoint,
                           bool full, int64_t *first_step_at) {
    int64_t flushed_at = ab_monotonic_ns(), extra = extra_work();
    ab_thread_governor threads;
    ab_thread_governor_start(&threads, config->threads);
    for (int64_t step = 0; step < config->steps; step++) {
        int ran = 0;
        if (step > 0 && !reference) AB_TRY(run_window(cell, config, probing, step, &ran));
        if (step > 0 && ran > 0) {
            step += ran - 1;
            AB_TRY(checkpoint_if_due(cell, config, checkpoint, step + 1));
            continue;
        }
        ab_observer *observer = ab_probing_next(probing);
        ab_step_result result;
        const bool compared = reference && step % config->shadow_every == 0,
                   profiled = is_profiled(profiler, step, observer, compared);
        if (profiled) ab_profiler_begin_step(profiler);
        int64_t before = ab_monotonic_ns(), waited_before = ab_parallel_waited_ns();
        AB_TRY(compared ? compared_step(cell, observer, reference, &result)
                        : ab_cell_step(cell, observer, &result));
        if (extra > 0) ab_busy_loop(extra);
        int64_t time = ab_probing_step_end(probing, step, observer, result.replayed, before),
                now = before + time;
        if (profiled) ab_profiler_end_step(profiler, time, result.loss);
        double norm = (double)NAN; /* after the step's time was taken */
        if (full) AB_TRY(ab_cell_gradient_norm(cell, &result, &norm));
        if (full) AB_TRY(ab_cell_check_ranks(cell));
        step_event_with_scales(cell, step, &result, norm, observer || result.replayed, time);
        AB_TRY(checkpoint_if_due(cell, config, checkpoint, step + 1));
        if (step == 0) *first_step_at = now;
        if (!observer && !result.replayed)
            ab_parallel_use(ab_thread_governor_step(&threads, time, ab_parallel_waited_ns() - waited_before));
        if (now - flushed_at < FLUSH_NS) continue;
        fflush(stdout);
        flushed_at = now;
    }
    return AB_OK;
}

/* Of the ranks of an MPI job the first one probes, evaluates and writes files. */
static ab_status run_cell(const ab_worker_task *task, const ab_run_config *config, const ab_cell_spec *spec,
                          const ab_options *options) {
    const bool first = ab_rank_place_get().rank == 0;
    ab_status status = AB_OK;
    ab_cell *cell = NULL;
    ab_fp32_reference *reference = NULL;
    ab_probing probing = {.active = false};
    ab_profiler profiler = {.cell = NULL};
    int64_t first_step_at = 0, energy_before;
    const char *save_path = options->text[AB_OPTION_save_weights];
    const char *checkpoint =
        config->checkpoint_every > 0 && first ? options->text[AB_OPTION_checkpoint] : NULL;
    ab_cell_config settings = ab_cell_config_of(config, spec);
    AB_TRY_GOTO(ab_cell_create(&settings, &cell));
    AB_TRY_GOTO(ab_cell_continue(config, spec, cell));
    start_event(cell);
    energy_before = ab_device_energy_mj(config->device);
    const bool full = task->kind == AB_WORKER_FULL;
    if (full) AB_TRY_GOTO(ab_cell_score_training(cell));
    if (full && first) AB_TRY_GOTO(ab_probing_start(&probing, config, cell, spec->half));
    if (full) AB_TRY_GOTO(start_reference(config, &settings, cell, &reference));
    if (full && first) AB_TRY_GOTO(start_profile(config, spec, cell, &profiler));
    AB_TRY_GOTO(run_steps(cell, config, &probing, reference, &profiler, checkpoint, full, &first_step_at));
    ab_probing_event(&probing);
    AB_TRY_GOTO(profile_event(&profiler, config, task->place == 0));
    reduction_event(cell);
    rank_samples_event(cell, config);
    communication_event(cell);
    replicas_event(cell, full);
    shadow_event(reference, config);
    if (full && first) AB_TRY_GOTO(evaluation_event(cell, spec, ab_run_eval_limit(config)));
    if (full && first && save_path) AB_TRY_GOTO(ab_cell_save(cell, save_path));
    if (full && first) AB_TRY_GOTO(save_gradients(cell, options->text[AB_OPTION_save_gradients]));
    end_event(first_step_at, task, config, energy_before);
out:
    ab_probing_clear(&probing);
    ab_profiler_close(&profiler);
    ab_fp32_reference_destroy(reference);
    ab_cell_destroy(cell);
    return status;
}

/* The cost of probing, for the parent, which chooses the steps of all cells. */
static ab_status measure_probing(const ab_worker_task *task, const ab_run_config *config,
                                 const ab_cell_spec *spec) {
    ab_status status = AB_OK;
    ab_cell *cell = NULL;
    ab_probing probing = {.active = false};
    ab_probe_cost cost = {0, 0};
    ab_json_line line;
    ab_cell_config settings = ab_cell_config_of(config, spec);
    AB_TRY_GOTO(ab_cell_create(&settings, &cell));
    AB_TRY_GOTO(ab_cell_continue(config, spec, cell));
    AB_TRY_GOTO(ab_probing_start(&probing, config, cell, spec->half));
    AB_TRY_GOTO(ab_probing_measure(&probing, cell, &cost));
    ab_json_line_begin(&line, stdout, "probe_cost");
    line.sink.number(&line.sink, "step_ns", cost.step_ns);
    line.sink.number(&line.sink, "probe_ns", cost.probe_ns);
    ab_json_line_end(&line);
    end_event(0, task, config, -1);
out:
    ab_probing_clear(&probing);
    ab_cell_destroy(cell);
    return status;
}

static ab_status run_task(const ab_worker_task *task, int argc, char **argv) {
    ab_options options;
    ab_run_config config;
    ab_cell_spec spec = {.half = NULL};
    AB_TRY(ab_options_parse(argc, argv, &options));
    AB_TRY(ab_rank_link_open());
    AB_TRY(ab_run_config_create(&options, task->data_fd < 0, &config));
    ab_data shared;
    if (task->data_fd >= 0) {
        AB_TRY(ab_shared_data_map((int)task->data_fd, &shared));
        config.data = &shared;
    }
    if (task->threads > 0) config.threads = (int)task->threads;
    AB_TRY(ab_run_config_start(&config));
    if (ab_ranks_use_gpus(&options)) AB_TRY(ab_rank_link_join(config.device->ranks));
    AB_TRY(ab_run_config_steps(&options, &config));
    AB_TRY(ab_run_cell_at(&config, task->place, task->cell, &spec));
    if (task->steps > 0 && task->steps < config.steps) config.steps = task->steps; /* of the same training */
    if (config.probe_every > 0) config.probe_every = task->every;
    ab_status status = task->kind == AB_WORKER_PROBING ? measure_probing(task, &config, &spec)
                                                       : run_cell(task, &config, &spec, &options);
    free(spec.id);
    if (task->data_fd >= 0) config.data = NULL;
    ab_run_config_clear(&config);
    return status;
}

void ab_worker_write(const ab_worker_task *task, ab_worker_words *words, char **argv) {
    static char program[] = "ampbench", command[] = "worker";
    const int64_t value[] = {task->place, task->kind,  task->spawned_ns, task->data_fd,
                             task->every, task->steps, task->threads};
    argv[0] = program;
    argv[1] = command;
    argv[2] = (char *)(uintptr_t)task->cell;
    for (size_t i = 0; i < AB_COUNT_OF(value); i++) {
        ab_text_exact(words->text[i], sizeof words->text[i], "%" PRId64, value[i]);
        argv[3 + i] = words->text[i];
    }
}

ab_status ab_worker_main(int argc, char **argv) {
    if (argc < AB_WORKER_ARGS - 1) return ab_fail(AB_USAGE, "worker: started by `ampbench run`, not by hand");
    ab_worker_task task = {.cell = argv[1],
                           .place = atoll(argv[2]),
                           .kind = atoll(argv[3]),
                           .spawned_ns = atoll(argv[4]),
                           .data_fd = atoll(argv[5]),
                           .every = atoll(argv[6]),
                           .steps = atoll(argv[7]),
                           .threads = atoll(argv[8])};
    ab_status status = ab_note_memory_limits(run_task(&task, argc - 8, argv + 8));
    if (status != AB_OK) {
        ab_json_line line;
        ab_json_line_begin(&line, stdout, "error");
        line.sink.text(&line.sink, "kind", ab_status_text(status));
        line.sink.text(&line.sink, "message", ab_error_message());
        ab_json_line_end(&line);
        status = ab_fail(status, "%s", ""); /* the parent prints it, once */
    }
    fflush(stdout);
    return status;
}
