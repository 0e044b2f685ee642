/* One pass over the plan's nodes, first to last. */
#include "bench/train/pass/forward.h"

#include "bench/train/observe/observation.h"

#include <math.h>

/* Shows rounded weights: copies of masters and half copies of fp32 weights, made now or earlier. */
static void show_weights(const ab_walk *walk) {
    const ab_plan *plan = walk->memory->plan;
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->master != AB_NONE)
            ab_observe_cast_or_sum(walk->observation, AB_MOVE_WEIGHT_CAST, param->net_op, false,
                                   param->stored, param->master);
        if (param->used != param->stored)
            ab_observe_cast_or_sum(walk->observation, AB_MOVE_WEIGHT_CAST, param->net_op, false, param->used,
                                   param->stored);
    }
}

/* Half copies of fp32 weights, once per change of the weights. Those that the update made are made again
 * only to be seen. */
static ab_status cast_weights(ab_walk *walk) {
    const ab_cell_memory *memory = walk->memory;
    const ab_exec exec = ab_walk_exec(walk);
    const bool stale = walk->casts_version != walk->params_version;
    const bool made = walk->copies_version == walk->params_version && !exec.observer;
    for (int p = 0; p < memory->plan->params && stale && !made; p++) {
        const ab_plan_param *param = &memory->plan->param[p];
        if (param->used != param->stored)
            AB_TRY(ab_cell_memory_cast(memory, &exec, &memory->tensor[param->used],
                                       &memory->tensor[param->stored]));
    }
    walk->casts_version = walk->params_version;
    if (ab_observation_is_observed(walk->observation)) show_weights(walk);
    return AB_OK;
}

static ab_status op_forward(ab_walk *walk, int n, const ab_net_op *op) {
    ab_exec exec = ab_walk_node_exec(walk, n);
    exec.fuse = ab_walk_is_fused(walk, n);
    walk->io[n].params_version = walk->params_version;
    ab_op_io past;
    ab_op_io *io = ab_walk_operands(walk, n, ab_walk_passes_casts(walk), &past);
    AB_TRY(ab_walk_in_op(op, walk->run[n]->forward(&exec, io)));
    AB_TRY(ab_observe_fp32(walk->observation, walk->memory->plan->node[n].out));
    return ab_observe_op(walk->observation, n, &walk->io[n], &exec, false);
}

ab_status ab_forward_node(ab_walk *walk, int n) {
    const ab_plan *plan = walk->memory->plan;
    const ab_plan_node *node = &plan->node[n];
    const ab_net_op *op = ab_plan_node_op(plan, node);
    const bool passed = (node->passed_forward && ab_walk_passes_casts(walk)) ||
                        (walk->input_is_cast && n == plan->input_cast);
    if (!passed && !ab_walk_is_fused(walk, node->head)) /* else another op did it */
        AB_TRY(op ? op_forward(walk, n, op)
                  : ab_walk_cast(walk, AB_MOVE_CAST, node->net_op, false, node->out, node->in[0]));
    ab_step_times_node(walk->times, AB_TIMED_FORWARD, n);
    return AB_OK;
}

ab_status ab_forward_start(ab_walk *walk) {
    AB_TRY(cast_weights(walk));
    ab_step_times_part(walk->times, AB_TIMED_WEIGHT_CASTS);
    return AB_OK;
}

ab_status ab_forward(ab_walk *walk) {
    AB_TRY(ab_forward_start(walk));
    for (int n = 0; n < walk->memory->plan->nodes; n++) AB_TRY(ab_forward_node(walk, n));
    return AB_OK;
}

/* The bits of a NaN depend on the instructions that propagated it, and a probe may have written its payload:
 * all are reported as the same NaN. */
ab_status ab_forward_loss(const ab_walk *walk, float *loss) {
    const ab_plan *plan = walk->memory->plan;
    double sum = 0;
    for (int i = 0; i < plan->losses; i++) {
        float value;
        AB_TRY(ab_tensor_read(&walk->memory->tensor[plan->loss[i]], &value));
        sum += plan->net->loss[i].weight * (double)value;
    }
    *loss = isnan((float)sum) ? NAN : (float)sum;
    return AB_OK;
}
