/* Look-ups in a plan. */
#include "bench/amp/plan/plan.h"

#include <string.h>

const ab_net_op *ab_plan_node_op(const ab_plan *plan, const ab_plan_node *node) {
    return node->kind == AB_NODE_OP ? &plan->net->op[node->net_op] : NULL;
}

double ab_plan_backward_flops(const ab_net_op *op, double forward, int gradients) {
    const double ratio = op && gradients > 0 ? op->op->backward_ratio : 0;
    return forward * (ratio > 0 ? ratio : gradients);
}

int ab_plan_find(const ab_plan *plan, const char *name) {
    for (int i = 0; i < plan->tensors; i++)
        if (strcmp(plan->tensor[i].name, name) == 0) return i;
    return AB_NONE;
}

unsigned ab_plan_node_needs(const ab_plan *plan, const ab_plan_node *node) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    unsigned wanted = 0;
    if (!op || node->out_grad == AB_NONE) return 0;
    for (int i = 0; i < node->inputs; i++) wanted |= node->in_grad[i] != AB_NONE ? 1u << i : 0;
    return ab_op_needs(op->op, op->attrs, node->inputs, wanted);
}
