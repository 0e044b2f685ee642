#include "bench/profile/work.h"

#include "kernels/format/halves.h"

/* ---- operands -------------------------------------------------------------------------------- */

int64_t ab_work_bytes(const ab_plan *plan, int tensor) {
    if (tensor == AB_NONE) return 0;
    const ab_plan_tensor *t = &plan->tensor[tensor];
    const int64_t n = ab_shape_count(&t->shape);
    return t->format ? (int64_t)ab_format_bytes(t->format, n) : n * (int64_t)sizeof(int32_t);
}

/* The operand, or the tensor behind the cast beside it. */
static int behind(bool past, int other, int own) { return past && other != AB_NONE ? other : own; }

void ab_work_forward(const ab_plan *plan, const ab_plan_node *node, bool past, ab_work_operand visit,
                     void *context) {
    for (int i = 0; i < node->inputs; i++) visit(context, behind(past, node->past.in[i], node->in[i]), false);
    for (int i = 0; i < node->params; i++) visit(context, plan->param[node->first_param + i].used, false);
    for (int i = 0; i < node->saves; i++) visit(context, node->saved[i], true);
    visit(context, behind(past, node->past.out, node->out), true);
}

static int memory_of(const ab_plan *plan, int tensor) {
    while (tensor != AB_NONE && plan->tensor[tensor].shares != AB_NONE) tensor = plan->tensor[tensor].shares;
    return tensor;
}

static bool is_addition(const ab_plan *plan, const ab_plan_node *node) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    return op && op->op == &ab_op_add;
}

/* Whether an addition's gradient of input i is wanted, and is the output's where it lies. */
static bool is_passed_on(const ab_plan *plan, const ab_plan_node *node, int i) {
    return is_addition(plan, node) && node->in_grad[i] != AB_NONE &&
           memory_of(plan, node->in_grad[i]) == memory_of(plan, node->out_grad);
}

static bool does_nothing(const ab_plan *plan, const ab_plan_node *node) {
    for (int i = 0; i < node->inputs; i++)
        if (node->in_grad[i] != AB_NONE && !is_passed_on(plan, node, i)) return false;
    return is_addition(plan, node);
}

/* The output's gradient and what backward reads of the forward pass, and the gradients that it writes. */
void ab_work_backward(const ab_plan *plan, const ab_plan_node *node, bool past, ab_work_operand visit,
                      void *context) {
    const ab_plan_past *other = &node->past;
    const unsigned needs = ab_plan_node_needs(plan, node);
    if (does_nothing(plan, node)) return;
    visit(context, behind(past, other->out_grad, node->out_grad), false);
    if (needs & AB_NEEDS_OUT) visit(context, node->out, false);
    for (int i = 0; i < node->saves; i++) visit(context, node->saved[i], false);
    for (int i = 0; i < node->inputs; i++)
        if (needs >> i & 1u) visit(context, behind(past, other->in[i], node->in[i]), false);
    if (node->params > 0 && node->in_grad[0] != AB_NONE)
        visit(context, plan->param[node->first_param].used, false);
    for (int i = 0; i < node->inputs; i++)
        if (!is_passed_on(plan, node, i))
            visit(context, behind(past, other->in_grad[i], node->in_grad[i]), true);
    for (int i = 0; i < node->params; i++) visit(context, plan->param[node->first_param + i].used_grad, true);
}

void ab_work_sums(const ab_plan *plan, const ab_plan_node *node, const bool *left, ab_work_operand visit,
                  void *context) {
    for (int i = 0; i < node->inputs; i++) {
        if (node->in_sum[i] == AB_NONE) continue;
        visit(context, node->in_grad[i], false);
        if (!node->starts_grad_sum[i]) visit(context, node->in_sum[i], false);
        visit(context, node->in_sum[i], true);
    }
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &plan->param[node->first_param + i];
        if (param->used_grad == param->sum || left[node->first_param + i]) continue;
        visit(context, param->used_grad, false);
        visit(context, param->sum, true);
    }
}

void ab_work_weight_casts(const ab_plan *plan, ab_work_operand visit, void *context) {
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->used == param->stored) continue;
        visit(context, param->stored, false);
        visit(context, param->used, true);
    }
}

static void update(int tensor, ab_work_operand visit, void *context) {
    visit(context, tensor, false);
    visit(context, tensor, true);
}

void ab_work_update(const ab_plan *plan, const bool *left, ab_work_operand visit, void *context) {
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->grad == AB_NONE || param->owner != AB_NONE) continue;
        visit(context,
              left[p]                         ? param->used_grad
              : param->master_grad != AB_NONE ? param->master_grad
                                              : param->grad,
              false);
        update(param->master != AB_NONE ? param->master : param->stored, visit, context);
        if (param->master != AB_NONE) visit(context, param->stored, true);
        for (int k = 0; k < AB_MAX_STATES; k++) update(param->state[k], visit, context);
    }
}

double ab_work_again_bytes(const ab_plan *plan, const ab_plan_node *node, bool backward, bool past) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    if (!op || !op->op->batch_norm || ab_net_op_frozen(op)) return 0;
    const double in = (double)ab_work_bytes(plan, behind(past, node->past.in[0], node->in[0]));
    if (!backward) return in;
    return in + (double)ab_work_bytes(plan, behind(past, node->past.out_grad, node->out_grad));
}

/* ---- operations ------------------------------------------------------------------------------ */

static void input_shapes(const ab_plan *plan, const ab_plan_node *node, ab_shape in[AB_MAX_INPUTS]) {
    for (int i = 0; i < node->inputs; i++) in[i] = plan->tensor[node->in[i]].shape;
}

static double forward_flops(const ab_plan *plan, const ab_plan_node *node, const ab_net_op *op) {
    ab_shape in[AB_MAX_INPUTS];
    if (!op || !op->op->flops) return 0;
    input_shapes(plan, node, in);
    return op->op->flops(op->attrs, in, &plan->tensor[node->out].shape);
}

double ab_work_flops(const ab_plan *plan, const ab_plan_node *node, bool backward) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    if (!backward) return forward_flops(plan, node, op);
    int gradients = op && ab_net_op_trains(op);
    for (int i = 0; i < node->inputs; i++) gradients += node->in_grad[i] != AB_NONE;
    return ab_plan_backward_flops(op, forward_flops(plan, node, op), gradients);
}

double ab_work_wide_flops(const ab_plan *plan, const ab_plan_node *node, bool backward) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    ab_shape in[AB_MAX_INPUTS];
    if (!op || !op->op->wide_flops) return 0;
    input_shapes(plan, node, in);
    return op->op->wide_flops(op->attrs, in, &plan->tensor[node->out].shape, backward);
}

double ab_work_elementary(const ab_plan *plan, const ab_plan_node *node, bool backward,
                          double count[AB_ELEMENTARY_COUNT]) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    ab_shape in[AB_MAX_INPUTS];
    if (!op || !op->op->elementary) return 0;
    if (op->op->by_code && ab_is_half(plan->tensor[node->in[0]].format))
        return (double)ab_shape_count(&plan->tensor[node->out].shape);
    input_shapes(plan, node, in);
    op->op->elementary(op->attrs, in, &plan->tensor[node->out].shape, backward, count);
    return 0;
}
