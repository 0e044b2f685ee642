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

/* A block, the nodes [first, end). */
typedef struct block {
    ab_plan *plan;
    const int *maker; /* the node that writes a tensor, or AB_NONE */
    int first, end;
} block;

static void find_makers(const ab_plan *plan, int *maker) {
    for (int t = 0; t < plan->tensors; t++) maker[t] = AB_NONE;
    for (int n = 0; n < plan->nodes; n++) {
        const ab_plan_node *node = &plan->node[n];
        maker[node->out] = n;
        for (int i = 0; i < node->saves; i++) maker[node->saved[i]] = n;
    }
}

static void mark_recomputed(const block *b, int tensor) {
    const int n = b->maker[tensor];
    if (n < b->first || n >= b->end || b->plan->node[n].recomputed) return;
    ab_plan_node *node = &b->plan->node[n];
    node->recomputed = true;
    for (int i = 0; i < node->inputs; i++) mark_recomputed(b, node->in[i]);
}

static void mark_block(const block *b) {
    ab_plan *plan = b->plan;
    for (int n = b->first; n < b->end; n++) {
        const ab_plan_node *node = &plan->node[n];
        const unsigned needs = ab_plan_node_needs(plan, node);
        for (int i = 0; i < node->inputs; i++)
            if (needs >> i & 1u) mark_recomputed(b, node->in[i]);
        if (needs & AB_NEEDS_OUT) mark_recomputed(b, node->out);
        for (int i = 0; i < node->saves && node->out_grad != AB_NONE; i++) mark_recomputed(b, node->saved[i]);
    }
    for (int n = b->first; n < b->end; n++)
        if (plan->node[n].recomputed) plan->node[b->end - 1].recompute_first = b->first;
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

ab_status ab_plan_schedule(ab_plan *plan) {
    int *maker = malloc((size_t)plan->tensors * sizeof *maker);
    if (!maker) return ab_fail(AB_NO_MEMORY, "plan: out of memory");
    find_makers(plan, maker);
    for (int n = 0; n < plan->nodes; n++) {
        plan->node[n].recomputed = false;
        plan->node[n].recompute_first = plan->node[n].recompute_at = AB_NONE;
    }
    for (int first = 0, end; first < plan->nodes; first = end) {
        const int number = block_of(plan, first);
        for (end = first + 1; end < plan->nodes && block_of(plan, end) == number;) end++;
        if (number >= 0) mark_block(&(block){plan, maker, first, end});
    }
    number_positions(plan);
    free(maker);
    return AB_OK;
}
