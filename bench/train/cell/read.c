/* Accessors of a cell: observers, tensors by name, saving weights, memory, implementations. */
#include "bench/tensorfile/safetensors.h"
#include "bench/train/cell/parts.h"
#include "bench/train/observe/always_on_stats.h"
#include "kernels/backend/squares.h"
#include "kernels/core/parallel.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts ----------------------------------------------------------------------------------- */

const ab_plan *ab_cell_plan(const ab_cell *cell) { return cell->plan; }
const ab_scaler *ab_cell_scaler(const ab_cell *cell) { return &cell->scalers.scaler[0]; }
int ab_cell_layers(const ab_cell *cell) { return ab_layer_scales_count(cell->layers); }
const char *ab_cell_layer_name(const ab_cell *cell, int i) { return ab_layer_scales_name(cell->layers, i); }
const double *ab_cell_layer_scales(const ab_cell *cell) { return ab_layer_scales_values(cell->layers); }
int64_t ab_cell_steps(const ab_cell *cell) { return cell->position.steps; }
int64_t ab_cell_advanced(const ab_cell *cell) { return cell->position.advanced; }
int64_t ab_cell_bytes(const ab_cell *cell, ab_mem_category category) {
    return ab_mem_bytes(cell->memory.mem, category);
}
int64_t ab_cell_bytes_total(const ab_cell *cell) { return ab_mem_total(cell->memory.mem); }

const char *ab_cell_describe(const ab_cell *cell, int node, const char *pass) {
    const ab_net_op *op = ab_plan_node_op(cell->plan, &cell->plan->node[node]);
    const ab_op *run = cell->walk.run[node];
    const int head = cell->plan->node[node].head, behind = cell->plan->node[node].behind;
    const bool forward = strcmp(pass, "forward") == 0;
    if (behind != AB_NONE && cell->walk.io[behind].fuses && !forward) return "fused";
    if (head != AB_NONE && cell->walk.io[head].fuses && (forward || cell->plan->node[head].tail_backward))
        return "fused";
    return op && run->describe ? run->describe(&cell->walk.io[node], pass) : NULL;
}

/* ---- observation ----------------------------------------------------------------------------- */

void ab_cell_watch(ab_cell *cell, const ab_watch *watch) { ab_observation_watch(&cell->observation, watch); }
void ab_cell_time(ab_cell *cell, ab_step_times *times) { cell->walk.times = times; }
void ab_cell_follow(ab_cell *cell, const ab_watch *follower) { cell->observation.follower = follower; }
int ab_cell_observed_count(const ab_cell *cell) { return cell->observation.count; }
const ab_observed *ab_cell_observed_at(const ab_cell *cell, int i) { return &cell->observation.observed[i]; }
int ab_cell_trained_count(const ab_cell *cell) { return cell->trained.count; }
const ab_probe_param *ab_cell_trained_at(const ab_cell *cell, int i) { return &cell->trained.about[i]; }

ab_status ab_cell_report_always_on_stats(ab_cell *cell, ab_probe_sink *sink) {
    const ab_cell_config *config = &cell->config;
    ab_always_on_stats *stats = &cell->always_on;
    const bool averaged = config->policy.keep.ema_format != NULL;
    AB_TRY(ab_weight_stats_take(&cell->memory, config->policy.half, &stats->last));
    if (averaged)
        AB_TRY(ab_weight_stats_take_average(&cell->memory, config->recipe.ema_decay, &stats->average));
    AB_TRY(ab_cell_constant_loss(cell, &stats->constant));
    ab_always_on_report(stats, averaged, sink);
    return AB_OK;
}

/* ---- what a step shows of itself --------------------------------------------------------------- */

ab_status ab_cell_score_training(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    if (plan->logits == AB_NONE || !cell->memory.backend->host_memory) return AB_OK;
    const size_t count = (size_t)ab_tensor_count(&cell->memory.tensor[plan->logits]);
    free(cell->score.logits);
    cell->score.logits = malloc(count * sizeof *cell->score.logits);
    return cell->score.logits ? AB_OK : ab_fail(AB_NO_MEMORY, "training accuracy: out of memory");
}

typedef struct norm_job {
    const ab_gradients *gradients;
    double *square;
} norm_job;

static void square_of(void *argument, int64_t i, int thread) {
    const norm_job *job = argument;
    float factor;
    const ab_tensor *grad = ab_gradients_left(job->gradients, (int)i, &factor);
    (void)thread;
    job->square[i] = ab_squares_of(grad, factor);
}

/* Parameter by parameter, so that the bits do not depend on the number of threads. */
ab_status ab_cell_gradient_norm(const ab_cell *cell, const ab_step_result *result, double *norm) {
    *norm = result->grad_norm > 0 ? result->grad_norm : (double)NAN;
    if (result->grad_norm > 0 || !cell->memory.backend->host_memory) return AB_OK;
    const int count = cell->trained.count;
    norm_job job = {&cell->gradients, calloc((size_t)count + 1, sizeof *job.square)};
    if (!job.square) return ab_fail(AB_NO_MEMORY, "norm of the gradients: out of memory");
    ab_parallel_for(count, square_of, &job);
    double sum = 0;
    for (int i = 0; i < count; i++) sum += job.square[i];
    *norm = sqrt(sum);
    free(job.square);
    return AB_OK;
}

bool ab_cell_left_half(const ab_cell *cell, int param) {
    const ab_gradients *g = &cell->gradients;
    const int i = cell->trained.place[param];
    return i >= 0 && g->keeps_made && g->made[i];
}

bool ab_cell_passes_casts(const ab_cell *cell, bool backward) {
    return ab_walk_passes_casts(&cell->walk) && !(backward && cell->layers);
}

bool ab_cell_input_is_cast(const ab_cell *cell) { return cell->walk.input_is_cast; }

/* ---- values ---------------------------------------------------------------------------------- */

/* The fp32 master if there is one: the tensor that the optimizer updates. */
static int best_copy(const ab_plan *plan, int tensor) {
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->stored == tensor && param->master != AB_NONE) return param->master;
        if (param->grad == tensor && param->master_grad != AB_NONE) return param->master_grad;
        if (param->grad == tensor && param->total != AB_NONE) return param->total;
    }
    return tensor;
}

ab_status ab_cell_read(const ab_cell *cell, const char *name, ab_shape *shape, float *values) {
    int found = ab_plan_find(cell->plan, name);
    if (found == AB_NONE || cell->plan->tensor[found].transient || !cell->plan->tensor[found].format)
        return ab_fail(AB_CONFIG, "no tensor '%s' is kept between steps", name);
    AB_TRY(ab_gradients_settle(&cell->gradients));
    const ab_tensor *tensor = &cell->memory.tensor[best_copy(cell->plan, found)];
    *shape = tensor->shape;
    return values ? ab_tensor_read(tensor, values) : AB_OK;
}

static void free_items(ab_safetensor_item *items, char (*names)[AB_PLAN_NAME], int count) {
    for (int i = 0; items && i < count; i++) free((void *)(uintptr_t)items[i].data);
    free(items);
    free(names);
}

ab_status ab_cell_save(const ab_cell *cell, const char *path) {
    ab_status status = AB_OK;
    int count = 0;
    const int params = cell->plan->params;
    ab_safetensor_item *items = calloc((size_t)params + 1, sizeof *items);
    char(*names)[AB_PLAN_NAME] = calloc((size_t)params + 1, sizeof *names);
    if (!items || !names) {
        status = ab_fail(AB_NO_MEMORY, "saving weights: out of memory");
        goto out;
    }
    for (int p = 0; p < params; p++) {
        if (cell->plan->param[p].owner != AB_NONE) continue; /* saved with its owner */
        ab_safetensor_item *item = &items[count++];
        item->name = ab_params_name(cell->plan, &cell->plan->param[p], names[p]);
        int64_t n = ab_shape_count(&ab_params_spec(cell->plan, &cell->plan->param[p])->shape);
        float *values = malloc((size_t)n * sizeof *values);
        item->data = values;
        if (!values) {
            status = ab_fail(AB_NO_MEMORY, "saving weights: out of memory");
            goto out;
        }
        AB_TRY_GOTO(ab_cell_read(cell, item->name, &item->shape, values));
    }
    const char *metadata[] = {"format", "pt", "network", cell->plan->net->name, NULL};
    AB_TRY_GOTO(ab_safetensors_write(path, items, count, metadata));
out:
    free_items(items, names, count);
    return status;
}

/* ---- ranks that are processes ------------------------------------------------------------------ */

int64_t ab_cell_batches(const ab_cell *cell) {
    return cell->position.micro_batches * (ab_rank_link_is_open() ? 1 : cell->position.ranks);
}

bool ab_cell_communicates(const ab_cell *cell) { return cell->ranks.traffic.steps > 0; }

void ab_cell_report_communication(const ab_cell *cell, ab_probe_sink *sink) {
    static const char *const names[AB_TRAFFIC_OPS] = {"pack",       "notes",     "reduce_scatter", "sum",
                                                      "all_gather", "allreduce", "unpack"};
    const ab_rank_traffic *traffic = &cell->ranks.traffic;
    sink->integer(sink, "steps", traffic->steps);
    sink->integer(sink, "elapsed_ns", traffic->whole.ns);
    sink->integer(sink, "processor_ns", traffic->whole.processor_ns);
    sink->integer(sink, "blocked", traffic->whole.blocked);
    sink->integer(sink, "overlapped_bytes", traffic->overlapped);
    sink->begin_array(sink, "ops");
    for (int op = 0; op < AB_TRAFFIC_OPS; op++) {
        if (traffic->op[op].ns == 0) continue;
        sink->begin_object(sink, NULL);
        sink->text(sink, "op", names[op]);
        sink->integer(sink, "time_ns", traffic->op[op].ns);
        sink->integer(sink, "bytes_sent", traffic->bytes[op]);
        sink->integer(sink, "processor_ns", traffic->op[op].processor_ns);
        sink->end(sink);
    }
    sink->end(sink);
}

/* ---- what the reduction did ------------------------------------------------------------------ */

bool ab_cell_has_reduction(const ab_cell *cell) { return cell->ranks.count_of != NULL; }

static void report_tensor(const ab_reduction_counts *c, const ab_probe_param *about, ab_probe_sink *sink) {
    const struct {
        const char *key;
        int64_t value;
    } rows[] = {
        {"sent", c->sent},   {"sent_flushed", c->sent_flushed}, {"sent_overflowed", c->sent_overflowed},
        {"means", c->means}, {"flushed", c->flushed},           {"overflowed", c->overflowed}};
    sink->begin_object(sink, NULL);
    sink->text(sink, "name", about->name);
    sink->text(sink, "layer", about->layer);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) sink->integer(sink, rows[i].key, rows[i].value);
    sink->number(sink, "energy", c->energy);
    sink->number(sink, "error", c->error);
    sink->number(sink, "along", c->along);
    sink->end(sink);
}

void ab_cell_report_reduction(const ab_cell *cell, ab_probe_sink *sink) {
    const ab_rank_gradients *g = &cell->ranks;
    if (!ab_cell_has_reduction(cell)) return;
    sink->integer(sink, "steps", g->counted_steps);
    sink->begin_array(sink, "tensors");
    for (int i = 0; i < cell->trained.count; i++)
        report_tensor(&g->count_of[i], &cell->trained.about[i], sink);
    sink->end(sink);
}
