/* A cell's birth and death: the plan's buffers are allocated, ops are prepared. */
#include "bench/train/cell/cell_state.h"

#include "kernels/backend/fallback.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "cell: out of memory"); }

/* ---- buffers --------------------------------------------------------------------------------------------- */

/* One allocation a category where allocating is slow. */
static ab_status reserve_tensors(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    int64_t bytes[AB_MEM_CATEGORY_COUNT];
    if (cell->backend->host_memory) return AB_OK;
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) bytes[c] = ab_mem_rounded(plan->pool_bytes[c]);
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        if (t->shares == AB_NONE && !t->transient) bytes[t->category] += ab_mem_rounded(t->bytes);
    }
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
        AB_TRY(ab_mem_reserve(cell->mem, (ab_mem_category)c, bytes[c]));
    return AB_OK;
}

static ab_status allocate_tensors(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    char *pool[AB_MEM_CATEGORY_COUNT];
    AB_TRY(reserve_tensors(cell));
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
        AB_TRY(ab_mem_alloc(cell->mem, (ab_mem_category)c, plan->pool_bytes[c], (void **)&pool[c]));
    for (int i = 0; i < plan->tensors; i++) {
        const ab_plan_tensor *t = &plan->tensor[i];
        cell->tensor[i] =
            (ab_tensor){.shape = t->shape, .format = t->format, .device = cell->config.device, .id = -1};
        if (t->shares != AB_NONE) continue;
        if (t->transient)
            cell->tensor[i].data = pool[t->category] + t->offset;
        else
            AB_TRY(ab_mem_alloc(cell->mem, t->category, t->bytes, &cell->tensor[i].data));
    }
    for (int i = 0; i < plan->tensors; i++) { /* a shared tensor comes before those that share it */
        if (plan->tensor[i].shares != AB_NONE)
            cell->tensor[i].data = cell->tensor[plan->tensor[i].shares].data;
    }
    return AB_OK;
}

static ab_tensor *tensor_or_null(ab_cell *cell, int number) {
    return number == AB_NONE ? NULL : &cell->tensor[number];
}

static void wire_node(ab_cell *cell, int n) {
    const ab_plan *plan = cell->plan;
    const ab_plan_node *node = &plan->node[n];
    ab_op_io *io = &cell->io[n];
    if (node->kind != AB_NODE_OP) return;
    io->op = ab_plan_node_op(plan, node)->op;
    io->attrs = ab_plan_node_op(plan, node)->attrs;
    io->instance = (uint32_t)node->net_op;
    for (int i = 0; i < node->inputs; i++) {
        io->in[i] = &cell->tensor[node->in[i]];
        io->din[i] = tensor_or_null(cell, node->in_grad[i]);
    }
    for (int i = 0; i < node->saves; i++) io->saved[i] = &cell->tensor[node->saved[i]];
    for (int i = 0; i < node->params; i++) {
        const ab_plan_param *param = &plan->param[node->first_param + i];
        io->param[i] = &cell->tensor[param->used];
        io->dparam[i] = tensor_or_null(cell, param->used_grad);
    }
    io->out = &cell->tensor[node->out];
    io->dout = tensor_or_null(cell, node->out_grad);
}

/* Where the host writes a batch. */
static ab_status allocate_batch(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    cell->batch = cell->tensor[plan->input].data;
    cell->labels = cell->tensor[plan->targets].data;
    if (cell->backend->host_memory) return AB_OK;
    cell->batch = calloc(1, (size_t)plan->tensor[plan->input].bytes);
    cell->labels = calloc(1, (size_t)plan->tensor[plan->targets].bytes);
    return cell->batch && cell->labels ? AB_OK : no_memory();
}

/* ---- ops ------------------------------------------------------------------------------------------------- */

static ab_status prepare_with(ab_cell *cell, int n, const ab_op *run, size_t *workspace, size_t *state) {
    cell->run[n] = run;
    *workspace = *state = 0;
    return run->prepare ? run->prepare(&cell->exec, &cell->io[n], workspace, state) : AB_OK;
}

static bool differ(const ab_tensor *a, const ab_tensor *b) { return a && b && a->format != b->format; }

/* What decides the format of the result where no user does: the first input of numbers, else the weights. */
static const ab_tensor *leading(const ab_op_io *io) {
    for (int i = 0; i < AB_MAX_INPUTS && io->in[i]; i++)
        if (io->in[i]->format) return io->in[i];
    return io->param[0];
}

/* Whether a result has another format than what it is of, or weights than what they meet: the ops of the host take any. */
static bool formats_mixed(const ab_op_io *io) {
    const ab_tensor *lead = leading(io);
    bool mixed = differ(io->dout, io->out) || (!io->op->is_loss && differ(io->out, lead)) ||
                 (!io->op->norm && differ(io->param[0], lead));
    for (int i = 0; i < AB_MAX_INPUTS; i++) mixed = mixed || differ(io->din[i], io->in[i]);
    for (int i = 0; i < AB_MAX_PARAMS; i++) mixed = mixed || differ(io->dparam[i], io->param[i]);
    return mixed;
}

/* By the device's own op, or by the host's where the device has none for these tensors. */
static ab_status choose_op(ab_cell *cell, int n, const ab_op *op, size_t *workspace, size_t *state) {
    const bool host = cell->backend->host_memory;
    const ab_op *own = host || !formats_mixed(&cell->io[n]) ? cell->backend->op(op) : NULL;
    if (own) {
        ab_status status = prepare_with(cell, n, own, workspace, state);
        if (status != AB_UNAVAILABLE || cell->backend->host_memory) return status;
        if (own->release) own->release(&cell->io[n]);
    }
    cell->fallbacks++;
    return prepare_with(cell, n, &ab_op_fallback, workspace, state);
}

static ab_status prepare_node(ab_cell *cell, int n) {
    const ab_net_op *op = ab_plan_node_op(cell->plan, &cell->plan->node[n]);
    size_t workspace, state;
    void *memory;
    if (!op) return AB_OK;
    if (choose_op(cell, n, op->op, &workspace, &state) != AB_OK)
        return ab_fail_prefix(AB_INTERNAL, "op '%s'", op->name);
    AB_TRY(ab_mem_alloc(cell->mem, AB_MEM_workspace, (int64_t)state, &memory));
    if (cell->run[n]->bind) cell->run[n]->bind(&cell->io[n], memory);
    if (workspace > cell->exec.workspace_bytes) cell->exec.workspace_bytes = workspace;
    return AB_OK;
}

static ab_status prepare_ops(ab_cell *cell) {
    for (int n = 0; n < cell->plan->nodes; n++) {
        wire_node(cell, n);
        AB_TRY(prepare_node(cell, n));
    }
    return ab_mem_alloc(cell->mem, AB_MEM_workspace, (int64_t)cell->exec.workspace_bytes,
                        &cell->exec.workspace);
}

/* ---- life ------------------------------------------------------------------------------------------------ */

static void start_scaler(ab_cell *cell) {
    const ab_cell_config *config = &cell->config;
    const ab_scaler_config settings =
        ab_scaler_limited(&config->policy.loss_scale.scaler, config->min_loss_scale, config->max_loss_scale,
                          (double)config->scale_window);
    for (int k = 0; k < cell->plan->scalers; k++) ab_scaler_start(&cell->scaler[k], &settings);
}

static ab_status build(ab_cell *cell) {
    const ab_cell_config *config = &cell->config;
    AB_TRY(ab_backend_check(cell->backend));
    ab_policy policy = config->policy;
    policy.keep.micro_batches = config->recipe.micro_batches > 1;
    AB_TRY(ab_plan_create(config->net, &policy, config->batch, config->optimizer->states, &cell->plan));
    AB_TRY(ab_mem_create(&cell->mem, config->device, config->memory_limit));
    const ab_plan *plan = cell->plan;
    cell->tensor = calloc((size_t)plan->tensors, sizeof *cell->tensor);
    cell->io = calloc((size_t)plan->nodes, sizeof *cell->io);
    cell->run = calloc((size_t)plan->nodes, sizeof *cell->run);
    cell->shadow = calloc((size_t)plan->nodes, sizeof *cell->shadow);
    cell->index = calloc((size_t)config->batch, sizeof *cell->index);
    if (!cell->tensor || !cell->io || !cell->run || !cell->shadow || !cell->index) return no_memory();
    cell->exec = (ab_exec){.training = true,
                           .accumulate_half = config->accumulate_half,
                           .tf32 = config->tf32,
                           .path = config->path,
                           .seed = config->seed};
    AB_TRY(allocate_tensors(cell));
    AB_TRY(allocate_batch(cell));
    AB_TRY(ab_cell_watch_start(cell));
    AB_TRY(ab_cell_update_start(cell));
    AB_TRY(prepare_ops(cell));
    start_scaler(cell);
    if (config->data)
        AB_TRY(ab_data_order_create(&cell->order, config->data->split[AB_SPLIT_TRAIN].count, config->batch,
                                    config->shuffled, config->seed));
    AB_TRY(ab_cell_set_initial(cell));
    AB_TRY(ab_cell_layers_start(cell));
    AB_TRY(ab_cell_weigh(cell, &cell->always_on.first));
    return config->data ? ab_cell_window_start(cell) : AB_OK;
}

ab_status ab_cell_create(const ab_cell_config *config, ab_cell **result) {
    ab_cell *cell = calloc(1, sizeof *cell);
    if (!cell) return no_memory();
    cell->config = *config;
    cell->backend = ab_backend_of(config->device);
    cell->params_version = 1;
    ab_status status = build(cell);
    if (status == AB_OK)
        *result = cell;
    else
        ab_cell_destroy(cell);
    return status;
}

void ab_cell_destroy(ab_cell *cell) {
    if (!cell) return;
    ab_cell_window_stop(cell);
    ab_cell_layers_stop(cell);
    for (int n = 0; cell->plan && cell->io && cell->run && n < cell->plan->nodes; n++) {
        if (cell->run[n] && cell->run[n]->release) cell->run[n]->release(&cell->io[n]);
        if (cell->shadow) ab_host_mirror_destroy(cell->shadow[n]);
    }
    if (!cell->backend->host_memory) {
        free(cell->batch);
        free(cell->labels);
    }
    ab_data_order_destroy(&cell->order);
    ab_mem_destroy(cell->mem);
    free(cell->tensor);
    free(cell->io);
    free(cell->run);
    free(cell->shadow);
    free(cell->index);
    free(cell->observed);
    free(cell->census);
    free(cell->shown);
    free(cell->trained);
    free(cell->unscale);
    free(cell->update);
    free(cell->optim);
    free(cell->grad);
    ab_always_on_clear(&cell->always_on);
    ab_plan_destroy(cell->plan);
    free(cell);
}
