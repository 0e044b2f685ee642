/* Reads every parameter once, in any format, on the host or the device. */
#include "bench/train/observe/weight_stats.h"

#include "bench/train/memory/params.h"

#include <stdlib.h>

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "looking at weights: out of memory"); }

ab_status ab_weight_stats_take(const ab_cell_memory *memory, const ab_format *half,
                               ab_always_on_weights *weights) {
    const ab_plan *plan = memory->plan;
    ab_status status = AB_OK;
    float *values = ab_params_room(plan);
    if (!values) return no_memory();
    *weights = (ab_always_on_weights){.count = 0};
    for (int p = 0; p < plan->params; p++) {
        const ab_plan_param *param = &plan->param[p];
        char name[AB_PLAN_NAME];
        if (param->grad == AB_NONE || param->owner != AB_NONE) continue;
        const ab_tensor *tensor = &memory->tensor[ab_params_weight(param)];
        AB_TRY_GOTO(ab_tensor_read(tensor, values));
        ab_always_on_weigh(weights, ab_params_name(plan, param, name), values, ab_tensor_count(tensor),
                           half ? half : &ab_format_fp16);
    }
out:
    free(values);
    return status;
}

ab_status ab_weight_stats_take_average(const ab_cell_memory *memory, double decay,
                                       ab_always_on_average *average) {
    const ab_plan *plan = memory->plan;
    float *weight = ab_params_room(plan), *mean = ab_params_room(plan);
    ab_status status = weight && mean ? AB_OK : no_memory();
    *average = (ab_always_on_average){.differing = 0};
    for (int p = 0; p < plan->params && status == AB_OK; p++) {
        const ab_plan_param *param = &plan->param[p];
        if (param->ema == AB_NONE) continue;
        const ab_tensor *tensor = &memory->tensor[param->ema];
        AB_TRY_GOTO(ab_tensor_read(&memory->tensor[ab_params_weight(param)], weight));
        AB_TRY_GOTO(ab_tensor_read(tensor, mean));
        ab_always_on_average_of(average, weight, mean, ab_tensor_count(tensor), tensor->format, decay);
    }
out:
    free(weight);
    free(mean);
    return status;
}
