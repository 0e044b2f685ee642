/* Walking the plan: forward and backward; a whole step; and forward alone to evaluate. */
#include "bench/train/cell/cell_state.h"

#include "kernels/census/census.h"
#include "kernels/core/elementary64.h"
#include "kernels/core/parallel.h"
#include "kernels/core/text.h"
#include "kernels/format/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OBSERVE_BLOCK = 1 << 16, WIDEN_BLOCK = 1 << 12 };

/* ---- showing --------------------------------------------------------------------------------------------- */

typedef struct observe_job {
    ab_observer *observer;
    const ab_tensor *tensor;
    int id;
} observe_job;

/* Half values are widened piece by piece. */
static void observe_half(const observe_job *job, int64_t first, int64_t end, int thread) {
    float values[WIDEN_BLOCK];
    for (int64_t n; first < end; first += n) {
        const char *data = (const char *)job->tensor->data + ab_format_bytes(job->tensor->format, first);
        n = end - first < WIDEN_BLOCK ? end - first : WIDEN_BLOCK;
        ab_widen(values, data, job->tensor->format, n);
        job->observer->see(job->observer, job->id, thread, values, n);
    }
}

static void observe_block(void *argument, int64_t block, int thread) {
    const observe_job *job = argument;
    int64_t first = block * OBSERVE_BLOCK, count = ab_tensor_count(job->tensor);
    int64_t end = count - first < OBSERVE_BLOCK ? count : first + OBSERVE_BLOCK;
    if (job->tensor->format == &ab_format_fp32)
        job->observer->see(job->observer, job->id, thread, (const float *)job->tensor->data + first,
                           end - first);
    else
        observe_half(job, first, end, thread);
}

/* By a census that the device takes, if that is all the observer wants. *done: it did. */
static ab_status observe_counted(ab_cell *cell, const ab_tensor *tensor, int id, bool *done) {
    ab_observer *observer = cell->exec.observer;
    *done = cell->backend->census && observer->counts && observer->counts(observer, id);
    if (!*done) return AB_OK;
    if (!cell->census) cell->census = malloc(sizeof *cell->census);
    if (!cell->census) return ab_fail(AB_NO_MEMORY, "showing a tensor to probes: out of memory");
    ab_status status = cell->backend->census(tensor, cell->census);
    *done = status == AB_OK;
    if (*done) observer->count(observer, id, cell->census);
    return status == AB_UNAVAILABLE ? AB_OK : status;
}

static ab_status observe_downloaded(ab_cell *cell, const ab_tensor *tensor, int id) {
    bool done;
    AB_TRY(observe_counted(cell, tensor, id, &done));
    if (done) return AB_OK;
    int64_t count = ab_tensor_count(tensor);
    float *values = malloc((size_t)count * sizeof *values);
    if (!values) return ab_fail(AB_NO_MEMORY, "showing a tensor to probes: out of memory");
    ab_status status = ab_tensor_read(tensor, values);
    if (status == AB_OK)
        cell->exec.observer->see(cell->exec.observer, id, ab_parallel_thread(), values, count);
    free(values);
    return status;
}

ab_status ab_cell_observe(ab_cell *cell, const ab_tensor *tensor, int id) {
    observe_job job = {cell->exec.observer, tensor, id};
    if (!cell->exec.observer || id < 0) return AB_OK;
    if (!cell->backend->host_memory) return observe_downloaded(cell, tensor, id);
    ab_parallel_for((ab_tensor_count(tensor) + OBSERVE_BLOCK - 1) / OBSERVE_BLOCK, observe_block, &job);
    return AB_OK;
}

/* Shows an fp32 tensor that is complete; half ones were shown when they were cast. */
static ab_status observe_fp32(ab_cell *cell, int number) {
    if (number == AB_NONE || cell->tensor[number].format != &ab_format_fp32) return AB_OK;
    return ab_cell_observe(cell, &cell->tensor[number], cell->tensor[number].id);
}

/* The op's tensors where the host can read them. */
static ab_status readable(ab_cell *cell, int n, bool backward, const ab_op_io **io) {
    *io = &cell->io[n];
    if (cell->backend->host_memory) return AB_OK;
    if (!cell->shadow[n]) AB_TRY(ab_host_mirror_create(*io, &cell->shadow[n]));
    unsigned sets = AB_MIRROR_IN | AB_MIRROR_PARAM | AB_MIRROR_OUT | AB_MIRROR_SAVED;
    if (backward) sets |= AB_MIRROR_DOUT | AB_MIRROR_DIN | AB_MIRROR_DPARAM;
    AB_TRY(ab_host_mirror_pull(cell->shadow[n], *io, sets, ~0u));
    *io = ab_host_mirror_io(cell->shadow[n], *io);
    return AB_OK;
}

/* Whether the step under way is shown to the watch. */
static bool told(const ab_cell *cell) { return cell->exec.observer || cell->again; }

/* A frozen op is evaluated, not trained. */
static ab_exec exec_of(const ab_cell *cell, const ab_plan_node *node) {
    ab_exec exec = cell->exec;
    exec.training = exec.training && !node->frozen;
    return exec;
}

static ab_status tell_ran(ab_cell *cell, int n, const ab_net_op *op, bool backward) {
    const ab_op_io *io;
    const bool watched = told(cell) && cell->watch.ran, followed = cell->follower && !cell->again;
    if (!watched && !followed) return AB_OK;
    AB_TRY(readable(cell, n, backward, &io));
    const ab_exec exec = exec_of(cell, &cell->plan->node[n]);
    const ab_op_run run = {cell->plan->node[n].net_op, op->name, op->op, io, backward, &exec};
    if (watched) cell->watch.ran(cell->watch.context, &run);
    if (followed) cell->follower->ran(cell->follower->context, &run);
    return AB_OK;
}

/* Tensors that the host cannot read are not told of: an op that reads one shows what is in it. */
static void tell_moved(const ab_cell *cell, ab_move_kind kind, int net_op, bool backward, int to, int from) {
    if (!told(cell) || !cell->watch.moved || !cell->backend->host_memory) return;
    const char *name = net_op == AB_NONE ? cell->plan->tensor[to].name : cell->plan->net->op[net_op].name;
    ab_move move = {
        kind, net_op == AB_NONE ? -1 : net_op, name, backward, &cell->tensor[to], &cell->tensor[from]};
    cell->watch.moved(cell->watch.context, &move);
}

/* ---- forward --------------------------------------------------------------------------------------------- */

static ab_status cast(ab_cell *cell, int to, int from) {
    return ab_cell_cast(cell, &cell->exec, &cell->tensor[to], &cell->tensor[from]);
}

/* The same, told to who watches. */
static ab_status cast_shown(ab_cell *cell, ab_move_kind kind, int net_op, bool backward, int to, int from) {
    AB_TRY(cast(cell, to, from));
    tell_moved(cell, kind, net_op, backward, to, from);
    return AB_OK;
}

/* Shows what rounding has made of the weights: copies of masters and half copies of fp32 weights, made now or earlier. */
static void tell_weights(const ab_cell *cell) {
    for (int p = 0; p < cell->plan->params; p++) {
        const ab_plan_param *param = &cell->plan->param[p];
        if (param->master != AB_NONE)
            tell_moved(cell, AB_MOVE_WEIGHT_CAST, param->net_op, false, param->stored, param->master);
        if (param->used != param->stored)
            tell_moved(cell, AB_MOVE_WEIGHT_CAST, param->net_op, false, param->used, param->stored);
    }
}

/* Half copies of fp32 weights, once per change of the weights. */
static ab_status cast_weights(ab_cell *cell) {
    bool stale = cell->casts_version != cell->params_version;
    for (int p = 0; p < cell->plan->params && stale; p++) {
        const ab_plan_param *param = &cell->plan->param[p];
        if (param->used != param->stored) AB_TRY(cast(cell, param->used, param->stored));
    }
    cell->casts_version = cell->params_version;
    if (told(cell)) tell_weights(cell);
    return AB_OK;
}

static ab_status in_op(const ab_net_op *op, ab_status status) {
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "op '%s'", op->name);
}

/* Runs the first `nodes` nodes. */
static ab_status forward(ab_cell *cell, int nodes) {
    AB_TRY(cast_weights(cell));
    for (int n = 0; n < nodes; n++) {
        const ab_plan_node *node = &cell->plan->node[n];
        const ab_net_op *op = ab_plan_node_op(cell->plan, node);
        if (!op) {
            AB_TRY(cast_shown(cell, AB_MOVE_CAST, node->net_op, false, node->out, node->in[0]));
            continue;
        }
        cell->io[n].params_version = cell->params_version;
        const ab_exec exec = exec_of(cell, node);
        AB_TRY(in_op(op, cell->run[n]->forward(&exec, &cell->io[n])));
        AB_TRY(observe_fp32(cell, node->out));
        AB_TRY(tell_ran(cell, n, op, false));
    }
    return AB_OK;
}

void ab_cell_follow(ab_cell *cell, const ab_watch *follower) { cell->follower = follower; }

ab_status ab_cell_forward(ab_cell *cell) { return forward(cell, cell->plan->nodes); }

/* ---- backward -------------------------------------------------------------------------------------------- */

static ab_status zero(ab_cell *cell, int tensor) {
    const ab_tensor *t = &cell->tensor[tensor];
    if (tensor == AB_NONE) return AB_OK;
    return t->device->fill_zero(t->data, ab_format_bytes(t->format, ab_tensor_count(t)));
}

static bool goes_on(const ab_cell *cell, const ab_plan_param *param);

ab_status ab_cell_zero_unreached_grads(ab_cell *cell, int n) {
    const ab_plan_node *node = &cell->plan->node[n];
    for (int i = 0; i < node->inputs; i++)
        if (node->in_sum[i] == AB_NONE || node->starts_grad_sum[i])
            AB_TRY(zero(cell, node->starts_grad_sum[i] ? node->in_sum[i] : node->in_grad[i]));
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &cell->plan->param[node->first_param + i];
        if (!goes_on(cell, param)) AB_TRY(zero(cell, param->sum));
    }
    return AB_OK;
}

static ab_status node_backward(ab_cell *cell, int n) {
    const ab_plan_node *node = &cell->plan->node[n];
    const ab_net_op *op = ab_plan_node_op(cell->plan, node);
    if (op) {
        const ab_exec exec = exec_of(cell, node);
        AB_TRY(in_op(op, cell->layers ? ab_cell_layers_backward(cell, n, &exec)
                                      : cell->run[n]->backward(&exec, &cell->io[n])));
        return tell_ran(cell, n, op, true);
    }
    if (node->in_grad[0] == AB_NONE) return AB_OK;
    ab_cell_layers_cast(cell, node->in_grad[0], node->out_grad);
    return cast_shown(cell, AB_MOVE_CAST, node->net_op, true, node->in_grad[0], node->out_grad);
}

static ab_status add_shown(ab_cell *cell, int net_op, int to, int from) {
    AB_TRY(ab_cell_add(cell, &cell->tensor[to], &cell->tensor[from]));
    tell_moved(cell, AB_MOVE_GRADIENT_SUM, net_op, true, to, from);
    return AB_OK;
}

/* Whether `sum` holds something already: another op's share, or earlier micro-batches that no master's gradient took over. */
static bool goes_on(const ab_cell *cell, const ab_plan_param *param) {
    const ab_plan *plan = cell->plan;
    const ab_plan_param *owner = param->owner == AB_NONE ? param : &plan->param[param->owner];
    return param->adds || (cell->micro > 0 && owner->master_grad == AB_NONE && !ab_cell_own_scales(cell));
}

static ab_status finish_gradients(ab_cell *cell, const ab_plan_node *node) {
    for (int i = 0; i < node->inputs; i++) {
        int sum = node->in_sum[i];
        if (sum != AB_NONE && node->starts_grad_sum[i]) {
            ab_cell_layers_cast(cell, sum, node->in_grad[i]);
            AB_TRY(cast_shown(cell, AB_MOVE_CAST, node->net_op, true, sum, node->in_grad[i]));
        } else if (sum != AB_NONE) {
            AB_TRY(ab_cell_layers_meet(cell, cell->plan->tensor[sum].name, sum, node->in_grad[i]));
            AB_TRY(add_shown(cell, node->net_op, sum, node->in_grad[i]));
        }
        if (node->in_final[i]) AB_TRY(observe_fp32(cell, sum != AB_NONE ? sum : node->in_grad[i]));
    }
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &cell->plan->param[node->first_param + i];
        AB_TRY(observe_fp32(cell, param->used_grad));
        if (param->used_grad == param->sum) continue;
        AB_TRY(goes_on(cell, param) ? add_shown(cell, param->net_op, param->sum, param->used_grad)
                                    : cast_shown(cell, AB_MOVE_GRADIENT_CAST, param->net_op, true, param->sum,
                                                 param->used_grad));
    }
    return AB_OK;
}

/* The gradient of a loss is its weight times the scale; of a micro-batch, its share of the step's mean. Losses that another backward
 * pass is for have none. */
static ab_status seed_losses(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    const bool summed = cell->config.recipe.faults & AB_FAULT_accumulation_not_averaged;
    const double share = summed ? 1.0 : 1.0 / (double)ab_cell_micro_batches(cell);
    for (int i = 0; i < plan->losses; i++) {
        const double scale = plan->loss_id[i] == cell->pass ? cell->scaler[cell->pass].scale : 0;
        const float seed = (float)(scale * plan->net->loss[i].weight * share);
        AB_TRY(ab_tensor_write(&cell->tensor[plan->loss_grad[i]], &seed));
    }
    return AB_OK;
}

/* The forward pass of a node once more: what its backward passes read was not kept. Nobody sees it, and running statistics stay
 * as they are. */
static ab_status run_again(ab_cell *cell, int n) {
    const ab_plan *plan = cell->plan;
    const ab_plan_node *node = &plan->node[n];
    const ab_net_op *op = ab_plan_node_op(plan, node);
    if (!op) return cast(cell, node->out, node->in[0]);
    ab_op_io io = cell->io[n];
    ab_tensor second[AB_MAX_PARAMS];
    for (int i = 0; i < node->params; i++) {
        if (op->param[i].kind != AB_PARAM_BUFFER || node->frozen) continue;
        second[i] = *io.param[i];
        second[i].data = cell->tensor[plan->second_buffer[i]].data;
        io.param[i] = &second[i];
    }
    const ab_exec exec = exec_of(cell, node);
    return in_op(op, cell->run[n]->forward(&exec, &io));
}

static ab_status run_block_again(ab_cell *cell, int last) {
    const ab_plan *plan = cell->plan;
    ab_observer *observer = cell->exec.observer;
    ab_status status = AB_OK;
    cell->exec.observer = NULL;
    for (int n = plan->node[last].again_first; n <= last && status == AB_OK; n++)
        if (plan->node[n].again) status = run_again(cell, n);
    cell->exec.observer = observer;
    return status;
}

ab_status ab_cell_backward(ab_cell *cell) {
    ab_cell_layers_begin(cell);
    for (int n = cell->plan->nodes - 1; n >= 0; n--) {
        const ab_plan_node *node = &cell->plan->node[n];
        if (node->again_passes >> cell->pass & 1u) AB_TRY(run_block_again(cell, n));
        if (node->out_grad == AB_NONE) continue; /* nothing trained below */
        if (!(node->passes >> cell->pass & 1u)) {
            AB_TRY(ab_cell_zero_unreached_grads(cell, n));
            continue;
        }
        AB_TRY(node_backward(cell, n));
        AB_TRY(finish_gradients(cell, node));
    }
    return AB_OK;
}

/* ---- a step ---------------------------------------------------------------------------------------------- */

/* A NaN's bits depend on the instructions that carried it, and a probe may have written into them: all are reported as one. */
static float canonical(float loss) { return isnan(loss) ? NAN : loss; }

/* A batch on the device: the samples of cell->index. */
static ab_status load_batch(ab_cell *cell, ab_split split) {
    const ab_plan *plan = cell->plan;
    AB_TRY(ab_cell_fill(cell, split, cell->batch, cell->labels));
    if (cell->backend->host_memory) return AB_OK;
    AB_TRY(ab_tensor_upload(&cell->tensor[plan->input], cell->batch));
    return ab_tensor_upload(&cell->tensor[plan->targets], cell->labels);
}

/* The weighted sum of the losses. */
static ab_status read_loss(const ab_cell *cell, float *total) {
    const ab_plan *plan = cell->plan;
    double sum = 0;
    for (int i = 0; i < plan->losses; i++) {
        float loss;
        AB_TRY(ab_tensor_read(&cell->tensor[plan->loss[i]], &loss));
        sum += plan->net->loss[i].weight * (double)loss;
    }
    *total = canonical((float)sum);
    return AB_OK;
}

/* apex: with amp.scale_loss(loss[k], optimizer, loss_id=k) as scaled: scaled.backward(), one after the other. */
static ab_status run_passes(ab_cell *cell, unsigned *overflows) {
    for (cell->pass = 0; cell->pass < cell->plan->scalers; cell->pass++) {
        bool overflow = false;
        AB_TRY(seed_losses(cell));
        AB_TRY(ab_cell_backward(cell));
        AB_TRY(ab_cell_unscale_pass(cell, &overflow));
        *overflows |= (unsigned)overflow << cell->pass;
    }
    cell->pass = 0;
    return AB_OK;
}

/* Forward and backward over one batch, its gradients added to those of the step. */
static ab_status run_batch(ab_cell *cell, float *loss, unsigned *overflows) {
    const int64_t number = cell->steps * ab_cell_micro_batches(cell) + cell->micro;
    cell->exec.step = (uint32_t)number;
    ab_data_order_at(&cell->order, number, cell->index);
    AB_TRY(load_batch(cell, AB_SPLIT_TRAIN));
    AB_TRY(forward(cell, cell->plan->nodes));
    AB_TRY(read_loss(cell, loss));
    if (ab_cell_own_scales(cell)) return run_passes(cell, overflows);
    AB_TRY(seed_losses(cell));
    AB_TRY(ab_cell_backward(cell));
    return ab_cell_gather(cell);
}

static ab_status run_batches(ab_cell *cell, float *loss, unsigned *overflows) {
    const int64_t count = ab_cell_micro_batches(cell);
    double sum = 0;
    for (cell->micro = 0; cell->micro < count; cell->micro++) {
        AB_TRY(run_batch(cell, loss, overflows));
        sum += (double)*loss;
    }
    if (count > 1) *loss = canonical((float)(sum / (double)count));
    return AB_OK;
}

/* Where the dialect raises, training ends; and where its scale is no finite number, for every later step would be skipped. */
static ab_status update_scale(ab_cell *cell, int k, const ab_scaler_seen *seen, ab_step_result *result) {
    ab_scaler *scaler = &cell->scaler[k];
    ab_scaler_outcome outcome = ab_scaler_update(scaler, seen);
    char which[32] = "";
    result->skipped = result->skipped || outcome.skip;
    if (!outcome.fault || (!outcome.fault->raises && isfinite(scaler->scale))) return AB_OK;
    if (ab_cell_own_scales(cell)) ab_text_show(which, sizeof which, " of loss_id %d", k);
    return ab_fail(AB_CONFIG, "step %lld: loss scaler %s%s%s (%s): %s", (long long)cell->steps,
                   scaler->kind->name, which, outcome.fault->raises ? " raises" : "", outcome.fault->name,
                   outcome.fault->text);
}

/* From the batches to unscaled gradients. *found: a scaled one was not finite, as far as anybody looks. */
static ab_status run_gradients(ab_cell *cell, ab_step_result *result, bool *found) {
    result->overflows = 0;
    AB_TRY(run_batches(cell, &result->loss, &result->overflows));
    *found = result->overflows != 0;
    if (ab_cell_own_scales(cell)) return AB_OK;
    if (cell->config.recipe.faults & AB_FAULT_clip_before_unscale)
        AB_TRY(ab_cell_clip(cell, true, &result->grad_norm));
    AB_TRY(ab_cell_unscale(cell, found, &result->overflow));
    result->overflows = result->overflow;
    return AB_OK;
}

/* A step that ended in no numbers is run again for those who ask: the same bits, since nothing that it reads has
 * changed but running statistics, which a training step only writes; they are put back. */
static ab_status run_again_if_asked(ab_cell *cell, bool found, ab_step_result *result) {
    const ab_watch *watch = &cell->watch;
    ab_observer *observer = cell->exec.observer;
    void *buffers;
    bool once_more;
    if (!watch->again || (!found && isfinite(result->loss))) return AB_OK;
    if (!watch->again(watch->context, cell->steps, result->scale)) return AB_OK;
    AB_TRY(ab_cell_keep_buffers(cell, &buffers));
    cell->again = result->again = true;
    cell->exec.observer = NULL;
    ab_status status = run_gradients(cell, result, &once_more);
    cell->exec.observer = observer;
    cell->again = false;
    if (status == AB_OK) status = ab_cell_put_buffers(cell, buffers);
    free(buffers);
    return status;
}

static ab_status rehearse(ab_cell *cell, float *loss) {
    unsigned overflows = 0;
    cell->exec.observer = NULL;
    cell->exec.training = true;
    return run_batches(cell, loss, &overflows);
}

ab_status ab_cell_dry_run(ab_cell *cell, double factor, float *loss) {
    double scale[AB_NET_LOSSES] = {0};
    void *buffers;
    AB_TRY(ab_cell_keep_buffers(cell, &buffers));
    for (int k = 0; k < cell->plan->scalers; k++) {
        scale[k] = cell->scaler[k].scale;
        cell->scaler[k].scale *= factor;
    }
    cell->rehearses = true;
    ab_status status = rehearse(cell, loss);
    cell->rehearses = false;
    for (int k = 0; k < cell->plan->scalers; k++) cell->scaler[k].scale = scale[k];
    if (status == AB_OK) status = ab_cell_put_buffers(cell, buffers);
    free(buffers);
    return status;
}

static ab_status finish_step(ab_cell *cell, ab_step_result *result) {
    if (!result->skipped) AB_TRY(ab_cell_update(cell));
    if (!result->skipped || cell->config.recipe.schedule_on_skip) cell->advanced++;
    cell->exec.observer = NULL;
    ab_always_on_step_end(&cell->always_on, cell->steps, result->skipped);
    cell->steps++;
    return AB_OK;
}

/* Gradients are unscaled already, each by its loss's scale; one loss's overflow skips the step. */
static ab_status decide_with_own_scales(ab_cell *cell, ab_step_result *result) {
    AB_TRY(ab_cell_clip(cell, false, &result->grad_norm));
    for (int k = 0; k < cell->plan->scalers; k++) {
        const ab_scaler_seen seen = {.overflow = result->overflows >> k & 1u};
        AB_TRY(update_scale(cell, k, &seen, result));
    }
    result->overflow = result->overflows != 0;
    return finish_step(cell, result);
}

static ab_status decide(ab_cell *cell, ab_step_result *result) {
    const bool early = cell->config.recipe.faults & AB_FAULT_clip_before_unscale;
    const ab_scaler *scaler = &cell->scaler[0];
    ab_scaler_seen seen = {.overflow = result->overflow};
    if (scaler->kind->sees & ~(unsigned)AB_SEES_LAYER) AB_TRY(ab_cell_measure(cell, &seen));
    const bool first = scaler->kind->updates_first;
    if (first) AB_TRY(update_scale(cell, 0, &seen, result));
    if (first && scaler->scale != result->scale && !result->skipped)
        AB_TRY(ab_cell_rescale(cell, result->scale / scaler->scale));
    if (!early) AB_TRY(ab_cell_clip(cell, false, &result->grad_norm));
    if (!first) AB_TRY(update_scale(cell, 0, &seen, result));
    return finish_step(cell, result);
}

ab_status ab_cell_step(ab_cell *cell, ab_observer *observer, ab_step_result *result) {
    cell->exec.observer = observer;
    cell->exec.training = true;
    *result = (ab_step_result){.scale = cell->scaler[0].scale, .lr = ab_cell_rate(cell).lr};
    for (int k = 0; k < cell->plan->scalers; k++) result->scales[k] = cell->scaler[k].scale;
    if (observer && cell->watch.begin) cell->watch.begin(cell->watch.context, cell->steps, result->scale);
    bool found;
    AB_TRY(run_gradients(cell, result, &found));
    AB_TRY(run_again_if_asked(cell, found, result));
    return ab_cell_own_scales(cell) ? decide_with_own_scales(cell, result) : decide(cell, result);
}

/* ---- evaluation ------------------------------------------------------------------------------------------ */

static void score(const float *logits, int64_t target, int64_t classes, ab_eval_result *result) {
    int64_t best = 0;
    double sum = 0;
    for (int64_t k = 1; k < classes; k++)
        if (logits[k] > logits[best]) best = k;
    for (int64_t k = 0; k < classes; k++) sum += ab_exp((double)logits[k] - (double)logits[best]);
    result->loss += (double)logits[best] + ab_log(sum) - (double)logits[target];
    result->correct += best == target;
    result->count++;
}

/* Class of row i of the logits; -1: it does not count. */
static int64_t class_of(const ab_cell *cell, int64_t i, int64_t classes) {
    if (!cell->tensor[cell->plan->targets].format) {
        int32_t id = ((const int32_t *)cell->labels)[i];
        return id >= 0 && id < classes ? id : -1;
    }
    const float *share = (const float *)cell->labels + i * classes;
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++)
        if (share[k] > share[best]) best = k;
    return best;
}

static ab_status next_batch(ab_cell *cell, ab_split split, int64_t first, int64_t n) {
    for (int64_t i = 0; i < cell->plan->batch; i++)
        cell->index[i] = i < n ? first + i : first; /* the rest is not scored */
    AB_TRY(load_batch(cell, split));
    return forward(cell, cell->plan->nodes);
}

/* A network without classes has only its loss, which is a mean over a batch: a short one at the end is left out, if there are
 * others. */
static ab_status evaluate_loss(ab_cell *cell, ab_split split, int64_t total, ab_eval_result *result) {
    const int64_t batch = cell->plan->batch;
    result->correct = -1;
    for (int64_t first = 0; first == 0 || first + batch <= total; first += batch) {
        float loss;
        AB_TRY(next_batch(cell, split, first, total - first));
        AB_TRY(read_loss(cell, &loss));
        result->loss += (double)loss * (double)batch;
        result->count += batch;
    }
    return AB_OK;
}

/* logits: room for those of a batch. */
static ab_status evaluate_classes(ab_cell *cell, ab_split split, int64_t total, float *logits,
                                  ab_eval_result *result) {
    const ab_plan *plan = cell->plan;
    const int64_t batch = plan->batch, classes = plan->net->classes;
    const int64_t rows = ab_tensor_count(&cell->tensor[plan->logits]) / classes / batch; /* of a sample */
    for (int64_t first = 0; first < total; first += batch) {
        int64_t n = total - first < batch ? total - first : batch;
        AB_TRY(next_batch(cell, split, first, n));
        AB_TRY(ab_tensor_read(&cell->tensor[plan->logits], logits));
        for (int64_t i = 0; i < n * rows; i++) {
            int64_t target = class_of(cell, i, classes);
            if (target >= 0) score(logits + i * classes, target, classes, result);
        }
    }
    return AB_OK;
}

static ab_status evaluate(ab_cell *cell, ab_split split, int64_t total, ab_eval_result *result) {
    if (cell->plan->logits == AB_NONE) return evaluate_loss(cell, split, total, result);
    float *logits = malloc((size_t)ab_tensor_count(&cell->tensor[cell->plan->logits]) * sizeof *logits);
    if (!logits) return ab_fail(AB_NO_MEMORY, "evaluation: out of memory");
    ab_status status = evaluate_classes(cell, split, total, logits, result);
    free(logits);
    return status;
}

ab_status ab_cell_evaluate(ab_cell *cell, ab_split split, int64_t limit, ab_eval_result *result) {
    int64_t total = cell->config.data->split[split].count;
    if (limit > 0 && limit < total) total = limit;
    *result = (ab_eval_result){0};
    cell->exec.training = false;
    cell->exec.observer = NULL;
    AB_TRY(evaluate(cell, split, total, result));
    if (result->count) result->loss /= (double)result->count;
    return AB_OK;
}
