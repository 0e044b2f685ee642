/* Ids of the tensors that a probed step shows, by requested roles. */
#include "bench/train/observe/observation.h"

#include "bench/train/memory/params.h"
#include "kernels/core/text.h"

#include <stdio.h>
#include <stdlib.h>

static const ab_watch gradients_only = {.roles = AB_SEES_GRADIENTS};

static bool wanted(const ab_observation *o, ab_probe_role role) { return o->watch.roles >> role & 1u; }

static bool is_fp32(const ab_observation *o, int tensor) {
    return o->memory->plan->tensor[tensor].format == &ab_format_fp32;
}

/* Returns the next id for the described tensor. */
static int number(ab_observation *o, const char *name, int net_op, ab_probe_role role, bool cast) {
    ab_observed *about = &o->observed[o->count];
    ab_text_exact(about->name, sizeof about->name, "%s", name);
    about->layer = o->memory->plan->net->op[net_op].name;
    about->role = role;
    about->cast = cast;
    return o->count++;
}

/* ---- tensors of the plan --------------------------------------------------------------------- */

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

/* The gradient of a half copy of a weight has the same name as at the other levels; an op's contribution to a
 * shared weight's gradient is named after the op. */
static void number_weight_gradients(ab_observation *o) {
    const ab_plan *plan = o->memory->plan;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        char own[AB_PLAN_NAME], name[AB_PLAN_NAME + 8];
        if (param->used_grad == AB_NONE) continue;
        ab_text_exact(name, sizeof name, "%s.grad", ab_params_name(plan, param, own));
        o->memory->tensor[param->used_grad].id =
            number(o, name, param->net_op, AB_ROLE_WEIGHT_GRADIENT, !is_fp32(o, param->used_grad));
    }
}

/* Every gradient is shown where it is first written. The fp32 gradient of a cast value is omitted: the cast
 * shows the same values when it rounds them. Partial sums of a gradient share its id. */
static void number_activation_gradient(ab_observation *o, const ab_plan_node *node, int i) {
    const ab_plan *plan = o->memory->plan;
    int grad = node->in_grad[i];
    if (grad == AB_NONE) return;
    if (node->in_sum[i] != AB_NONE && !node->starts_grad_sum[i])
        o->memory->tensor[grad].id = o->memory->tensor[node->in_sum[i]].id;
    else if (!(is_fp32(o, grad) && is_cast_output(plan, node->in[i])))
        o->memory->tensor[grad].id = number(o, plan->tensor[grad].name, producer(plan, node->in[i]),
                                            AB_ROLE_ACTIVATION_GRADIENT, !is_fp32(o, grad));
}

static bool is_cast_to_half(const ab_plan *plan, int tensor) {
    for (int n = 0; n < plan->nodes; n++)
        if (plan->node[n].kind == AB_NODE_CAST && plan->node[n].in[0] == tensor &&
            plan->tensor[plan->node[n].out].format != &ab_format_fp32)
            return true;
    return false;
}

/* An output is shown where it is rounded: in its op or in the following cast; fp32 that stays fp32 in its
 * op. */
static void number_activation(ab_observation *o, const ab_plan_node *node) {
    const ab_plan *plan = o->memory->plan;
    int op = producer(plan, node->out);
    char name[AB_PLAN_NAME];
    if (op == AB_NONE || plan->net->op[op].op->is_loss) return;
    bool fp32 = is_fp32(o, node->out), cast_node = node->kind == AB_NODE_CAST;
    if (cast_node && (fp32 || !is_fp32(o, node->in[0]))) return;
    if (!cast_node && fp32 && is_cast_to_half(plan, node->out)) return;
    ab_text_exact(name, sizeof name, "%s.out", plan->net->op[op].name);
    o->memory->tensor[node->out].id = number(o, name, op, AB_ROLE_ACTIVATION, !fp32);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static int number_param(ab_observation *o, int p, ab_probe_role role, const char *suffix, bool cast) {
    const ab_plan_param *param = &o->memory->plan->param[p];
    char name[AB_PLAN_NAME];
    if (!wanted(o, role) || param->grad == AB_NONE) return -1;
    ab_text_exact(name, sizeof name, "%s%s%s", o->memory->plan->tensor[param->stored].name,
                  suffix[0] ? "." : "", suffix);
    return number(o, name, param->net_op, role, cast);
}

static void number_params(ab_observation *o) {
    const ab_plan *plan = o->memory->plan;
    const ab_optimizer *optimizer = o->optimizer;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        ab_param_ids *ids = &o->ids[p];
        int unscaled = param->master_grad != AB_NONE ? param->master_grad : param->grad;
        ids->unscaled = number_param(o, p, AB_ROLE_UNSCALED_GRADIENT, "grad",
                                     unscaled != AB_NONE && !is_fp32(o, unscaled));
        ids->weight = number_param(o, p, AB_ROLE_WEIGHT, "", !is_fp32(o, param->used));
        for (int i = 0; i < AB_OPTIMIZER_STATES; i++)
            ids->state[i] = i < optimizer->states
                                ? number_param(o, p, AB_ROLE_OPTIMIZER_STATE, optimizer->state[i],
                                               param->grad != AB_NONE && !is_fp32(o, param->state[i]))
                                : -1;
    }
}

/* ---- interface ------------------------------------------------------------------------------- */

void ab_observation_watch(ab_observation *o, const ab_watch *watch) {
    const ab_plan *plan = o->memory->plan;
    o->watch = watch ? *watch : gradients_only;
    o->count = 0;
    for (int i = 0; i < plan->tensors; i++) o->memory->tensor[i].id = -1;
    if (wanted(o, AB_ROLE_WEIGHT_GRADIENT)) number_weight_gradients(o);
    for (int n = plan->nodes - 1; n >= 0 && wanted(o, AB_ROLE_ACTIVATION_GRADIENT); n--)
        for (int i = 0; i < plan->node[n].inputs; i++) number_activation_gradient(o, &plan->node[n], i);
    for (int n = 0; n < plan->nodes && wanted(o, AB_ROLE_ACTIVATION); n++)
        number_activation(o, &plan->node[n]);
    number_params(o);
}

ab_status ab_observation_init(ab_observation *o, const ab_cell_memory *memory,
                              const ab_optimizer *optimizer) {
    const size_t tensors = (size_t)memory->plan->tensors, params = (size_t)memory->plan->params;
    o->memory = memory;
    o->optimizer = optimizer;
    o->observed = calloc(tensors + params * (2 + AB_OPTIMIZER_STATES), sizeof *o->observed);
    o->ids = calloc(params + 1, sizeof *o->ids);
    o->op_mirror = calloc((size_t)memory->plan->nodes, sizeof *o->op_mirror);
    if (!o->observed || !o->ids || !o->op_mirror) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    ab_observation_watch(o, NULL);
    return AB_OK;
}

void ab_observation_fini(ab_observation *o) {
    for (int n = 0; o->op_mirror && n < o->memory->plan->nodes; n++) ab_host_mirror_destroy(o->op_mirror[n]);
    free(o->op_mirror);
    free(o->observed);
    free(o->ids);
    *o = (ab_observation){.observed = NULL};
}
