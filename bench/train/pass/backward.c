/* One pass over the plan's nodes, last to first. */
#include "bench/train/pass/backward.h"

#include "bench/train/observe/observation.h"

/* Whether a parameter's gradient accumulates into `sum`: another op's contribution, or earlier micro-batches
 * that were not summed into a master's gradient. */
static bool accumulates_into(const ab_plan *plan, const ab_step_position *position,
                             const ab_plan_param *param) {
    const ab_plan_param *owner = param->owner == AB_NONE ? param : &plan->param[param->owner];
    return param->adds ||
           (position->micro > 0 && !position->apart &&
            (owner->master_grad == AB_NONE || plan->policy.keep.half_sums) && !ab_backward_by_loss(plan));
}

/* Zeroes the gradients of a node that this pass does not reach; they would keep values of another pass. */
static ab_status zero_unreached_grads(const ab_walk *walk, const ab_step_position *position,
                                      const ab_plan_node *node) {
    const ab_cell_memory *memory = walk->memory;
    for (int i = 0; i < node->inputs; i++)
        if (node->in_sum[i] == AB_NONE || node->starts_grad_sum[i])
            AB_TRY(
                ab_cell_memory_zero(memory, node->starts_grad_sum[i] ? node->in_sum[i] : node->in_grad[i]));
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &memory->plan->param[node->first_param + i];
        if (!accumulates_into(memory->plan, position, param)) AB_TRY(ab_cell_memory_zero(memory, param->sum));
    }
    return AB_OK;
}

/* Inputs of which the plan keeps only what was cast to them (plan_casts.c). */
static ab_status cast_inputs_again(const ab_walk *walk, const ab_plan_node *node) {
    const ab_cell_memory *memory = walk->memory;
    const ab_exec exec = ab_walk_unobserved(walk);
    for (int i = 0; i < node->inputs; i++)
        if (ab_plan_casts_again(memory->plan, node, i))
            AB_TRY(ab_cell_memory_cast(memory, &exec, &memory->tensor[node->in[i]],
                                       &memory->tensor[node->past.in[i]]));
    return AB_OK;
}

/* Whether the backward pass of node `head` does those of its tail; scales of layers need every gradient. */
static bool does_tail(const ab_walk *walk, int head, const ab_layer_scales *layers) {
    return !layers && ab_walk_is_fused_backward(walk, head);
}

/* Whether the backward pass of node n does that of the relu before it. */
static bool does_front(const ab_walk *walk, int n, const ab_layer_scales *layers) {
    return !layers && ab_walk_fuses_front(walk, n);
}

static ab_status node_backward(const ab_walk *walk, int n, ab_layer_scales *layers) {
    const ab_plan_node *node = &walk->memory->plan->node[n];
    const ab_net_op *op = ab_plan_node_op(walk->memory->plan, node);
    const bool past = !layers && ab_walk_passes_casts(walk);
    if (does_tail(walk, node->head, layers) || does_front(walk, node->behind, layers)) return AB_OK;
    if (op) {
        ab_exec exec = ab_walk_node_exec(walk, n);
        exec.fuse = does_tail(walk, n, layers) || does_front(walk, n, layers);
        ab_op_io behind;
        ab_op_io *io = ab_walk_operands(walk, n, past, &behind);
        if (!past) AB_TRY(cast_inputs_again(walk, node));
        AB_TRY(ab_walk_in_op(op, layers ? ab_layer_scales_backward(layers, walk, n, &exec)
                                        : walk->run[n]->backward(&exec, io)));
        return ab_observe_op(walk->observation, n, &walk->io[n], &exec, true);
    }
    if (node->in_grad[0] == AB_NONE || (past && node->passed_backward)) return AB_OK;
    ab_layer_scales_cast(layers, node->in_grad[0], node->out_grad);
    return ab_walk_cast(walk, AB_MOVE_CAST, node->net_op, true, node->in_grad[0], node->out_grad);
}

static ab_status sum_input_grads(const ab_walk *walk, const ab_plan_node *node, ab_layer_scales *layers) {
    for (int i = 0; i < node->inputs; i++) {
        const int sum = node->in_sum[i];
        if (sum != AB_NONE && node->starts_grad_sum[i]) {
            ab_layer_scales_cast(layers, sum, node->in_grad[i]);
            AB_TRY(ab_walk_cast(walk, AB_MOVE_CAST, node->net_op, true, sum, node->in_grad[i]));
        } else if (sum != AB_NONE) {
            AB_TRY(ab_layer_scales_align(layers, walk, sum, node->in_grad[i]));
            AB_TRY(ab_walk_add(walk, node->net_op, sum, node->in_grad[i]));
        }
        if (node->in_final[i])
            AB_TRY(ab_observe_fp32(walk->observation, sum != AB_NONE ? sum : node->in_grad[i]));
    }
    return AB_OK;
}

/* The sums of a node, and of the addition in its tail if its backward pass did that; none of a node whose
 * head does so. */
static ab_status sum_grads_of(const ab_walk *walk, int n, ab_layer_scales *layers) {
    const ab_plan_node *all = walk->memory->plan->node, *node = &all[n];
    if (does_tail(walk, node->head, layers)) return AB_OK;
    if (node->add != AB_NONE && does_tail(walk, n, layers))
        AB_TRY(sum_input_grads(walk, &all[node->add], layers));
    return sum_input_grads(walk, node, layers);
}

/* Whether a half gradient stays in the memory of its fp32 gradient (ab_gradients_begin). */
static bool stays_half(const ab_walk *walk, const ab_plan_param *param) {
    const ab_tensor *tensor = walk->memory->tensor;
    return tensor[param->used_grad].data == tensor[param->sum].data;
}

static ab_status sum_param_grads(const ab_walk *walk, const ab_step_position *position,
                                 const ab_plan_node *node) {
    const ab_plan *plan = walk->memory->plan;
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &plan->param[node->first_param + i];
        AB_TRY(ab_observe_fp32(walk->observation, param->used_grad));
        if (param->used_grad == AB_NONE || param->used_grad == param->sum || stays_half(walk, param))
            continue;
        AB_TRY(accumulates_into(plan, position, param)
                   ? ab_walk_add(walk, param->net_op, param->sum, param->used_grad)
                   : ab_walk_cast(walk, AB_MOVE_GRADIENT_CAST, param->net_op, true, param->sum,
                                  param->used_grad));
    }
    return AB_OK;
}

ab_status ab_backward_start(const ab_walk *walk, const ab_step_position *position, double scale,
                            double share) {
    const ab_plan *plan = walk->memory->plan;
    for (int i = 0; i < plan->losses; i++) {
        const double own = plan->loss_id[i] == position->loss_id ? scale : 0;
        const float grad = (float)(own * plan->net->loss[i].weight * share);
        AB_TRY(ab_tensor_write(&walk->memory->tensor[plan->loss_grad[i]], &grad));
    }
    return AB_OK;
}

ab_status ab_backward(const ab_walk *walk, const ab_step_position *position, ab_layer_scales *layers) {
    const ab_plan *plan = walk->memory->plan;
    ab_layer_scales_begin(layers, walk->observation->is_replay);
    for (int n = plan->nodes - 1; n >= 0; n--) {
        const ab_plan_node *node = &plan->node[n];
        if (node->recompute_passes >> position->loss_id & 1u) AB_TRY(ab_recompute_block(walk, n));
        if (node->out_grad == AB_NONE) continue; /* nothing trained before this node */
        if (!(node->passes >> position->loss_id & 1u)) {
            AB_TRY(zero_unreached_grads(walk, position, node));
            continue;
        }
        AB_TRY(node_backward(walk, n, layers));
        ab_step_times_node(walk->times, AB_TIMED_BACKWARD, n);
        AB_TRY(sum_grads_of(walk, n, layers));
        AB_TRY(sum_param_grads(walk, position, node));
        ab_step_times_node(walk->times, AB_TIMED_SUMS, n);
        if (walk->passed) AB_TRY(walk->passed(walk->passed_context, n));
    }
    return AB_OK;
}

/* Forward passes of single nodes. Running statistics are updated in a copy that is discarded. */

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
        if (node[n].recomputed) {
            AB_TRY(recompute_node(walk, n));
            ab_step_times_node(walk->times, AB_TIMED_FORWARD, n);
        }
    return AB_OK;
}
