/* One cell's parameters in another cell of the same network, whatever the formats of the two. */
#include "bench/train/cell_state.h"

#include "kernels/convert.h"

#include <stdlib.h>

/* The other plan's parameter; both list the ops in the network's order. NULL: none. */
static const ab_plan_param *same_param(const ab_plan *plan, const ab_plan_param *param) {
    for (int p = 0; p < plan->params; p++)
        if (plan->param[p].net_op == param->net_op && plan->param[p].index == param->index)
            return &plan->param[p];
    return NULL;
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
    int64_t most = 1;
    for (int p = 0; p < of->plan->params; p++) {
        const int64_t n = ab_tensor_count(&of->tensor[of->plan->param[p].stored]);
        most = n > most ? n : most;
    }
    float *values = malloc((size_t)most * sizeof *values);
    if (!values) return ab_fail(AB_NO_MEMORY, "mirror: out of memory");
    ab_status status = AB_OK;
    for (int p = 0; p < of->plan->params && status == AB_OK; p++)
        status = copy_param(cell, of, &of->plan->param[p], values);
    free(values);
    cell->steps = of->steps;
    cell->params_version++;
    return status;
}
