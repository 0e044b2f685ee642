/* Walking the plan: forward, backward, unscale, update; and forward alone to evaluate. */
#include "bench/train/cell_state.h"

#include "kernels/convert.h"
#include "kernels/core/parallel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { OBSERVE_BLOCK = 1 << 16, WIDEN_BLOCK = 1 << 12, UNSCALE_BLOCK = 1 << 14 };

/* ---- showing --------------------------------------------------------------------------------------------- */

typedef struct observe_job {
    ab_observer *observer;
    const ab_tensor *tensor;
    int id;
} observe_job;

/* Half values are widened piece by piece. */
static void observe_half(const observe_job *job, int64_t first, int64_t end, int lane) {
    float values[WIDEN_BLOCK];
    for (int64_t n; first < end; first += n) {
        const char *data = (const char *)job->tensor->data + ab_format_bytes(job->tensor->format, first);
        n = end - first < WIDEN_BLOCK ? end - first : WIDEN_BLOCK;
        ab_widen(values, data, job->tensor->format, n);
        job->observer->see(job->observer, job->id, lane, values, n);
    }
}

static void observe_block(void *argument, int64_t block, int lane) {
    const observe_job *job = argument;
    int64_t first = block * OBSERVE_BLOCK, count = ab_tensor_count(job->tensor);
    int64_t end = count - first < OBSERVE_BLOCK ? count : first + OBSERVE_BLOCK;
    if (job->tensor->format == &ab_format_fp32)
        job->observer->see(job->observer, job->id, lane, (const float *)job->tensor->data + first,
                           end - first);
    else
        observe_half(job, first, end, lane);
}

/* Shows a stored tensor under a number. */
static void observe(ab_cell *cell, const ab_tensor *tensor, int id) {
    observe_job job = {cell->exec.observer, tensor, id};
    if (!cell->exec.observer || id < 0) return;
    ab_parallel_for((ab_tensor_count(tensor) + OBSERVE_BLOCK - 1) / OBSERVE_BLOCK, observe_block, &job);
}

/* Shows an fp32 tensor that is complete; half ones were shown when they were cast. */
static void observe_fp32(ab_cell *cell, int number) {
    if (number == AB_NONE || cell->tensor[number].format != &ab_format_fp32) return;
    observe(cell, &cell->tensor[number], cell->tensor[number].id);
}

static void tell_ran(ab_cell *cell, int n, const ab_net_op *op, bool backward) {
    if (!cell->exec.observer || !cell->watch.ran) return;
    ab_op_run run = {cell->plan->node[n].net_op, op->name, op->op, &cell->io[n], backward};
    cell->watch.ran(cell->watch.context, &run);
}

/* ---- forward --------------------------------------------------------------------------------------------- */

/* Half copies of fp32 weights, once per change of the weights. */
static void cast_weights(ab_cell *cell) {
    if (cell->casts_version == cell->params_version) return;
    for (int p = 0; p < cell->plan->params; p++) {
        const ab_plan_param *param = &cell->plan->param[p];
        if (param->used != param->stored)
            ab_cast(&cell->exec, &cell->tensor[param->used], &cell->tensor[param->stored]);
    }
    cell->casts_version = cell->params_version;
}

static ab_status in_op(const ab_net_op *op, ab_status status) {
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "op '%s'", op->name);
}

/* Runs the first `nodes` nodes. */
static ab_status forward(ab_cell *cell, int nodes) {
    cast_weights(cell);
    for (int n = 0; n < nodes; n++) {
        const ab_plan_node *node = &cell->plan->node[n];
        const ab_net_op *op = ab_plan_node_op(cell->plan, node);
        if (!op) {
            ab_cast(&cell->exec, &cell->tensor[node->out], &cell->tensor[node->in[0]]);
            continue;
        }
        cell->io[n].params_version = cell->params_version;
        AB_TRY(in_op(op, op->op->forward(&cell->exec, &cell->io[n])));
        observe_fp32(cell, node->out);
        tell_ran(cell, n, op, false);
    }
    return AB_OK;
}

/* ---- backward -------------------------------------------------------------------------------------------- */

static ab_status node_backward(ab_cell *cell, int n) {
    const ab_plan_node *node = &cell->plan->node[n];
    const ab_net_op *op = ab_plan_node_op(cell->plan, node);
    if (op) {
        AB_TRY(in_op(op, op->op->backward(&cell->exec, &cell->io[n])));
        tell_ran(cell, n, op, true);
        return AB_OK;
    }
    if (node->in_grad[0] != AB_NONE)
        ab_cast(&cell->exec, &cell->tensor[node->in_grad[0]], &cell->tensor[node->out_grad]);
    return AB_OK;
}

static void finish_gradients(ab_cell *cell, const ab_plan_node *node) {
    for (int i = 0; i < node->inputs; i++) {
        int sum = node->in_sum[i];
        if (sum != AB_NONE) ab_accumulate(&cell->exec, &cell->tensor[sum], &cell->tensor[node->in_grad[i]]);
        if (node->in_final[i]) observe_fp32(cell, sum != AB_NONE ? sum : node->in_grad[i]);
    }
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &cell->plan->param[node->first_param + i];
        observe_fp32(cell, param->used_grad);
        if (param->used_grad != param->grad)
            ab_cast(&cell->exec, &cell->tensor[param->grad], &cell->tensor[param->used_grad]);
    }
}

static ab_status backward(ab_cell *cell) {
    *(float *)cell->tensor[cell->plan->loss_grad].data = (float)cell->scaler.scale;
    for (int n = cell->plan->nodes - 1; n >= 0; n--) {
        const ab_plan_node *node = &cell->plan->node[n];
        if (node->out_grad == AB_NONE) continue; /* nothing trained below */
        AB_TRY(node_backward(cell, n));
        finish_gradients(cell, node);
    }
    return AB_OK;
}

/* ---- unscale and update ---------------------------------------------------------------------------------- */

typedef struct unscale_job {
    ab_tensor *to;
    const ab_tensor *from;
    float inverse;
    ab_observer *observer; /* of the unscaled values, under the number id; may be NULL */
    int id;
    _Atomic int found; /* a value was inf or nan */
} unscale_job;

static void unscale_block(void *argument, int64_t block, int lane) {
    unscale_job *job = argument;
    float values[UNSCALE_BLOCK];
    int found = 0;
    int64_t first = block * UNSCALE_BLOCK, left = ab_tensor_count(job->from) - first;
    int64_t n = left < UNSCALE_BLOCK ? left : UNSCALE_BLOCK;
    ab_widen(values, (const char *)job->from->data + ab_format_bytes(job->from->format, first),
             job->from->format, n);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        found |= (bits & 0x7F800000u) == 0x7F800000u;
        values[i] *= job->inverse;
    }
    if (job->observer && job->id >= 0) job->observer->see(job->observer, job->id, lane, values, n);
    ab_narrow((char *)job->to->data + ab_format_bytes(job->to->format, first), job->to->format, values, n);
    if (found) job->found = 1;
}

/* Gradient of parameter p times `inverse`, rounded to the format the optimizer gets. Returns whether a value was not finite
 * before. */
static bool unscale(ab_cell *cell, int p, float inverse) {
    const ab_plan_param *param = &cell->plan->param[p];
    int to = param->master_grad != AB_NONE ? param->master_grad : param->grad;
    unscale_job job = {.to = &cell->tensor[to],
                       .from = &cell->tensor[param->grad],
                       .inverse = inverse,
                       .observer = cell->exec.observer,
                       .id = cell->shown[p].unscaled};
    ab_parallel_for((ab_tensor_count(job.from) + UNSCALE_BLOCK - 1) / UNSCALE_BLOCK, unscale_block, &job);
    return job.found != 0;
}

static bool has_masters(const ab_plan *plan) {
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].master != AB_NONE) return true;
    return false;
}

/* apex leaves the gradients alone when the scale is a fixed 1 and there are no masters to copy to. */
static bool unscale_all(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    const ab_scaler *scaler = &cell->scaler;
    bool alone = !scaler->kind->checks && scaler->scale == 1.0 && !has_masters(plan);
    float inverse = (float)(1.0 / scaler->scale);
    bool found = false;
    for (int p = 0; p < plan->params; p++) {
        if (plan->param[p].grad == AB_NONE) continue;
        if (alone)
            observe(cell, &cell->tensor[plan->param[p].grad], cell->shown[p].unscaled);
        else
            found |= unscale(cell, p, inverse);
    }
    return found && scaler->kind->checks;
}

/* The update of parameter p, shown if the step is probed and somebody wants to see it. */
static void run_optimizer(ab_cell *cell, int p, ab_tensor *weight, const ab_tensor *grad,
                          ab_tensor *const *state) {
    const ab_cell_config *config = &cell->config;
    const ab_shown *shown = &cell->shown[p];
    ab_optimizer_audience audience = {cell->exec.observer, shown->weight, {0}, &cell->watch, shown->trained};
    memcpy(audience.state_id, shown->state, sizeof shown->state);
    bool wanted = cell->watch.update || cell->watch.roles & (AB_SEES_WEIGHTS | AB_SEES_OPTIMIZER_STATE);
    if (cell->exec.observer && wanted)
        ab_optimizer_step_shown(config->optimizer, &config->optim, cell->taken, weight, grad, state,
                                &audience);
    else
        ab_optimizer_step(config->optimizer, &config->optim, cell->taken, weight, grad, state);
}

static void update_param(ab_cell *cell, int p) {
    const ab_plan_param *param = &cell->plan->param[p];
    ab_tensor *stored = &cell->tensor[param->stored];
    ab_tensor *weight = param->master != AB_NONE ? &cell->tensor[param->master] : stored;
    ab_tensor *grad = &cell->tensor[param->master_grad != AB_NONE ? param->master_grad : param->grad];
    ab_tensor *state[AB_MAX_STATES];
    for (int i = 0; i < cell->config.optimizer->states; i++) state[i] = &cell->tensor[param->state[i]];
    run_optimizer(cell, p, weight, grad, state);
    if (weight != stored) ab_narrow(stored->data, stored->format, weight->data, ab_tensor_count(stored));
}

static void update_all(ab_cell *cell) {
    cell->taken++;
    for (int p = 0; p < cell->plan->params; p++)
        if (cell->plan->param[p].grad != AB_NONE) update_param(cell, p);
    cell->params_version++;
}

/* ---- a step ---------------------------------------------------------------------------------------------- */

/* A NaN's bits depend on the instructions that carried it, and a probe may have written into them: all are reported as one. */
static float canonical(float loss) { return isnan(loss) ? NAN : loss; }

ab_status ab_cell_step(ab_cell *cell, ab_observer *observer, ab_step_result *result) {
    const ab_plan *plan = cell->plan;
    cell->exec.observer = observer;
    cell->exec.training = true;
    cell->exec.step = (uint32_t)cell->steps;
    ab_data_order_at(&cell->order, cell->steps, cell->index);
    ab_data_fill(cell->config.data, AB_SPLIT_TRAIN, cell->config.normalize, cell->index, plan->batch,
                 cell->tensor[plan->input].data, cell->tensor[plan->targets].data);
    if (observer && cell->watch.begin)
        cell->watch.begin(cell->watch.context, cell->steps, cell->scaler.scale);
    AB_TRY(forward(cell, plan->nodes));
    result->loss = canonical(*(const float *)cell->tensor[plan->loss].data);
    result->scale = cell->scaler.scale;
    AB_TRY(backward(cell));
    result->overflow = unscale_all(cell);
    result->skipped = cell->scaler.kind->update(&cell->scaler, result->overflow);
    if (!result->skipped) update_all(cell);
    cell->exec.observer = NULL;
    cell->steps++;
    return AB_OK;
}

/* ---- evaluation ------------------------------------------------------------------------------------------ */

static void score(const float *logits, int32_t target, int64_t classes, ab_eval_result *result) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t k = 1; k < classes; k++)
        if (logits[k] > logits[best]) best = k;
    for (int64_t k = 0; k < classes; k++) sum += exp((double)logits[k] - (double)logits[best]);
    result->loss += (double)logits[best] + log(sum) - (double)logits[target];
    result->correct += best == target;
    result->count++;
}

ab_status ab_cell_evaluate(ab_cell *cell, ab_split split, int64_t limit, ab_eval_result *result) {
    const ab_plan *plan = cell->plan;
    int64_t total = cell->config.data->split[split].count, classes = plan->net->classes;
    if (limit > 0 && limit < total) total = limit;
    const int32_t *targets = cell->tensor[plan->targets].data;
    const float *logits = cell->tensor[plan->logits].data;
    *result = (ab_eval_result){0};
    cell->exec.training = false;
    cell->exec.observer = NULL;
    for (int64_t first = 0; first < total; first += plan->batch) {
        int64_t n = total - first < plan->batch ? total - first : plan->batch;
        for (int64_t i = 0; i < plan->batch; i++)
            cell->index[i] = i < n ? first + i : first; /* the rest is not scored */
        ab_data_fill(cell->config.data, split, cell->config.normalize, cell->index, plan->batch,
                     cell->tensor[plan->input].data, cell->tensor[plan->targets].data);
        AB_TRY(forward(cell, plan->nodes - 1));
        for (int64_t i = 0; i < n; i++) score(logits + i * classes, targets[i], classes, result);
    }
    if (result->count) result->loss /= (double)result->count;
    return AB_OK;
}
