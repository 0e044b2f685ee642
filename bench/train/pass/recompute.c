/* Forward passes of single nodes. Running statistics are updated in a copy that is discarded. */
#include "bench/train/pass/recompute.h"

static ab_status recompute_cast(const ab_walk *walk, const ab_plan_node *node) {
    const ab_cell_memory *memory = walk->memory;
    const ab_exec exec = ab_walk_unobserved(walk);
    return ab_cell_memory_cast(memory, &exec, &memory->tensor[node->out], &memory->tensor[node->in[0]]);
}

static ab_status recompute_node(const ab_walk *walk, int n) {
    const ab_plan *plan = walk->memory->plan;
    const ab_plan_node *node = &plan->node[n];
    const ab_net_op *op = ab_plan_node_op(plan, node);
    if (!op) return recompute_cast(walk, node);
    ab_op_io io = walk->io[n];
    ab_tensor second[AB_MAX_PARAMS];
    for (int i = 0; i < node->params; i++) {
        if (op->param[i].kind != AB_PARAM_BUFFER || node->frozen) continue;
        second[i] = *io.param[i];
        second[i].data = walk->memory->tensor[plan->recompute_buffer[i]].data;
        io.param[i] = &second[i];
    }
    ab_exec exec = ab_walk_node_exec(walk, n);
    exec.observer = NULL;
    return ab_walk_in_op(op, walk->run[n]->forward(&exec, &io));
}

ab_status ab_recompute_block(const ab_walk *walk, int last) {
    const ab_plan_node *node = walk->memory->plan->node;
    for (int n = node[last].recompute_first; n <= last; n++)
        if (node[n].recomputed) AB_TRY(recompute_node(walk, n));
    return AB_OK;
}
