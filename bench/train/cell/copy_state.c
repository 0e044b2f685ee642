/* Copies weights or the whole training state between cells of the same network with any formats. */
#include "bench/train/cell/parts.h"
#include "kernels/format/convert.h"

#include <stdlib.h>

/* The same parameter in another plan; both list the ops in the network's order. NULL: none. */
static const ab_plan_param *same_param(const ab_plan *plan, const ab_plan_param *param) {
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].net_op == param->net_op && plan->param[p].index == param->index)
            return &plan->param[p];
    return NULL;
}

/* The values that ops read: stored values rounded to the ops' format. */
static ab_status read_used(const ab_cell_memory *memory, const ab_plan_param *param, float *values) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    const ab_tensor *stored = &memory->tensor[param->stored];
    AB_TRY(ab_tensor_read(stored, values));
    ab_round_array(values, memory->tensor[param->used].format, &nearest, ab_tensor_count(stored));
    return AB_OK;
}

/* Also writes the master if there is one. */
static ab_status write_weight(const ab_cell_memory *to, const ab_plan_param *param, const float *values) {
    if (param->master != AB_NONE) AB_TRY(ab_tensor_write(&to->tensor[param->master], values));
    return ab_tensor_write(&to->tensor[param->stored], values);
}

/* ---- weights --------------------------------------------------------------------------------- */

static ab_status copy_weight(const ab_cell_memory *to, const ab_cell_memory *from, const ab_plan_param *param,
                             float *values) {
    const ab_plan_param *own = same_param(to->plan, param);
    if (!own) return ab_fail(AB_INTERNAL, "copying weights: the cells have different networks");
    AB_TRY(read_used(from, param, values));
    return write_weight(to, own, values);
}

ab_status ab_cell_copy_weights(ab_cell *cell, const ab_cell *from) {
    const ab_plan *plan = from->plan;
    float *values = ab_params_room(plan);
    ab_status status = values ? AB_OK : ab_fail(AB_NO_MEMORY, "copying weights: out of memory");
    for (int p = 0; p < plan->params && status == AB_OK; p++)
        status = copy_weight(&cell->memory, &from->memory, &plan->param[p], values);
    free(values);
    cell->position.steps = from->position.steps;
    ab_walk_weights_changed(&cell->walk);
    return status;
}

/* ---- whole state ----------------------------------------------------------------------------- */

static ab_status copy_optimizer_state(const ab_cell_memory *to, const ab_plan_param *own,
                                      const ab_cell_memory *from, const ab_plan_param *param, int states,
                                      float *values) {
    if (own->grad == AB_NONE || param->grad == AB_NONE) return AB_OK;
    for (int s = 0; s < states; s++) {
        AB_TRY(ab_tensor_read(&from->tensor[param->state[s]], values));
        AB_TRY(ab_tensor_write(&to->tensor[own->state[s]], values));
    }
    return AB_OK;
}

static ab_status copy_param(const ab_cell_memory *to, const ab_cell_memory *from, const ab_plan_param *param,
                            int states, float *values) {
    const ab_plan_param *own = same_param(to->plan, param);
    if (!own) return ab_fail(AB_INTERNAL, "copying a cell: the cells have different networks");
    AB_TRY(ab_tensor_read(&from->tensor[ab_params_weight(param)], values));
    AB_TRY(write_weight(to, own, values));
    return copy_optimizer_state(to, own, from, param, states, values);
}

static void copy_scalers(ab_loss_scalers *to, const ab_loss_scalers *from) {
    for (int k = 0; k < to->count && k < from->count; k++)
        if (to->scaler[k].kind == from->scaler[k].kind && ab_scaler_checks(&from->scaler[k]))
            to->scaler[k] = from->scaler[k];
}

static void copy_position(ab_step_position *to, const ab_step_position *from) {
    to->steps = from->steps;
    to->taken = from->taken;
    to->advanced = from->advanced;
}

ab_status ab_cell_copy_state(ab_cell *cell, const ab_cell *from) {
    const ab_plan *plan = from->plan;
    float *values = ab_params_room(plan);
    ab_status status = values ? AB_OK : ab_fail(AB_NO_MEMORY, "copying a cell: out of memory");
    for (int p = 0; p < plan->params && status == AB_OK; p++)
        status =
            copy_param(&cell->memory, &from->memory, &plan->param[p], cell->config.optimizer->states, values);
    free(values);
    copy_scalers(&cell->scalers, &from->scalers);
    copy_position(&cell->position, &from->position);
    ab_walk_weights_changed(&cell->walk);
    return status;
}

void ab_cell_seek(ab_cell *cell, int64_t step) { cell->position.steps = step; }
