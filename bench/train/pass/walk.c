/* Sets up operands, selects implementations and prepares them. */
#include "bench/train/pass/walk.h"

#include "bench/train/observe/observation.h"
#include "kernels/backend/fallback.h"

#include <stdlib.h>

/* ---- operands -------------------------------------------------------------------------------- */

/* The addend is the input of the addition that is not the op's own output. */
static ab_tail tail_of(const ab_cell_memory *memory, const ab_plan_node *node) {
    const ab_plan *plan = memory->plan;
    if (node->relu == AB_NONE) return (ab_tail){.out = NULL};
    const ab_plan_node *relu = &plan->node[node->relu];
    ab_tail tail = {.out = &memory->tensor[relu->out]};
    if (node->tail_backward) tail.dout = ab_cell_memory_tensor(memory, relu->out_grad);
    if (node->add == AB_NONE) return tail;
    const ab_plan_node *add = &plan->node[node->add];
    const int other = add->in[0] == node->out;
    tail.addend = &memory->tensor[add->in[other]];
    if (node->tail_backward) tail.daddend = ab_cell_memory_tensor(memory, add->in_grad[other]);
    return tail;
}

static void wire_node(ab_walk *walk, int n) {
    const ab_cell_memory *memory = walk->memory;
    const ab_plan *plan = memory->plan;
    const ab_plan_node *node = &plan->node[n];
    ab_op_io *io = &walk->io[n];
    if (node->kind != AB_NODE_OP) return;
    io->op = ab_plan_node_op(plan, node)->op;
    io->attrs = ab_plan_node_op(plan, node)->attrs;
    io->instance = (uint32_t)node->net_op;
    for (int i = 0; i < node->inputs; i++) {
        io->in[i] = &memory->tensor[node->in[i]];
        io->din[i] = ab_cell_memory_tensor(memory, node->in_grad[i]);
    }
    for (int i = 0; i < node->saves; i++) io->saved[i] = &memory->tensor[node->saved[i]];
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &plan->param[node->first_param + i];
        io->param[i] = &memory->tensor[param->used];
        io->dparam[i] = ab_cell_memory_tensor(memory, param->used_grad);
    }
    io->out = &memory->tensor[node->out];
    io->tail = tail_of(memory, node);
    io->behind_relu = node->front != AB_NONE;
    io->dout = ab_cell_memory_tensor(memory, node->out_grad);
}

static bool differ(const ab_tensor *a, const ab_tensor *b) { return a && b && a->format != b->format; }

/* The tensor whose format the result gets if no user decides: the first floating-point input, else the
 * weights, or these at once for an op that says so. */
static const ab_tensor *format_source(const ab_op_io *io) {
    for (int i = 0; i < AB_MAX_INPUTS && io->in[i] && !io->op->out_as_weight; i++)
        if (io->in[i]->format) return io->in[i];
    return io->param[0];
}

/* Whether the formats of result, inputs and weights differ; host ops accept any combination. */
static bool formats_mixed(const ab_op_io *io) {
    const ab_tensor *lead = format_source(io);
    bool mixed = differ(io->dout, io->out) || (!io->op->is_loss && differ(io->out, lead)) ||
                 (!io->op->norm && differ(io->param[0], lead));
    for (int i = 0; i < AB_MAX_INPUTS; i++) mixed = mixed || differ(io->din[i], io->in[i]);
    for (int i = 0; i < AB_MAX_PARAMS; i++) mixed = mixed || differ(io->dparam[i], io->param[i]);
    return mixed;
}

/* ---- implementations ------------------------------------------------------------------------- */

static ab_exec exec_of_node(const ab_walk *walk, int node, const ab_exec *common) {
    const ab_plan *plan = walk->memory->plan;
    const ab_net_op *op = ab_plan_node_op(plan, &plan->node[node]);
    ab_exec exec = *common;
    exec.training = exec.training && !plan->node[node].frozen;
    exec.accumulate_half = exec.accumulate_half || (op && op->accumulate_half);
    return exec;
}

static ab_status prepare_with(ab_walk *walk, int n, const ab_op *run, size_t *workspace, size_t *state) {
    walk->run[n] = run;
    *workspace = *state = 0;
    ab_exec exec = exec_of_node(walk, n, &walk->exec);
    exec.training = walk->exec.training;
    return run->prepare ? run->prepare(&exec, &walk->io[n], workspace, state) : AB_OK;
}

/* Selects the device's op, or the host's if the device has none for these tensors. */
static ab_status choose_op(ab_walk *walk, int n, const ab_op *op, size_t *workspace, size_t *state) {
    const ab_backend *backend = walk->memory->backend;
    const ab_op *own = backend->host_memory || !formats_mixed(&walk->io[n]) ? backend->op(op) : NULL;
    if (own) {
        ab_status status = prepare_with(walk, n, own, workspace, state);
        if (status != AB_UNAVAILABLE || backend->host_memory) return status;
        if (own->release) own->release(&walk->io[n]);
    }
    walk->fallbacks++;
    return prepare_with(walk, n, &ab_op_fallback, workspace, state);
}

/* Prepares the node's op, if it has one, and returns the bytes of its state. */
static ab_status prepare_node(ab_walk *walk, int n, size_t *state) {
    const ab_plan *plan = walk->memory->plan;
    const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
    size_t workspace;
    *state = 0;
    if (!op) return AB_OK;
    const ab_status status = choose_op(walk, n, op->op, &workspace, state);
    if (status != AB_OK)
        return ab_fail_prefix(status == AB_NO_MEMORY ? AB_NO_MEMORY : AB_INTERNAL, "op '%s'", op->name);
    if (workspace > walk->exec.workspace_bytes) walk->exec.workspace_bytes = workspace;
    return AB_OK;
}

static ab_status bind_node(ab_walk *walk, int n, size_t state) {
    void *memory;
    AB_TRY(ab_mem_alloc(walk->memory->mem, AB_MEM_workspace, (int64_t)state, &memory));
    if (walk->run[n] && walk->run[n]->bind) walk->run[n]->bind(&walk->io[n], memory);
    return AB_OK;
}

static void release_node(ab_walk *walk, int n) {
    if (walk->run[n] && walk->run[n]->release) walk->run[n]->release(&walk->io[n]);
    walk->run[n] = NULL;
}

/* Room for all nodes, none of them prepared. */
static ab_status start_walk(ab_walk *walk, const ab_cell_memory *memory, const ab_exec *exec) {
    walk->memory = memory;
    walk->exec = *exec;
    walk->params_version = 1;
    walk->io = calloc((size_t)memory->plan->nodes, sizeof *walk->io);
    walk->run = calloc((size_t)memory->plan->nodes, sizeof *walk->run);
    return walk->io && walk->run ? AB_OK : ab_fail(AB_NO_MEMORY, "cell: out of memory");
}

ab_status ab_walk_init(ab_walk *walk, const ab_cell_memory *memory, ab_observation *observation,
                       const ab_exec *exec) {
    size_t state;
    AB_TRY(start_walk(walk, memory, exec));
    walk->observation = observation;
    for (int n = 0; n < memory->plan->nodes; n++) {
        wire_node(walk, n);
        AB_TRY(prepare_node(walk, n, &state));
        AB_TRY(bind_node(walk, n, state));
    }
    return ab_mem_alloc(memory->mem, AB_MEM_workspace, (int64_t)walk->exec.workspace_bytes,
                        &walk->exec.workspace);
}

ab_status ab_walk_measure(const ab_cell_memory *memory, const ab_exec *exec, int64_t *bytes) {
    ab_walk walk = {.memory = memory};
    size_t state;
    ab_status status = start_walk(&walk, memory, exec);
    *bytes = 0;
    for (int n = 0; n < memory->plan->nodes && status == AB_OK; n++) {
        wire_node(&walk, n);
        status = prepare_node(&walk, n, &state);
        *bytes += ab_mem_rounded((int64_t)state);
        release_node(&walk, n);
    }
    *bytes += ab_mem_rounded((int64_t)walk.exec.workspace_bytes);
    ab_walk_fini(&walk);
    return status;
}

void ab_walk_fini(ab_walk *walk) {
    for (int n = 0; walk->io && walk->run && n < walk->memory->plan->nodes; n++) release_node(walk, n);
    free(walk->io);
    free(walk->run);
    *walk = (ab_walk){.io = NULL};
}

/* ---- shared by both passes ------------------------------------------------------------------- */

ab_exec ab_walk_unobserved(const ab_walk *walk) { return walk->exec; }

ab_exec ab_walk_exec(const ab_walk *walk) {
    ab_exec exec = walk->exec;
    exec.observer = walk->observation->observer;
    return exec;
}

ab_exec ab_walk_node_exec(const ab_walk *walk, int node) {
    ab_exec exec = ab_walk_exec(walk);
    return exec_of_node(walk, node, &exec);
}

bool ab_walk_is_fused(const ab_walk *walk, int head) {
    const ab_observation *o = walk->observation;
    return head != AB_NONE && walk->io[head].fuses && !walk->runs_casts && !ab_observation_is_observed(o) &&
           !o->follower;
}

bool ab_walk_is_fused_backward(const ab_walk *walk, int head) {
    return ab_walk_is_fused(walk, head) && walk->memory->plan->node[head].tail_backward;
}

bool ab_walk_fuses_front(const ab_walk *walk, int n) {
    return n != AB_NONE && walk->memory->plan->node[n].front != AB_NONE && ab_walk_is_fused(walk, n);
}

bool ab_walk_passes_casts(const ab_walk *walk) {
    const ab_observation *o = walk->observation;
    return walk->memory->backend->host_memory && !walk->runs_casts && !ab_observation_is_observed(o) &&
           !o->follower;
}

ab_tensor *ab_walk_cast_input(const ab_walk *walk) {
    const ab_plan *plan = walk->memory->plan;
    if (plan->input_cast == AB_NONE || !ab_walk_passes_casts(walk)) return NULL;
    return &walk->memory->tensor[plan->node[plan->input_cast].out];
}

ab_op_io *ab_walk_operands(const ab_walk *walk, int n, bool past, ab_op_io *copy) {
    if (!past) return &walk->io[n];
    const ab_plan_node *node = &walk->memory->plan->node[n];
    ab_tensor *tensor = walk->memory->tensor;
    *copy = walk->io[n];
    for (int i = 0; i < node->inputs; i++) {
        if (node->past.in[i] != AB_NONE) copy->in[i] = &tensor[node->past.in[i]];
        if (node->past.in_grad[i] != AB_NONE) copy->din[i] = &tensor[node->past.in_grad[i]];
    }
    if (node->past.out != AB_NONE) copy->out = &tensor[node->past.out];
    if (node->past.out_grad != AB_NONE) copy->dout = &tensor[node->past.out_grad];
    return copy;
}

ab_status ab_walk_cast(const ab_walk *walk, ab_move_kind kind, int net_op, bool backward, int to, int from) {
    const ab_cell_memory *memory = walk->memory;
    const ab_exec exec = ab_walk_exec(walk);
    AB_TRY(ab_cell_memory_cast(memory, &exec, &memory->tensor[to], &memory->tensor[from]));
    ab_observe_cast_or_sum(walk->observation, kind, net_op, backward, to, from);
    return AB_OK;
}

ab_status ab_walk_add(const ab_walk *walk, int net_op, int to, int from) {
    const ab_cell_memory *memory = walk->memory;
    const ab_exec exec = ab_walk_exec(walk);
    AB_TRY(ab_cell_memory_add(memory, &exec, &memory->tensor[to], &memory->tensor[from]));
    ab_observe_cast_or_sum(walk->observation, AB_MOVE_GRADIENT_SUM, net_op, true, to, from);
    return AB_OK;
}

ab_status ab_walk_in_op(const ab_net_op *op, ab_status status) {
    return status == AB_OK ? AB_OK : ab_fail_prefix(status, "op '%s'", op->name);
}
