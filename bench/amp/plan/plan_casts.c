/* Casts that the op beside them can do itself: it widens what it reads and rounds what it writes once, so its
 * results have the bits of op and cast (op.h, mixes_formats). Such an op gets the tensors behind the casts;
 * on steps that somebody looks at, ops and casts run one after the other all the same. */
#include "bench/amp/plan/plan.h"

#include <stdlib.h>

/* Of each tensor: the node that writes it, and the only node that reads it; AB_NONE: none, or several. */
typedef struct neighbours {
    int *writer, *reader, *readers;
} neighbours;

static void find_neighbours(const ab_plan *plan, const neighbours *of) {
    for (int t = 0; t < plan->tensors; t++) of->writer[t] = of->reader[t] = AB_NONE;
    for (int n = 0; n < plan->nodes; n++) {
        const ab_plan_node *node = &plan->node[n];
        of->writer[node->out] = n;
        for (int i = 0; i < node->inputs; i++)
            of->reader[node->in[i]] = of->readers[node->in[i]]++ ? AB_NONE : n;
    }
}

/* The step loop reads these itself. */
static bool is_looked_at(const ab_plan *plan, int tensor) {
    for (int i = 0; i < plan->losses; i++)
        if (plan->loss[i] == tensor) return true;
    return tensor == plan->logits;
}

static bool is_wide(const ab_plan *plan, int tensor) {
    return tensor != AB_NONE && plan->tensor[tensor].format == &ab_format_fp32;
}

static bool is_half(const ab_plan *plan, int tensor) {
    const ab_format *format = tensor == AB_NONE ? NULL : plan->tensor[tensor].format;
    return format && format != &ab_format_fp32;
}

/* Broadcast operands are summed in a workspace that depends on their formats. */
static bool mixes(const ab_plan *plan, const ab_plan_node *node) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    if (!op || !op->op->mixes_formats) return false;
    for (int i = 0; i < node->inputs; i++)
        if (!ab_shape_equal(&plan->tensor[node->in[i]].shape, &plan->tensor[node->out].shape)) return false;
    return true;
}

/* The cast node `k` if it is one, else NULL. */
static ab_plan_node *cast_at(const ab_plan *plan, int k) {
    return k != AB_NONE && plan->node[k].kind == AB_NODE_CAST ? &plan->node[k] : NULL;
}

/* A cast to fp32 of input i. If the backward pass reads the input again, the half value is kept for it. */
static void pass_input(const ab_plan *plan, const neighbours *of, ab_plan_node *node, int i) {
    const int in = node->in[i], grad = node->in_grad[i];
    ab_plan_node *cast = cast_at(plan, of->writer[in]);
    if (!cast || of->reader[in] == AB_NONE || is_looked_at(plan, in)) return;
    if (!is_half(plan, cast->in[0]) || !is_wide(plan, in)) return;
    node->past.in[i] = cast->in[0];
    cast->passed_forward = true;
    if (is_wide(plan, grad) && grad == cast->out_grad && node->in_sum[i] == AB_NONE &&
        cast->in_grad[0] != AB_NONE) {
        node->past.in_grad[i] = cast->in_grad[0];
        cast->passed_backward = true;
    }
}

/* A cast to half of the output. */
static void pass_output(const ab_plan *plan, const neighbours *of, ab_plan_node *node) {
    const int out = node->out, grad = node->out_grad;
    ab_plan_node *cast = cast_at(plan, of->reader[out]);
    if (!cast || is_looked_at(plan, out) || ab_plan_node_needs(plan, node) & AB_NEEDS_OUT) return;
    if (!is_wide(plan, out) || !is_half(plan, cast->out)) return;
    node->past.out = cast->out;
    cast->passed_forward = true;
    if (is_wide(plan, grad) && grad == cast->in_grad[0] && cast->in_sum[0] == AB_NONE &&
        cast->out_grad != AB_NONE) {
        node->past.out_grad = cast->out_grad;
        cast->passed_backward = true;
    }
}

bool ab_plan_casts_again(const ab_plan *plan, const ab_plan_node *node, int i) {
    return node->past.in[i] != AB_NONE && ab_plan_node_needs(plan, node) >> i & 1u;
}

/* The node that casts the input to 16 bits if nothing else reads it but views on the way there. */
static int input_cast(const ab_plan *plan, const neighbours *of) {
    int tensor = plan->input, n = of->reader[tensor];
    while (n != AB_NONE && plan->node[n].kind == AB_NODE_OP && plan->node[n].inputs == 1 &&
           plan->tensor[plan->node[n].out].shares == tensor && !is_looked_at(plan, plan->node[n].out)) {
        tensor = plan->node[n].out;
        n = of->reader[tensor];
    }
    const ab_plan_node *cast = cast_at(plan, n);
    const ab_format *to = cast ? plan->tensor[cast->out].format : NULL;
    return to && to->storage_bytes == 2 && !cast->recomputed && is_wide(plan, plan->input) ? n : AB_NONE;
}

ab_status ab_plan_pass_casts(ab_plan *plan) {
    int *numbers = calloc((size_t)plan->tensors * 3, sizeof *numbers);
    if (!numbers) return ab_fail(AB_NO_MEMORY, "plan: out of memory");
    const neighbours of = {numbers, numbers + plan->tensors, numbers + 2 * plan->tensors};
    bool recomputes = plan->scalers > 1; /* values and gradients of one pass are then read by another */
    for (int n = 0; n < plan->nodes; n++) recomputes = recomputes || plan->node[n].recomputed;
    find_neighbours(plan, &of);
    plan->input_cast = recomputes ? AB_NONE : input_cast(plan, &of);
    for (int n = 0; n < plan->nodes && !recomputes; n++) {
        ab_plan_node *node = &plan->node[n];
        if (!mixes(plan, node)) continue;
        for (int i = 0; i < node->inputs; i++) pass_input(plan, &of, node, i);
        pass_output(plan, &of, node);
    }
    free(numbers);
    return AB_OK;
}
