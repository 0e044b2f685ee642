/* Runs the device's formula if it has one and the update is not observed, else the host's, on copies if
 * necessary. */
#include "bench/train/update/update.h"

#include "bench/train/optim/clip.h"
#include "bench/train/optim/ema.h"
#include "bench/train/update/optim_device.h"
#include "kernels/backend/fallback.h"
#include "kernels/census/census.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- lists ----------------------------------------------------------------------------------- */

/* The copy of a weight that the model uses: that of a master, or the half copy of an fp32 weight in host
 * memory. */
static ab_tensor *model_copy(const ab_weight_update *u, const ab_plan_param *param) {
    ab_tensor *tensor = u->memory->tensor;
    if (param->master != AB_NONE) return &tensor[param->stored];
    return param->used != param->stored && u->memory->backend->host_memory ? &tensor[param->used] : NULL;
}

static void list_param(ab_weight_update *u, const ab_plan_param *param, int i) {
    const ab_plan *plan = u->memory->plan;
    ab_tensor *tensor = u->memory->tensor;
    ab_update_item *item = &u->item[i];
    item->grad = u->gradients->item[i].to;
    item->factor = 1;
    item->weight = &tensor[ab_params_weight(param)];
    item->model = model_copy(u, param);
    for (int s = 0; s < u->optimizer->states; s++) item->state[s] = &tensor[param->state[s]];
    u->own[i] = u->common;
    ab_param_groups_apply(&u->recipe->groups, &plan->net->op[param->net_op], ab_params_spec(plan, param),
                          &u->own[i]);
}

/* Whether the items' copies are all half copies that ops read of trained weights. */
static bool makes_half_copies(const ab_weight_update *u) {
    const ab_plan *plan = u->memory->plan;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        const int i = u->trained->place[p];
        if (param->used != param->stored && (i < 0 || u->item[i].model != &u->memory->tensor[param->used]))
            return false;
    }
    return true;
}

ab_status ab_weight_update_init(ab_weight_update *u) {
    const ab_plan *plan = u->memory->plan;
    const size_t room = (size_t)u->trained->count + 1;
    u->item = calloc(room, sizeof *u->item);
    u->own = calloc(room, sizeof *u->own);
    u->grad = calloc(room, sizeof *u->grad);
    if (!u->item || !u->own || !u->grad) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int p = 0; p < plan->params; p++)
        if (u->trained->place[p] >= 0) list_param(u, &plan->param[p], u->trained->place[p]);
    u->half_copies = makes_half_copies(u);
    return AB_OK;
}

void ab_weight_update_fini(ab_weight_update *u) {
    free(u->item);
    free(u->own);
    free(u->grad);
    *u = (ab_weight_update){.item = NULL};
}

/* ---- rates ----------------------------------------------------------------------------------- */

ab_schedule_point ab_weight_update_rate(const ab_weight_update *u, int64_t advanced) {
    const ab_recipe *recipe = u->recipe;
    if (!recipe->schedule) return (ab_schedule_point){u->common.lr, -1};
    return ab_schedule_rate(recipe->schedule, &recipe->rates, advanced);
}

/* A parameter's configuration at a point of the schedule; groups scale the rate. */
static ab_optimizer_config config_at(const ab_weight_update *u, int i, ab_schedule_point point) {
    ab_optimizer_config config = u->own[i];
    const unsigned knobs = u->optimizer->knobs;
    if (!u->recipe->schedule) return config;
    config.lr = u->common.lr > 0 ? point.lr * (config.lr / u->common.lr) : 0;
    if (point.momentum >= 0 && knobs & AB_KNOB_MOMENTUM) config.momentum = point.momentum;
    if (point.momentum >= 0 && knobs & AB_KNOB_BETA1) config.beta1 = point.momentum;
    return config;
}

ab_optimizer_config ab_weight_update_config(const ab_weight_update *u, int i, int64_t advanced) {
    return config_at(u, i, ab_weight_update_rate(u, advanced));
}

/* ---- one parameter --------------------------------------------------------------------------- */

/* One parameter in one step. */
typedef struct param_step {
    const ab_update_item *item;
    const ab_param_ids *ids; /* observer ids */
    int place;               /* index among the trained parameters */
    int64_t taken;
    ab_optimizer_config config;
} param_step;

/* Whether the observers of a probed step observe the update. */
static bool is_update_observed(const ab_observation *o) {
    return o->observer && (o->watch.update || o->watch.roles & (AB_SEES_WEIGHTS | AB_SEES_OPTIMIZER_STATE));
}

/* Runs the host's formula, and reports the update if the step is probed and observed. `item`: host-accessible
 * tensors. */
static void run_optimizer(const ab_weight_update *u, const param_step *step, const ab_update_item *item) {
    const ab_observation *o = u->observation;
    ab_optimizer_observers observers = {o->observer, step->ids->weight, {0}, &o->watch, step->place};
    memcpy(observers.state_id, step->ids->state, sizeof step->ids->state);
    if (is_update_observed(o))
        ab_optimizer_step_shown(u->optimizer, &step->config, step->taken, item->weight, item->grad,
                                item->state, &observers);
    else
        ab_optimizer_step(u->optimizer, &step->config, step->taken, item->weight, item->grad, item->state);
}

/* The same for tensors that the host cannot access, on copies. */
static ab_status run_on_copies(const ab_weight_update *u, const param_step *step) {
    const ab_update_item *item = step->item;
    const int states = u->optimizer->states;
    ab_tensor weight = {.data = NULL}, grad = {.data = NULL}, state[AB_UPDATE_MAX_STATES] = {{.data = NULL}};
    ab_update_item copy = {.weight = &weight, .grad = &grad};
    ab_status status = AB_OK;
    AB_TRY_GOTO(ab_host_copy(item->weight, &weight));
    AB_TRY_GOTO(ab_host_copy(item->grad, &grad));
    for (int i = 0; i < states; i++) {
        copy.state[i] = &state[i];
        AB_TRY_GOTO(ab_host_copy(item->state[i], &state[i]));
    }
    run_optimizer(u, step, &copy);
    AB_TRY_GOTO(ab_tensor_upload(item->weight, weight.data));
    for (int i = 0; i < states; i++) AB_TRY_GOTO(ab_tensor_upload(item->state[i], state[i].data));
out:
    ab_host_copy_free(&weight);
    ab_host_copy_free(&grad);
    for (int i = 0; i < states; i++) ab_host_copy_free(&state[i]);
    return status;
}

static ab_status run_on_host(const ab_weight_update *u, const param_step *step) {
    if (!u->memory->backend->host_memory) return run_on_copies(u, step);
    run_optimizer(u, step, step->item);
    return AB_OK;
}

/* Whether a census is all that observers want of a tensor. */
static bool is_censused(const ab_observation *o, int id) {
    return id < 0 || (o->observer->counts && o->observer->counts(o->observer, id));
}

/* Whether the device can count what the watch wants of an update. */
static bool is_counted(const ab_weight_update *u, const param_step *step, ab_update_question *question) {
    const ab_watch *watch = &u->observation->watch;
    bool censused = is_censused(u->observation, step->ids->weight);
    for (int i = 0; i < u->optimizer->states; i++)
        censused = censused && is_censused(u->observation, step->ids->state[i]);
    if (!u->memory->backend->reductions || !censused || !watch->asks || !watch->counted) return false;
    if (!watch->asks(watch->context, step->taken, question)) return false;
    question->terms = ab_optimizer_term_set(u->optimizer, &step->config, step->taken);
    return true;
}

/* Room for what is counted of one parameter. */
typedef struct counting {
    ab_update_counts counts;
    ab_census *census; /* [1 + states] */
} counting;

static void counting_fini(counting *c) {
    free(c->counts.run);
    free(c->counts.largest);
    free(c->census);
}

static ab_status counting_init(counting *c, const ab_weight_update *u, const param_step *step,
                               const ab_update_question *question) {
    const ab_shape *shape = &step->item->weight->shape;
    const int64_t count = ab_shape_count(shape), runs = ab_update_runs(count);
    const int states = u->optimizer->states;
    c->counts = (ab_update_counts){.count = count, .lr = step->config.lr, .runs = runs};
    c->counts.rows = question->rows && shape->ndim > 1 ? shape->dim[0] : 0;
    c->counts.run = malloc((size_t)runs * sizeof *c->counts.run);
    c->counts.largest = malloc(((size_t)c->counts.rows + 1) * sizeof *c->counts.largest);
    c->census = malloc((size_t)(1 + states) * sizeof *c->census);
    if (!c->counts.run || !c->counts.largest || !c->census) {
        counting_fini(c);
        return ab_fail(AB_NO_MEMORY, "counting an update: out of memory");
    }
    c->counts.weight = step->ids->weight >= 0 ? &c->census[0] : NULL;
    for (int i = 0; i < states; i++) c->counts.state[i] = step->ids->state[i] >= 0 ? &c->census[1 + i] : NULL;
    return AB_OK;
}

static void tell_censuses(const ab_weight_update *u, const param_step *step, const ab_update_counts *counts) {
    ab_observer *observer = u->observation->observer;
    if (counts->weight) observer->count(observer, step->ids->weight, counts->weight);
    for (int i = 0; i < u->optimizer->states; i++)
        if (counts->state[i]) observer->count(observer, step->ids->state[i], counts->state[i]);
}

/* Runs the device's formula and passes its counts to the watch. */
static ab_status run_counted(const ab_weight_update *u, const param_step *step, int kind,
                             const ab_update_row *row, const ab_update_question *question) {
    const ab_watch *watch = &u->observation->watch;
    counting c;
    AB_TRY(counting_init(&c, u, step, question));
    ab_status status = u->memory->backend->reductions->update(step->item, kind, row, question, &c.counts);
    if (status == AB_OK) {
        tell_censuses(u, step, &c.counts);
        watch->counted(watch->context, step->place, &c.counts);
    }
    counting_fini(&c);
    return status;
}

bool ab_weight_update_unscales(const ab_weight_update *u) {
    const ab_backend *backend = u->memory->backend;
    const ab_update_kind kind = ab_optimizer_device_kind(u->optimizer);
    return backend->host_memory && !u->observation->observer && !u->common.by_op && kind != AB_UPDATE_NONE &&
           !ab_f_needs_norms((int)kind);
}

/* The item with the gradient as the backward pass left it, if that is still to be unscaled. */
static ab_update_item item_as_left(const ab_weight_update *u, const param_step *step) {
    ab_update_item item = *step->item;
    item.grad = ab_gradients_left(u->gradients, step->place, &item.factor);
    return item;
}

/* Runs the device's formula if it has one and the update is not observed, or only counted. *done: whether it
 * did, including the model's copy. */
static ab_status run_on_device(const ab_weight_update *u, const param_step *step, bool *done) {
    const ab_backend *backend = u->memory->backend;
    const ab_update_kind kind = ab_optimizer_device_kind(u->optimizer);
    const bool by_op = step->config.by_op && step->item->weight->format != &ab_format_fp32;
    const bool observed = is_update_observed(u->observation);
    ab_update_question question;
    *done = false;
    if (!backend->update || kind == AB_UPDATE_NONE || by_op) return AB_OK;
    if (observed && !is_counted(u, step, &question)) return AB_OK;
    ab_update_row row = ab_optimizer_device_row(kind, &step->config, step->taken);
    const ab_update_item item = item_as_left(u, step);
    ab_status status = observed ? run_counted(u, step, (int)kind, &row, &question)
                                : backend->update(&item, 1, (int)kind, &row);
    *done = status == AB_OK;
    return status == AB_UNAVAILABLE ? AB_OK : status;
}

/* The values rounded to the model's copy were already shown. */
static ab_status update_param(const ab_weight_update *u, const ab_exec *unobserved, const param_step *step) {
    const ab_update_item *item = step->item;
    bool done;
    AB_TRY(run_on_device(u, step, &done));
    if (done) return AB_OK;
    AB_TRY(ab_gradients_settle(u->gradients));
    AB_TRY(run_on_host(u, step));
    return item->model ? ab_cell_memory_cast(u->memory, unobserved, item->model, item->weight) : AB_OK;
}

static ab_status update_average(const ab_weight_update *u, const ab_plan_param *param,
                                const param_step *step) {
    if (param->ema == AB_NONE) return AB_OK;
    return ab_ema_update(&u->memory->tensor[param->ema], step->item->weight, u->recipe->ema_decay,
                         step->taken - 1);
}

/* The norm of all gradients, where the optimizer needs it. Norms are fp32, whatever the gradients' format. */
static ab_status total_norm(const ab_weight_update *u, double *total) {
    *total = 0;
    if (!u->optimizer->needs_total_norm) return AB_OK;
    for (int i = 0; i < u->trained->count; i++) /* only read; const only in the item */
        u->grad[i] = (ab_tensor *)(uintptr_t)u->item[i].grad;
    return ab_clip_total_norm(u->grad, u->trained->count, &ab_format_fp32, total);
}

ab_status ab_weight_update_run(const ab_weight_update *u, const ab_exec *unobserved, int64_t taken,
                               int64_t advanced) {
    const ab_plan *plan = u->memory->plan;
    const ab_schedule_point point = ab_weight_update_rate(u, advanced);
    double norm;
    AB_TRY(total_norm(u, &norm));
    for (int p = 0; p < plan->params; p++) {
        const int i = u->trained->place[p];
        if (i < 0) continue;
        param_step step = {&u->item[i], &u->observation->ids[p], i, taken, config_at(u, i, point)};
        step.config.total_norm = norm;
        AB_TRY(update_param(u, unobserved, &step));
        AB_TRY(update_average(u, &plan->param[p], &step));
    }
    return AB_OK;
}

/* Initialises and updates loss scalers. */

void ab_loss_scalers_start(ab_loss_scalers *scalers, int count, const ab_scaler_config *settings,
                           const ab_scale_limits *limits) {
    const ab_scaler_config limited =
        ab_scaler_limited(settings, limits->min, limits->max, (double)limits->window);
    scalers->count = count;
    for (int k = 0; k < count; k++) ab_scaler_start(&scalers->scaler[k], &limited);
}

ab_status ab_loss_scalers_update(ab_loss_scalers *scalers, int k, int64_t step, const ab_scaler_seen *seen,
                                 bool *skipped) {
    ab_scaler *scaler = &scalers->scaler[k];
    const ab_scaler_outcome outcome = ab_scaler_update(scaler, seen);
    char which[32] = "";
    *skipped = *skipped || outcome.skip;
    if (!outcome.fault || (!outcome.fault->raises && isfinite(scaler->scale))) return AB_OK;
    if (scalers->count > 1) ab_text_show(which, sizeof which, " of loss_id %d", k);
    return ab_fail(AB_CONFIG, "step %lld: loss scaler %s%s%s (%s): %s", (long long)step, scaler->kind->name,
                   which, outcome.fault->raises ? " raises" : "", outcome.fault->name, outcome.fault->text);
}
