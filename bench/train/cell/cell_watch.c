/* Who sees what: numbers for the tensors that a probed step shows, by the roles that are asked for. */
#include "bench/train/cell/cell_state.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const ab_watch gradients_only = {.roles = AB_SEES_GRADIENTS};

static bool wanted(const ab_cell *cell, ab_probe_role role) { return cell->watch.roles >> role & 1u; }

static bool is_fp32(const ab_cell *cell, int tensor) {
    return cell->plan->tensor[tensor].format == &ab_format_fp32;
}

/* The next number, for what is described. */
static int observe(ab_cell *cell, const char *name, int net_op, ab_probe_role role, bool cast) {
    ab_observed *about = &cell->observed[cell->observed_count];
    ab_text_exact(about->name, sizeof about->name, "%s", name);
    about->layer = cell->plan->net->op[net_op].name;
    about->role = role;
    about->cast = cast;
    return cell->observed_count++;
}

/* ---- tensors of the plan ----------------------------------------------------------------------------------- */

/* Net op whose value a tensor holds (itself or a cast of it), or AB_NONE for the network's input. */
static int producer(const ab_plan *plan, int tensor) {
    for (int n = 0; n < plan->nodes; n++) {
        if (plan->node[n].out != tensor) continue;
        return plan->node[n].kind == AB_NODE_OP ? plan->node[n].net_op : producer(plan, plan->node[n].in[0]);
    }
    return AB_NONE;
}

static bool is_cast_output(const ab_plan *plan, int tensor) {
    for (int n = 0; n < plan->nodes; n++)
        if (plan->node[n].out == tensor) return plan->node[n].kind == AB_NODE_CAST;
    return false;
}

/* The gradient of a half copy of a weight goes by the name it has at the other levels, an op's share of a shared weight's by the
 * op's. */
static void number_weight_gradients(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        char own[AB_PLAN_NAME], name[AB_PLAN_NAME + 8];
        if (param->used_grad == AB_NONE) continue;
        ab_text_exact(name, sizeof name, "%s.grad", ab_cell_param_name(cell, param, own));
        cell->tensor[param->used_grad].id =
            observe(cell, name, param->net_op, AB_ROLE_WEIGHT_GRADIENT, !is_fp32(cell, param->used_grad));
    }
}

/* Every gradient is seen where it is first written. The fp32 gradient of a cast value is left out: the cast shows the same
 * values when it rounds them. Partial sums of a gradient share its number. */
static void number_activation_gradient(ab_cell *cell, const ab_plan_node *node, int i) {
    const ab_plan *plan = cell->plan;
    int grad = node->in_grad[i];
    if (grad == AB_NONE) return;
    if (node->in_sum[i] != AB_NONE && !node->starts_grad_sum[i])
        cell->tensor[grad].id = cell->tensor[node->in_sum[i]].id;
    else if (!(is_fp32(cell, grad) && is_cast_output(plan, node->in[i])))
        cell->tensor[grad].id = observe(cell, plan->tensor[grad].name, producer(plan, node->in[i]),
                                        AB_ROLE_ACTIVATION_GRADIENT, !is_fp32(cell, grad));
}

static bool is_cast_to_half(const ab_plan *plan, int tensor) {
    for (int n = 0; n < plan->nodes; n++)
        if (plan->node[n].kind == AB_NODE_CAST && plan->node[n].in[0] == tensor &&
            plan->tensor[plan->node[n].out].format != &ab_format_fp32)
            return true;
    return false;
}

/* An output is seen where it is rounded: in its op, or in the cast that follows; fp32 that stays fp32 where it is made. */
static void number_activation(ab_cell *cell, const ab_plan_node *node) {
    const ab_plan *plan = cell->plan;
    int op = producer(plan, node->out);
    char name[AB_PLAN_NAME];
    if (op == AB_NONE || plan->net->op[op].op->is_loss) return;
    bool fp32 = is_fp32(cell, node->out), cast_node = node->kind == AB_NODE_CAST;
    if (cast_node && (fp32 || !is_fp32(cell, node->in[0]))) return;
    if (!cast_node && fp32 && is_cast_to_half(plan, node->out)) return;
    ab_text_exact(name, sizeof name, "%s.out", plan->net->op[op].name);
    cell->tensor[node->out].id = observe(cell, name, op, AB_ROLE_ACTIVATION, !fp32);
}

/* ---- parameters -------------------------------------------------------------------------------------------- */

static int number_param(ab_cell *cell, int p, ab_probe_role role, const char *suffix, bool cast) {
    const ab_plan_param *param = &cell->plan->param[p];
    char name[AB_PLAN_NAME];
    if (!wanted(cell, role) || param->grad == AB_NONE) return -1;
    ab_text_exact(name, sizeof name, "%s%s%s", cell->plan->tensor[param->stored].name, suffix[0] ? "." : "",
                  suffix);
    return observe(cell, name, param->net_op, role, cast);
}

static void number_params(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    const ab_optimizer *optimizer = cell->config.optimizer;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        ab_shown *shown = &cell->shown[p];
        int unscaled = param->master_grad != AB_NONE ? param->master_grad : param->grad;
        shown->unscaled = number_param(cell, p, AB_ROLE_UNSCALED_GRADIENT, "grad",
                                       unscaled != AB_NONE && !is_fp32(cell, unscaled));
        shown->weight = number_param(cell, p, AB_ROLE_WEIGHT, "", !is_fp32(cell, param->used));
        for (int i = 0; i < AB_OPTIMIZER_STATES; i++)
            shown->state[i] = i < optimizer->states
                                  ? number_param(cell, p, AB_ROLE_OPTIMIZER_STATE, optimizer->state[i],
                                                 param->grad != AB_NONE && !is_fp32(cell, param->state[i]))
                                  : -1;
    }
}

static void list_trained(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        cell->shown[p].trained = -1;
        if (param->grad == AB_NONE) continue;
        int weight = param->master != AB_NONE ? param->master : param->stored;
        bool states = cell->config.optimizer->states > 0;
        ab_probe_param *about = &cell->trained[cell->trained_count];
        about->name = plan->tensor[param->stored].name;
        about->layer = plan->net->op[param->net_op].name;
        about->count = ab_shape_count(&plan->tensor[weight].shape);
        about->rows = plan->tensor[weight].shape.ndim > 1 ? plan->tensor[weight].shape.dim[0] : 0;
        about->format = plan->tensor[weight].format;
        about->state_format = states ? plan->tensor[param->state[0]].format : about->format;
        cell->shown[p].trained = cell->trained_count++;
    }
}

/* ---- interface --------------------------------------------------------------------------------------------- */

void ab_cell_watch(ab_cell *cell, const ab_watch *watch) {
    const ab_plan *plan = cell->plan;
    cell->watch = watch ? *watch : gradients_only;
    cell->observed_count = 0;
    for (int i = 0; i < plan->tensors; i++) cell->tensor[i].id = -1;
    if (wanted(cell, AB_ROLE_WEIGHT_GRADIENT)) number_weight_gradients(cell);
    for (int n = plan->nodes - 1; n >= 0 && wanted(cell, AB_ROLE_ACTIVATION_GRADIENT); n--)
        for (int i = 0; i < plan->node[n].inputs; i++) number_activation_gradient(cell, &plan->node[n], i);
    for (int n = 0; n < plan->nodes && wanted(cell, AB_ROLE_ACTIVATION); n++)
        number_activation(cell, &plan->node[n]);
    number_params(cell);
}

ab_status ab_cell_watch_start(ab_cell *cell) {
    size_t tensors = (size_t)cell->plan->tensors, params = (size_t)cell->plan->params;
    cell->observed = calloc(tensors + params * (2 + AB_OPTIMIZER_STATES), sizeof *cell->observed);
    cell->shown = calloc(params + 1, sizeof *cell->shown);
    cell->trained = calloc(params + 1, sizeof *cell->trained);
    if (!cell->observed || !cell->shown || !cell->trained)
        return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    list_trained(cell);
    ab_cell_watch(cell, NULL);
    return AB_OK;
}

int ab_cell_observed_count(const ab_cell *cell) { return cell->observed_count; }
const ab_observed *ab_cell_observed_at(const ab_cell *cell, int i) { return &cell->observed[i]; }
int ab_cell_trained_count(const ab_cell *cell) { return cell->trained_count; }
const ab_probe_param *ab_cell_trained_at(const ab_cell *cell, int i) { return &cell->trained[i]; }
