/* What a cell would hold, from shapes alone: nothing is allocated on the device, no weight is drawn. */
#include "bench/train/cell/parts.h"

#include "bench/train/init/initial_weights.h"

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
    return ab_plan_create(config->net, &policy, config->batch, config->optimizer->states, plan);
}

ab_status ab_cell_workspace(const ab_cell_config *config, const ab_plan *plan, int64_t *bytes) {
    AB_TRY(ab_backend_check(ab_backend_of(config->device)));
    return measure(config, plan, true, bytes);
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
    *plan = made;
    made = NULL;
out:
    ab_plan_destroy(made);
    return status;
}
