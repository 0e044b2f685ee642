/* From scaled gradients to new weights: unscaling with the finite check, and the optimizer. */
#include "bench/train/cell_state.h"

#include "kernels/fallback.h"

#include <stdlib.h>
#include <string.h>

/* ---- lists ------------------------------------------------------------------------------------------------- */

static ab_tensor *tensor_at(ab_cell *cell, int first, int otherwise) {
    return &cell->tensor[first != AB_NONE ? first : otherwise];
}

static void list_param(ab_cell *cell, const ab_plan_param *param, int i) {
    ab_unscale_item *unscale = &cell->unscale[i];
    ab_update_item *update = &cell->update[i];
    unscale->from = &cell->tensor[param->grad];
    update->grad = unscale->to = tensor_at(cell, param->master_grad, param->grad);
    update->weight = tensor_at(cell, param->master, param->stored);
    update->model = param->master != AB_NONE ? &cell->tensor[param->stored] : NULL;
    for (int s = 0; s < cell->config.optimizer->states; s++)
        update->state[s] = &cell->tensor[param->state[s]];
}

ab_status ab_cell_update_start(ab_cell *cell) {
    size_t room = (size_t)cell->trained_count + 1;
    cell->unscale = calloc(room, sizeof *cell->unscale);
    cell->update = calloc(room, sizeof *cell->update);
    if (!cell->unscale || !cell->update) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    for (int p = 0, i = 0; p < cell->plan->params; p++)
        if (cell->plan->param[p].grad != AB_NONE) list_param(cell, &cell->plan->param[p], i++);
    return AB_OK;
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

/* apex leaves the gradients alone when the scale is a fixed 1 and there are no masters to copy to. */
ab_status ab_cell_unscale(ab_cell *cell, bool *overflow) {
    const ab_scaler *scaler = &cell->scaler;
    bool found = false, alone = !scaler->kind->checks && scaler->scale == 1.0 && !has_masters(cell);
    number_items(cell);
    if (alone)
        for (int i = 0; i < cell->trained_count; i++)
            AB_TRY(ab_cell_observe(cell, cell->unscale[i].from, cell->unscale[i].id));
    else
        AB_TRY(cell->backend->unscale(&cell->exec, cell->unscale, cell->trained_count,
                                      (float)(1.0 / scaler->scale), &found));
    *overflow = found && scaler->kind->checks;
    return AB_OK;
}

/* ---- update ------------------------------------------------------------------------------------------------ */

/* The update of one parameter, shown if the step is probed and somebody wants to see it. */
static void run_optimizer(ab_cell *cell, const ab_shown *shown, const ab_update_item *item) {
    const ab_cell_config *config = &cell->config;
    ab_optimizer_audience audience = {cell->exec.observer, shown->weight, {0}, &cell->watch, shown->trained};
    memcpy(audience.state_id, shown->state, sizeof shown->state);
    bool wanted = cell->watch.update || cell->watch.roles & (AB_SEES_WEIGHTS | AB_SEES_OPTIMIZER_STATE);
    if (cell->exec.observer && wanted)
        ab_optimizer_step_shown(config->optimizer, &config->optim, cell->taken, item->weight, item->grad,
                                item->state, &audience);
    else
        ab_optimizer_step(config->optimizer, &config->optim, cell->taken, item->weight, item->grad,
                          item->state);
}

/* The same for tensors that the host cannot touch: the formulas run on copies. */
static ab_status update_copies(ab_cell *cell, const ab_shown *shown, const ab_update_item *item) {
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
    run_optimizer(cell, shown, &copy);
    AB_TRY_GOTO(ab_tensor_upload(item->weight, weight.data));
    for (int i = 0; i < states; i++) AB_TRY_GOTO(ab_tensor_upload(item->state[i], state[i].data));
out:
    ab_host_copy_free(&weight);
    ab_host_copy_free(&grad);
    for (int i = 0; i < states; i++) ab_host_copy_free(&state[i]);
    return status;
}

static ab_status update_item(ab_cell *cell, const ab_shown *shown, const ab_update_item *item) {
    if (!cell->backend->host_memory) return update_copies(cell, shown, item);
    run_optimizer(cell, shown, item);
    return AB_OK;
}

ab_status ab_cell_update(ab_cell *cell) {
    ab_exec unobserved = cell->exec; /* what is rounded here was shown before */
    unobserved.observer = NULL;
    cell->taken++;
    cell->params_version++;
    for (int p = 0; p < cell->plan->params; p++) {
        const ab_shown *shown = &cell->shown[p];
        if (shown->trained < 0) continue;
        const ab_update_item *item = &cell->update[shown->trained];
        AB_TRY(update_item(cell, shown, item));
        if (item->model) AB_TRY(cell->backend->cast(&unobserved, item->model, item->weight));
    }
    return AB_OK;
}
