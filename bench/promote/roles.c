/* Finds the parts of a plan that are half. */
#include "bench/promote/roles.h"

#include "kernels/core/text.h"

#include <stdio.h>

static bool is_half(const ab_plan *plan, int tensor) {
    return tensor != AB_NONE && plan->tensor[tensor].format && plan->tensor[tensor].format != &ab_format_fp32;
}

/* Bytes of a tensor if it is half and has its own memory. */
static int64_t half_bytes(const ab_plan *plan, int tensor) {
    return is_half(plan, tensor) && plan->tensor[tensor].shares == AB_NONE ? plan->tensor[tensor].bytes : 0;
}

typedef struct role_use {
    bool half[AB_LAYER_ROLES];
    int64_t bytes[AB_LAYER_ROLES];
} role_use;

static void add_use(const ab_plan *plan, int tensor, ab_layer_role role, role_use *use) {
    use->half[role] = use->half[role] || is_half(plan, tensor);
    use->bytes[role] += half_bytes(plan, tensor);
}

/* Adds the tensors of a node of the op; a cast belongs to the op that it was inserted for, and has gradients
 * only. */
static void add_node(const ab_plan *plan, const ab_plan_node *node, role_use *use) {
    for (int i = 0; i < node->inputs; i++) add_use(plan, node->in_grad[i], AB_LAYER_DGRAD, use);
    if (node->kind != AB_NODE_OP) return;
    add_use(plan, node->out, AB_LAYER_FORWARD, use);
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &plan->param[node->first_param + i];
        add_use(plan, param->used_grad, AB_LAYER_WGRAD, use);
        if (param->owner == AB_NONE && param->grad != AB_NONE)
            add_use(plan, param->used, AB_LAYER_WEIGHTS, use);
    }
}

static role_use use_of(const ab_plan *plan, int net_op) {
    role_use use = {.half = {false}};
    for (int n = 0; n < plan->nodes; n++)
        if (plan->node[n].net_op == net_op) add_node(plan, &plan->node[n], &use);
    return use;
}

static void append(ab_promote_item *item, int *count, const ab_plan *plan, int net_op, int role,
                   int64_t bytes) {
    if (*count == AB_DDMIN_ITEMS) return;
    ab_promote_item *added = &item[(*count)++];
    *added = (ab_promote_item){.net_op = net_op, .role = role, .bytes = bytes};
    const bool whole = role == AB_LAYER_ROLES;
    ab_text_exact(added->name, sizeof added->name, "%s%s%s", plan->net->op[net_op].name, whole ? "" : ":",
                  whole ? "" : ab_layer_role_name((ab_layer_role)role));
}

void ab_promote_layers(const ab_plan *plan, ab_promote_item *item, int *count) {
    for (int i = 0; i < plan->net->ops; i++) {
        const role_use use = use_of(plan, i);
        if (plan->net->op[i].outside || !(use.half[AB_LAYER_FORWARD] || use.half[AB_LAYER_WEIGHTS])) continue;
        append(item, count, plan, i, AB_LAYER_ROLES,
               use.bytes[AB_LAYER_FORWARD] + use.bytes[AB_LAYER_WEIGHTS]);
    }
}

void ab_promote_roles(const ab_plan *plan, int net_op, ab_promote_item *item, int *count) {
    const role_use use = use_of(plan, net_op);
    for (int role = 0; role < AB_LAYER_ROLES; role++)
        if (use.half[role]) append(item, count, plan, net_op, role, use.bytes[role]);
}
