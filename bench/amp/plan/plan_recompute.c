/* Chooses the nodes of a block that are replayed before its backward pass: those that produce what the
 * backward passes read, and the nodes they depend on. Values from outside the block are kept until then;
 * values produced inside are not. */
#include "bench/amp/plan/plan.h"

#include <stdlib.h>

/* Number of the recomputed block that contains the node, or -1. */
static int block_of(const ab_plan *plan, int n) {
    const int op = plan->node[n].net_op;
    return op != AB_NONE && plan->net->op[op].recompute ? plan->net->op[op].block : -1;
}

/* The node in [first, end) that writes a tensor, or AB_NONE. */
static int maker_of(const ab_plan *plan, int first, int end, int tensor) {
    for (int n = first; n < end; n++) {
        const ab_plan_node *node = &plan->node[n];
        if (node->out == tensor) return n;
        for (int i = 0; i < node->saves; i++)
            if (node->saved[i] == tensor) return n;
    }
    return AB_NONE;
}

static void mark_recomputed(ab_plan *plan, int first, int end, int tensor) {
    int n = maker_of(plan, first, end, tensor);
    if (n == AB_NONE || plan->node[n].recomputed) return;
    plan->node[n].recomputed = true;
    for (int i = 0; i < plan->node[n].inputs; i++) mark_recomputed(plan, first, end, plan->node[n].in[i]);
}

unsigned ab_plan_node_needs(const ab_plan *plan, const ab_plan_node *node) {
    const ab_net_op *op = ab_plan_node_op(plan, node);
    unsigned wanted = 0;
    if (!op || node->out_grad == AB_NONE) return 0;
    for (int i = 0; i < node->inputs; i++) wanted |= node->in_grad[i] != AB_NONE ? 1u << i : 0;
    return ab_op_needs(op->op, op->attrs, node->inputs, wanted);
}

static void mark_block(ab_plan *plan, int first, int end) {
    for (int n = first; n < end; n++) {
        const ab_plan_node *node = &plan->node[n];
        const unsigned needs = ab_plan_node_needs(plan, node);
        for (int i = 0; i < node->inputs; i++)
            if (needs >> i & 1u) mark_recomputed(plan, first, end, node->in[i]);
        if (needs & AB_NEEDS_OUT) mark_recomputed(plan, first, end, node->out);
        for (int i = 0; i < node->saves && node->out_grad != AB_NONE; i++)
            mark_recomputed(plan, first, end, node->saved[i]);
    }
    for (int n = first; n < end; n++)
        if (plan->node[n].recomputed) plan->node[end - 1].recompute_first = first;
}

/* Schedule positions: the forward pass, then for each node from the last: the replay of its block, if the
 * block ends there, and its backward pass. */
static void number_positions(ab_plan *plan) {
    int position = plan->nodes;
    for (int n = plan->nodes - 1; n >= 0; n--) {
        for (int m = plan->node[n].recompute_first; m != AB_NONE && m <= n; m++)
            if (plan->node[m].recomputed) plan->node[m].recompute_at = position++;
        plan->node[n].backward_at = position++;
    }
    plan->positions = position;
}

void ab_plan_schedule(ab_plan *plan) {
    for (int n = 0; n < plan->nodes; n++) {
        plan->node[n].recomputed = false;
        plan->node[n].recompute_first = plan->node[n].recompute_at = AB_NONE;
    }
    for (int first = 0, end; first < plan->nodes; first = end) {
        const int block = block_of(plan, first);
        for (end = first + 1; end < plan->nodes && block_of(plan, end) == block;) end++;
        if (block >= 0) mark_block(plan, first, end);
    }
    number_positions(plan);
}
