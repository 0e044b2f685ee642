/* Creates a cell's parts in the order of their dependencies, and frees them. */
#include "bench/train/cell/parts.h"
#include "bench/train/cell/step.h"
#include "bench/train/cell/sync.h"
#include "bench/train/cell/window.h"
#include "bench/train/init/initial_weights.h"
#include "bench/train/memory/memory.h"
#include "bench/train/observe/always_on_stats.h"
#include "kernels/format/convert.h"

#include <stdlib.h>

static ab_status make_batches(ab_cell *cell) {
    const ab_cell_config *config = &cell->config;
    cell->batches = (ab_batches){.memory = &cell->memory,
                                 .data = config->data,
                                 .stats = &cell->always_on,
                                 .normalize = config->normalize,
                                 .faults = config->recipe.faults,
                                 .shuffled = config->shuffled,
                                 .seed = config->seed};
    return ab_batches_init(&cell->batches);
}

static ab_status make_update(ab_cell *cell) {
    const ab_cell_config *config = &cell->config;
    AB_TRY(ab_gradients_init(&cell->gradients, &cell->memory, &cell->observation, &cell->trained,
                             &cell->position));
    AB_TRY(ab_rank_gradients_init(&cell->ranks, &cell->config.recipe.ranks, &cell->gradients));
    cell->update = (ab_weight_update){.memory = &cell->memory,
                                      .observation = &cell->observation,
                                      .trained = &cell->trained,
                                      .optimizer = config->optimizer,
                                      .recipe = &config->recipe,
                                      .gradients = &cell->gradients,
                                      .common = config->optim};
    return ab_weight_update_init(&cell->update);
}

static ab_status make_walk(ab_cell *cell) {
    const ab_cell_config *config = &cell->config;
    const ab_exec exec = {.training = true,
                          .accumulate_half = config->accumulate_half,
                          .tf32 = config->tf32,
                          .path = config->path,
                          .seed = config->seed};
    return ab_walk_init(&cell->walk, &cell->memory, &cell->observation, &exec);
}

static void start_scalers(ab_cell *cell) {
    const ab_cell_config *config = &cell->config;
    const ab_scale_limits limits = {config->min_loss_scale, config->max_loss_scale, config->scale_window};
    ab_loss_scalers_start(&cell->scalers, cell->plan->scalers, &config->policy.loss_scale.scaler, &limits);
}

static ab_status set_initial_weights(ab_cell *cell) {
    const ab_cell_config *config = &cell->config;
    const ab_initial_weights initial = {.file = config->init_file,
                                        .map = config->init_map,
                                        .seed = config->seed,
                                        .perturbation = config->perturbation,
                                        .draw = config->draw,
                                        .half = config->policy.half,
                                        .nan_weight = config->recipe.faults & AB_FAULT_nan_initial_weight};
    return ab_initial_weights_set(&initial, &cell->memory);
}

static ab_status build(ab_cell *cell) {
    const ab_cell_config *config = &cell->config;
    const int64_t micro_batches = config->recipe.micro_batches, ranks = config->recipe.ranks.count;
    AB_TRY(ab_backend_check(ab_backend_of(config->device)));
    AB_TRY(ab_cell_compile(config, &cell->plan));
    AB_TRY(ab_cell_memory_init(&cell->memory, cell->plan, config->device, config->memory_limit));
    AB_TRY(ab_trained_params_init(&cell->trained, cell->plan, config->optimizer->states > 0));
    cell->position.micro_batches = micro_batches > 1 ? micro_batches : 1;
    cell->position.ranks = ranks > 1 ? ranks : 1;
    cell->position.apart = ranks > 1 && ab_rank_batches_are_apart(&config->recipe.ranks);
    cell->position.rank = ranks > 1 && ab_rank_link_is_open() ? ab_rank_place_get().rank : 0;
    AB_TRY(make_batches(cell));
    AB_TRY(ab_observation_init(&cell->observation, &cell->memory, config->optimizer));
    AB_TRY(make_update(cell));
    AB_TRY(make_walk(cell));
    AB_TRY(ab_sync_init(cell));
    start_scalers(cell);
    AB_TRY(set_initial_weights(cell));
    AB_TRY(ab_layer_scales_create(&cell->memory, &cell->position, &cell->scalers.scaler[0].config,
                                  &cell->layers));
    AB_TRY(ab_weight_stats_take(&cell->memory, config->policy.half, &cell->always_on.first));
    return config->data ? ab_step_window_start(cell) : AB_OK;
}

ab_status ab_cell_create(const ab_cell_config *config, ab_cell **result) {
    ab_cell *cell = calloc(1, sizeof *cell);
    if (!cell) return ab_fail(AB_NO_MEMORY, "cell: out of memory");
    cell->config = *config;
    ab_status status = build(cell);
    if (status == AB_OK)
        *result = cell;
    else
        ab_cell_destroy(cell);
    return status;
}

void ab_cell_destroy(ab_cell *cell) {
    if (!cell) return;
    ab_step_window_stop(cell);
    ab_layer_scales_destroy(cell->layers);
    ab_sync_fini(cell);
    ab_walk_fini(&cell->walk);
    ab_weight_update_fini(&cell->update);
    ab_rank_gradients_fini(&cell->ranks);
    ab_gradients_fini(&cell->gradients);
    ab_observation_fini(&cell->observation);
    ab_batches_fini(&cell->batches);
    free(cell->score.logits);
    ab_trained_params_fini(&cell->trained);
    ab_cell_memory_fini(&cell->memory);
    ab_always_on_clear(&cell->always_on);
    ab_plan_destroy(cell->plan);
    free(cell);
}

/* What a cell would hold, from shapes alone: nothing is allocated on the device, no weight is drawn. */

/* The ops' workspace: exact for all but the products of a library (ab_walk_measure). */
static ab_status measure(const ab_cell_config *config, const ab_plan *plan, bool exact, int64_t *bytes) {
    const ab_exec exec = {.training = true,
                          .accumulate_half = config->accumulate_half,
                          .tf32 = config->tf32,
                          .path = config->path,
                          .seed = config->seed,
                          .sizes_only = !exact};
    ab_cell_memory memory = {.mem = NULL};
    ab_status status = ab_cell_memory_describe(&memory, plan, config->device);
    if (status == AB_OK) status = ab_walk_measure(&memory, &exec, bytes);
    ab_cell_memory_fini(&memory);
    return status;
}

ab_status ab_cell_compile(const ab_cell_config *config, ab_plan **plan) {
    ab_policy policy = config->policy;
    policy.keep.micro_batches = config->recipe.micro_batches > 1;
    policy.keep.scalar_states = config->optimizer->scalar_states;
    policy.keep.half_sums = ab_optimizer_sums_in_half(config->optimizer, &config->optim);
    return ab_plan_create(config->net, &policy, config->batch, config->optimizer->states, plan);
}

ab_status ab_cell_workspace(const ab_cell_config *config, const ab_plan *plan, int64_t *bytes) {
    AB_TRY(ab_backend_check(ab_backend_of(config->device)));
    return measure(config, plan, true, bytes);
}

int64_t ab_cell_rank_bytes(const ab_cell_config *config, const ab_plan *plan, ab_mem_category category,
                           int64_t workspace) {
    const ab_recipe *recipe = &config->recipe;
    return ab_sync_bytes(plan, &recipe->ranks, category, workspace) +
           (ab_backend_of(config->device)->host_memory ? ab_rank_gradients_bytes(plan, recipe, category) : 0);
}

ab_status ab_cell_planned(const ab_cell_config *config, ab_plan **plan,
                          int64_t bytes[AB_MEM_CATEGORY_COUNT]) {
    ab_plan *made = NULL;
    int64_t workspace = 0;
    ab_status status = AB_OK;
    AB_TRY(ab_backend_check(ab_backend_of(config->device)));
    AB_TRY(ab_cell_compile(config, &made));
    AB_TRY_GOTO(measure(config, made, false, &workspace));
    AB_TRY_GOTO(ab_initial_weights_check(config->init_file, config->init_map, made));
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++) bytes[c] = made->bytes[c];
    bytes[AB_MEM_workspace] += workspace;
    for (int c = 0; c < AB_MEM_CATEGORY_COUNT; c++)
        bytes[c] += ab_cell_rank_bytes(config, made, (ab_mem_category)c, workspace);
    *plan = made;
    made = NULL;
out:
    ab_plan_destroy(made);
    return status;
}

/* Forward and backward pass of the next step without an update. */

ab_status ab_cell_dry_run(ab_cell *cell, double factor, float *loss) {
    ab_scaler *scaler = cell->scalers.scaler;
    double scale[AB_NET_LOSSES] = {0};
    unsigned overflows;
    void *kept;
    AB_TRY(ab_running_stats_keep(&cell->memory, &kept));
    for (int k = 0; k < cell->scalers.count; k++) {
        scale[k] = scaler[k].scale;
        scaler[k].scale *= factor;
    }
    cell->observation.observer = NULL;
    cell->walk.exec.training = true;
    ab_status status = ab_gradient_pass_batches(cell, false, loss, &overflows);
    for (int k = 0; k < cell->scalers.count; k++) scaler[k].scale = scale[k];
    if (status == AB_OK) status = ab_running_stats_restore(&cell->memory, kept);
    free(kept);
    return status;
}

/* Stochastic rounding of weights. */

ab_status ab_cell_round_weights(ab_cell *cell, uint64_t seed, bool masters, bool *any) {
    static const ab_rounding chance = {.mode = AB_ROUND_STOCHASTIC, .random_bits = 32};
    const ab_plan *plan = cell->plan;
    ab_tensor *tensor = cell->memory.tensor;
    float *values = ab_params_room(plan);
    ab_status status = values ? AB_OK : ab_fail(AB_NO_MEMORY, "rounding weights: out of memory");
    *any = false;
    for (int p = 0; p < plan->params && status == AB_OK; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->master == AB_NONE) continue;
        ab_tensor *stored = &tensor[param->stored], *master = &tensor[param->master];
        *any = true;
        AB_TRY_GOTO(ab_tensor_read(master, values));
        ab_round_array_stochastic(values, stored->format, &chance, seed, (uint32_t)cell->position.steps,
                                  (uint64_t)p << 32, ab_tensor_count(stored));
        AB_TRY_GOTO(ab_tensor_write(stored, values));
        if (masters) AB_TRY_GOTO(ab_tensor_write(master, values));
    }
out:
    ab_walk_weights_changed(&cell->walk);
    free(values);
    return status;
}
