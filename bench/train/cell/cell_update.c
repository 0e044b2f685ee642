/* From scaled gradients to new weights: unscaling with the finite check, and the optimizer. */
#include "bench/train/cell/cell_state.h"

#include "bench/train/cell/optim_device.h"
#include "bench/train/optim/ema.h"
#include "kernels/backend/fallback.h"
#include "probes/extremes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ------------------------------------------------------------------------------------------------- */

static ab_tensor *tensor_at(ab_cell *cell, int first, int otherwise) {
    return &cell->tensor[first != AB_NONE ? first : otherwise];
}

static void list_param(ab_cell *cell, const ab_plan_param *param, int i) {
    ab_unscale_item *unscale = &cell->unscale[i];
    ab_update_item *update = &cell->update[i];
    const int own = param->total != AB_NONE ? param->total : param->grad;
    const bool summed = ab_cell_micro_batches(cell) > 1 && !ab_cell_own_scales(cell);
    unscale->to = cell->grad[i] = tensor_at(cell, param->master_grad, own);
    unscale->from = summed ? unscale->to : &cell->tensor[param->grad];
    update->grad = unscale->to;
    update->weight = tensor_at(cell, param->master, param->stored);
    update->model = param->master != AB_NONE ? &cell->tensor[param->stored] : NULL;
    for (int s = 0; s < cell->config.optimizer->states; s++)
        update->state[s] = &cell->tensor[param->state[s]];
    cell->optim[i] = cell->config.optim;
    ab_param_groups_apply(&cell->config.recipe.groups, &cell->plan->net->op[param->net_op],
                          ab_cell_param_spec(cell, param), &cell->optim[i]);
}

ab_status ab_cell_update_start(ab_cell *cell) {
    size_t room = (size_t)cell->trained_count + 1;
    cell->unscale = calloc(room, sizeof *cell->unscale);
    cell->update = calloc(room, sizeof *cell->update);
    cell->optim = calloc(room, sizeof *cell->optim);
    cell->grad = calloc(room, sizeof *cell->grad);
    if (!cell->unscale || !cell->update || !cell->optim || !cell->grad)
        return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int p = 0, i = 0; p < cell->plan->params; p++)
        if (cell->plan->param[p].grad != AB_NONE) list_param(cell, &cell->plan->param[p], i++);
    return AB_OK;
}

/* ---- what a device may refuse ------------------------------------------------------------------------------ */

/* The host does it then, as fallback.h says. */
ab_status ab_cell_cast(const ab_cell *cell, const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    ab_status status = cell->backend->cast(exec, dst, src);
    return status == AB_UNAVAILABLE ? ab_fallback_cast(exec, dst, src) : status;
}

ab_status ab_cell_add(const ab_cell *cell, ab_tensor *dst, const ab_tensor *src) {
    ab_status status = cell->backend->accumulate(&cell->exec, dst, src);
    return status == AB_UNAVAILABLE ? ab_fallback_accumulate(&cell->exec, dst, src) : status;
}

static ab_status unscale(const ab_cell *cell, bool *found) {
    const float inverse = (float)(1.0 / ab_scaler_divisor(&cell->scaler[cell->pass]));
    int count = cell->trained_count;
    ab_status status = cell->backend->unscale(&cell->exec, cell->unscale, count, inverse, found);
    return status == AB_UNAVAILABLE ? ab_fallback_unscale(&cell->exec, cell->unscale, count, inverse, found)
                                    : status;
}

/* ---- accumulation ------------------------------------------------------------------------------------------ */

static ab_status unscale_sums(ab_cell *cell) {
    bool found = false;
    return unscale(cell, &found);
}

/* With masters the sum is kept in fp32, as apex and Megatron keep it; else backward has added it up. Scaled gradients are
 * summed, and the scale is the same for the whole step. */
ab_status ab_cell_gather(ab_cell *cell) {
    const int64_t count = ab_cell_micro_batches(cell);
    if (count == 1 || ab_cell_own_scales(cell)) return AB_OK;
    for (int p = 0; p < cell->plan->params; p++) {
        const ab_plan_param *param = &cell->plan->param[p];
        if (param->grad == AB_NONE || param->master_grad == AB_NONE) continue;
        ab_tensor *sum = &cell->tensor[param->master_grad];
        const ab_tensor *fresh = &cell->tensor[param->grad];
        AB_TRY(cell->micro > 0 ? ab_cell_add(cell, sum, fresh) : ab_cell_cast(cell, &cell->exec, sum, fresh));
    }
    const bool wrong = cell->config.recipe.faults & AB_FAULT_unscale_each_micro_batch;
    return wrong && cell->micro + 1 < count ? unscale_sums(cell) : AB_OK;
}

/* ---- unscaling --------------------------------------------------------------------------------------------- */

static bool has_masters(const ab_cell *cell) {
    for (int i = 0; i < cell->trained_count; i++)
        if (cell->update[i].model) return true;
    return false;
}

/* Numbers change with the watch. */
static void number_items(ab_cell *cell) {
    for (int p = 0; p < cell->plan->params; p++)
        if (cell->shown[p].trained >= 0) cell->unscale[cell->shown[p].trained].id = cell->shown[p].unscaled;
}

/* Looks at gradients of at most so many elements: what goes wrong in a backward pass reaches a bias of some layer below. */
static bool small_ones_finite(const ab_cell *cell) {
    enum { SMALL = 4096 };
    for (int i = 0; i < cell->trained_count; i++) {
        const ab_tensor *grad = cell->unscale[i].from;
        if (ab_tensor_count(grad) <= SMALL && !ab_extremes_finite(grad)) return false;
    }
    return true;
}

/* Each gradient by the scales of the layers above it. */
static ab_status unscale_layers(ab_cell *cell, bool *found) {
    for (int p = 0; p < cell->plan->params; p++) {
        const int i = cell->shown[p].trained;
        const float inverse = i < 0 ? 0 : (float)(1.0 / ab_cell_layers_chain(cell, p));
        if (i >= 0) AB_TRY(cell->backend->unscale(&cell->exec, &cell->unscale[i], 1, inverse, found));
    }
    return AB_OK;
}

/* apex leaves the gradients alone when the scale is a fixed 1 and there are no masters to copy to. */
ab_status ab_cell_unscale(ab_cell *cell, bool *nonfinite, bool *overflow) {
    const ab_scaler *scaler = &cell->scaler[cell->pass];
    bool found = false,
         alone = !ab_scaler_checks(scaler) && ab_scaler_divisor(scaler) == 1.0 && !has_masters(cell);
    number_items(cell);
    if (alone && cell->watch.again && cell->backend->host_memory) found = !small_ones_finite(cell);
    if (alone)
        for (int i = 0; i < cell->trained_count; i++)
            AB_TRY(ab_cell_observe(cell, cell->unscale[i].from, cell->unscale[i].id));
    else
        AB_TRY(cell->layers ? unscale_layers(cell, &found) : unscale(cell, &found));
    *nonfinite = found;
    *overflow = found && ab_scaler_checks(scaler);
    return AB_OK;
}

/* apex (_process_optimizer.py): the first gradients are multiplied into place, later ones added there (axpby); of these only what
 * comes in is checked. A fixed scale of 1 without masters leaves it to autograd, which adds too. The last pass shows the sums. */
ab_status ab_cell_unscale_pass(ab_cell *cell, bool *overflow) {
    const bool first = cell->micro == 0 && cell->pass == 0;
    const bool last = cell->micro + 1 == ab_cell_micro_batches(cell) && cell->pass + 1 == cell->plan->scalers;
    bool found = false;
    number_items(cell);
    for (int i = 0; i < cell->trained_count; i++) {
        cell->unscale[i].adds = !first;
        if (!last) cell->unscale[i].id = -1;
    }
    AB_TRY(unscale(cell, &found));
    *overflow = found && ab_scaler_checks(&cell->scaler[cell->pass]);
    return AB_OK;
}

ab_status ab_cell_clip(ab_cell *cell, bool scaled, double *norm) {
    const ab_clip_config *clip = &cell->config.recipe.clip;
    *norm = 0;
    if (clip->norm <= 0 && clip->value <= 0) return AB_OK;
    for (int i = 0; i < cell->trained_count;
         i++) /* `from` is the cell's own tensor; its item only reads it */
        cell->grad[i] = scaled ? (ab_tensor *)(uintptr_t)cell->unscale[i].from : cell->unscale[i].to;
    return ab_clip(clip, cell->grad, cell->trained_count, norm);
}

ab_status ab_cell_rescale(ab_cell *cell, double factor) {
    ab_exec unobserved = cell->exec; /* what is rounded here was shown before */
    unobserved.observer = NULL;
    bool found;
    for (int i = 0; i < cell->trained_count; i++) {
        ab_unscale_item item = cell->unscale[i];
        item.from = item.to;
        AB_TRY(cell->backend->unscale(&unobserved, &item, 1, (float)factor, &found));
    }
    return AB_OK;
}

/* ---- measuring --------------------------------------------------------------------------------------------- */

static void measure_values(const float *values, int64_t n, double edge, ab_scaler_seen *seen) {
    for (int64_t i = 0; i < n; i++) {
        double size = fabs((double)values[i]);
        if (!(size <= seen->amax)) seen->amax = size; /* of a NaN `overflow` tells */
        if (size <= edge)
            seen->lower++;
        else
            seen->upper++;
    }
}

ab_status ab_cell_measure(const ab_cell *cell, ab_scaler_seen *seen) {
    const ab_scaler *scaler = &cell->scaler[cell->pass];
    int key = ab_scaler_key_index(scaler->kind, "edge");
    double edge = key < 0 ? 0 : scaler->config.value[key] * ab_format_max(&ab_format_fp16) / scaler->scale;
    int64_t largest = 0;
    for (int i = 0; i < cell->trained_count; i++) {
        int64_t n = ab_tensor_count(cell->unscale[i].to);
        largest = n > largest ? n : largest;
    }
    float *values = malloc((size_t)(largest + 1) * sizeof *values);
    ab_status status = values ? AB_OK : ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int i = 0; i < cell->trained_count && status == AB_OK; i++) {
        status = ab_tensor_read(cell->unscale[i].to, values);
        if (status == AB_OK) measure_values(values, ab_tensor_count(cell->unscale[i].to), edge, seen);
    }
    free(values);
    return status;
}

/* ---- update ------------------------------------------------------------------------------------------------ */

ab_schedule_point ab_cell_rate(const ab_cell *cell) {
    const ab_recipe *recipe = &cell->config.recipe;
    if (!recipe->schedule) return (ab_schedule_point){cell->config.optim.lr, -1};
    return ab_schedule_rate(recipe->schedule, &recipe->rates, cell->advanced);
}

/* A parameter's configuration at a point of the schedule: groups scale the rate. */
static ab_optimizer_config config_now(const ab_cell *cell, int i, ab_schedule_point point) {
    ab_optimizer_config config = cell->optim[i];
    unsigned knobs = cell->config.optimizer->knobs;
    if (!cell->config.recipe.schedule) return config;
    config.lr = cell->config.optim.lr > 0 ? point.lr * (config.lr / cell->config.optim.lr) : 0;
    if (point.momentum >= 0 && knobs & AB_KNOB_MOMENTUM) config.momentum = point.momentum;
    if (point.momentum >= 0 && knobs & AB_KNOB_BETA1) config.beta1 = point.momentum;
    return config;
}

ab_optimizer_config ab_cell_optimizer_at(const ab_cell *cell, int i, int64_t advanced) {
    const ab_recipe *recipe = &cell->config.recipe;
    ab_schedule_point point = {cell->config.optim.lr, -1};
    if (recipe->schedule) point = ab_schedule_rate(recipe->schedule, &recipe->rates, advanced);
    return config_now(cell, i, point);
}

/* Whether the audience of a probed step wants to see the update. */
static bool update_watched(const ab_cell *cell) {
    bool wanted = cell->watch.update || cell->watch.roles & (AB_SEES_WEIGHTS | AB_SEES_OPTIMIZER_STATE);
    return cell->exec.observer && wanted;
}

/* The update of one parameter, shown if the step is probed and somebody wants to see it. */
static void run_optimizer(ab_cell *cell, const ab_shown *shown, const ab_update_item *item,
                          const ab_optimizer_config *now) {
    const ab_optimizer *optimizer = cell->config.optimizer;
    ab_optimizer_audience audience = {cell->exec.observer, shown->weight, {0}, &cell->watch, shown->trained};
    memcpy(audience.state_id, shown->state, sizeof shown->state);
    if (update_watched(cell))
        ab_optimizer_step_shown(optimizer, now, cell->taken, item->weight, item->grad, item->state,
                                &audience);
    else
        ab_optimizer_step(optimizer, now, cell->taken, item->weight, item->grad, item->state);
}

/* The same for tensors that the host cannot touch: the formulas run on copies. */
static ab_status update_copies(ab_cell *cell, const ab_shown *shown, const ab_update_item *item,
                               const ab_optimizer_config *now) {
    int states = cell->config.optimizer->states;
    ab_tensor weight = {.data = NULL}, grad = {.data = NULL}, state[AB_UPDATE_MAX_STATES] = {{.data = NULL}};
    ab_update_item copy = {.weight = &weight, .grad = &grad};
    ab_status status = AB_OK;
    AB_TRY_GOTO(ab_host_copy(item->weight, &weight));
    AB_TRY_GOTO(ab_host_copy(item->grad, &grad));
    for (int i = 0; i < states; i++) {
        copy.state[i] = &state[i];
        AB_TRY_GOTO(ab_host_copy(item->state[i], &state[i]));
    }
    run_optimizer(cell, shown, &copy, now);
    AB_TRY_GOTO(ab_tensor_upload(item->weight, weight.data));
    for (int i = 0; i < states; i++) AB_TRY_GOTO(ab_tensor_upload(item->state[i], state[i].data));
out:
    ab_host_copy_free(&weight);
    ab_host_copy_free(&grad);
    for (int i = 0; i < states; i++) ab_host_copy_free(&state[i]);
    return status;
}

/* By the device's own formula, where it has one and nobody wants to watch. *done: it did, the model's copy included. */
static ab_status update_there(ab_cell *cell, const ab_update_item *item, const ab_optimizer_config *now,
                              bool *done) {
    ab_update_kind kind = ab_optimizer_device_kind(cell->config.optimizer);
    *done = false;
    if (!cell->backend->update || kind == AB_UPDATE_NONE || update_watched(cell)) return AB_OK;
    ab_update_row row = ab_optimizer_device_row(kind, now, cell->taken);
    ab_status status = cell->backend->update(item, 1, (int)kind, &row);
    *done = status == AB_OK;
    return status == AB_UNAVAILABLE ? AB_OK : status;
}

static ab_status update_item(ab_cell *cell, const ab_shown *shown, const ab_update_item *item,
                             const ab_optimizer_config *now) {
    if (!cell->backend->host_memory) return update_copies(cell, shown, item, now);
    run_optimizer(cell, shown, item, now);
    return AB_OK;
}

static ab_status update_average(ab_cell *cell, int p) {
    const ab_plan_param *param = &cell->plan->param[p];
    if (param->ema == AB_NONE) return AB_OK;
    return ab_ema_update(&cell->tensor[param->ema], cell->update[cell->shown[p].trained].weight,
                         cell->config.recipe.ema_decay, cell->taken - 1);
}

static ab_status update_param(ab_cell *cell, int p, ab_schedule_point point) {
    const ab_shown *shown = &cell->shown[p];
    const ab_update_item *item = &cell->update[shown->trained];
    const ab_optimizer_config now = config_now(cell, shown->trained, point);
    ab_exec unobserved = cell->exec; /* what is rounded here was shown before */
    bool done;
    unobserved.observer = NULL;
    AB_TRY(update_there(cell, item, &now, &done));
    if (done) return AB_OK;
    AB_TRY(update_item(cell, shown, item, &now));
    return item->model ? ab_cell_cast(cell, &unobserved, item->model, item->weight) : AB_OK;
}

ab_status ab_cell_update(ab_cell *cell) {
    const ab_schedule_point point = ab_cell_rate(cell);
    cell->taken++;
    cell->params_version++;
    for (int p = 0; p < cell->plan->params; p++) {
        if (cell->shown[p].trained < 0) continue;
        AB_TRY(update_param(cell, p, point));
        AB_TRY(update_average(cell, p));
    }
    return AB_OK;
}
