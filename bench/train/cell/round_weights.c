/* Stochastic rounding of weights. */
#include "bench/train/cell/parts.h"
#include "kernels/format/convert.h"

#include <stdlib.h>

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
