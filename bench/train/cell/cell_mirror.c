/* One cell's parameters, or all of its state, in another cell of the same network, whatever the formats of the two; and weights
 * rounded by chance. */
#include "bench/train/cell/cell_state.h"

#include "kernels/format/convert.h"

#include <stdlib.h>

/* The other plan's parameter; both list the ops in the network's order. NULL: none. */
static const ab_plan_param *same_param(const ab_plan *plan, const ab_plan_param *param) {
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].net_op == param->net_op && plan->param[p].index == param->index)
            return &plan->param[p];
    return NULL;
}

static float *room_for_params(const ab_cell *cell) {
    int64_t most = 1;
    for (int p = 0; p < cell->plan->params; p++) {
        const int64_t n = ab_tensor_count(&cell->tensor[cell->plan->param[p].stored]);
        most = n > most ? n : most;
    }
    return malloc((size_t)most * sizeof(float));
}

/* What an op reads: the stored value, rounded to its format. */
static ab_status read_used(const ab_cell *cell, const ab_plan_param *param, float *values) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    const ab_tensor *stored = &cell->tensor[param->stored];
    AB_TRY(ab_tensor_read(stored, values));
    ab_round_array(values, cell->tensor[param->used].format, &nearest, ab_tensor_count(stored));
    return AB_OK;
}

static ab_status copy_param(ab_cell *to, const ab_cell *from, const ab_plan_param *param, float *values) {
    const ab_plan_param *own = same_param(to->plan, param);
    if (!own) return ab_fail(AB_INTERNAL, "mirror: the cells have different networks");
    AB_TRY(read_used(from, param, values));
    if (own->master != AB_NONE) AB_TRY(ab_tensor_write(&to->tensor[own->master], values));
    return ab_tensor_write(&to->tensor[own->stored], values);
}

ab_status ab_cell_mirror(ab_cell *cell, const ab_cell *of) {
    float *values = room_for_params(of);
    if (!values) return ab_fail(AB_NO_MEMORY, "mirror: out of memory");
    ab_status status = AB_OK;
    for (int p = 0; p < of->plan->params && status == AB_OK; p++)
        status = copy_param(cell, of, &of->plan->param[p], values);
    free(values);
    cell->steps = of->steps;
    cell->params_version++;
    return status;
}

/* ---- all of it --------------------------------------------------------------------------------------------- */

static const ab_tensor *best_of(const ab_cell *cell, const ab_plan_param *param) {
    return &cell->tensor[param->master != AB_NONE ? param->master : param->stored];
}

static ab_status inherit_states(ab_cell *to, const ab_plan_param *own, const ab_cell *from,
                                const ab_plan_param *param, float *values) {
    if (own->grad == AB_NONE || param->grad == AB_NONE) return AB_OK;
    for (int s = 0; s < to->config.optimizer->states; s++) {
        AB_TRY(ab_tensor_read(&from->tensor[param->state[s]], values));
        AB_TRY(ab_tensor_write(&to->tensor[own->state[s]], values));
    }
    return AB_OK;
}

static ab_status inherit_param(ab_cell *to, const ab_cell *from, const ab_plan_param *param, float *values) {
    const ab_plan_param *own = same_param(to->plan, param);
    if (!own) return ab_fail(AB_INTERNAL, "inherit: the cells have different networks");
    AB_TRY(ab_tensor_read(best_of(from, param), values));
    if (own->master != AB_NONE) AB_TRY(ab_tensor_write(&to->tensor[own->master], values));
    AB_TRY(ab_tensor_write(&to->tensor[own->stored], values));
    return inherit_states(to, own, from, param, values);
}

ab_status ab_cell_inherit(ab_cell *cell, const ab_cell *from) {
    float *values = room_for_params(from);
    if (!values) return ab_fail(AB_NO_MEMORY, "inherit: out of memory");
    ab_status status = AB_OK;
    for (int p = 0; p < from->plan->params && status == AB_OK; p++)
        status = inherit_param(cell, from, &from->plan->param[p], values);
    free(values);
    for (int k = 0; k < cell->plan->scalers && k < from->plan->scalers; k++)
        if (cell->scaler[k].kind == from->scaler[k].kind && ab_scaler_checks(&from->scaler[k]))
            cell->scaler[k] = from->scaler[k];
    cell->steps = from->steps;
    cell->taken = from->taken;
    cell->advanced = from->advanced;
    cell->params_version++;
    return status;
}

void ab_cell_seek(ab_cell *cell, int64_t step) { cell->steps = step; }

/* ---- rounding by chance ------------------------------------------------------------------------------------ */

ab_status ab_cell_round_weights(ab_cell *cell, uint64_t seed, bool masters, bool *any) {
    static const ab_rounding chance = {.mode = AB_ROUND_STOCHASTIC, .random_bits = 32};
    float *values = room_for_params(cell);
    ab_status status = values ? AB_OK : ab_fail(AB_NO_MEMORY, "rounding weights: out of memory");
    *any = false;
    for (int p = 0; p < cell->plan->params && status == AB_OK; p++) {
        const ab_plan_param *param = &cell->plan->param[p];
        if (param->master == AB_NONE) continue;
        ab_tensor *stored = &cell->tensor[param->stored], *master = &cell->tensor[param->master];
        *any = true;
        AB_TRY_GOTO(ab_tensor_read(master, values));
        ab_round_array_stochastic(values, stored->format, &chance, seed, (uint32_t)cell->steps,
                                  (uint64_t)p << 32, ab_tensor_count(stored));
        AB_TRY_GOTO(ab_tensor_write(stored, values));
        if (masters) AB_TRY_GOTO(ab_tensor_write(master, values));
    }
out:
    cell->params_version++;
    free(values);
    return status;
}
