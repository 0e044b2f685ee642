/* A cell's always_on: batches as they are written, weights at both ends. */
#include "bench/train/cell/cell_state.h"
#include "bench/train/inject_data_fault.h"

#include <stdlib.h>

static int64_t inputs_of_sample(const ab_data *data) {
    return data->stored_height ? data->height * data->width * data->channels : ab_shape_count(&data->shape.x);
}

ab_status ab_cell_fill(ab_cell *cell, ab_split split, void *samples, void *targets) {
    const ab_data *data = cell->config.data;
    const int64_t n = cell->plan->batch, each = inputs_of_sample(data);
    const unsigned faults = cell->config.recipe.faults & AB_FAULTS_OF_DATA;
    ab_data_fill(data, split, cell->config.normalize, cell->index, n, samples, targets);
    if (split != AB_SPLIT_TRAIN) return AB_OK;
    if (faults) ab_inject_data_fault(faults, data, cell->config.seed, cell->index, n, each, samples, targets);
    if (cell->again || cell->rehearses) return AB_OK; /* noted once */
    return ab_always_on_batch(&cell->always_on, &data->shape, cell->steps + cell->ahead, samples, targets, n,
                              each);
}

static int weight_of(const ab_plan_param *param) {
    return param->master != AB_NONE ? param->master : param->stored;
}

static int64_t most_values(const ab_cell *cell) {
    int64_t most = 1;
    for (int p = 0; p < cell->plan->params; p++) {
        const int64_t n = ab_tensor_count(&cell->tensor[cell->plan->param[p].stored]);
        most = n > most ? n : most;
    }
    return most;
}

static const ab_format *half_of(const ab_cell *cell) {
    const ab_format *half = cell->config.policy.half;
    return half ? half : &ab_format_fp16;
}

ab_status ab_cell_weigh(const ab_cell *cell, ab_always_on_weights *weights) {
    ab_status status = AB_OK;
    float *values = malloc((size_t)most_values(cell) * sizeof *values);
    if (!values) return ab_fail(AB_NO_MEMORY, "looking at weights: out of memory");
    *weights = (ab_always_on_weights){.count = 0};
    for (int p = 0; p < cell->plan->params; p++) {
        const ab_plan_param *param = &cell->plan->param[p];
        char name[AB_PLAN_NAME];
        if (param->grad == AB_NONE || param->owner != AB_NONE) continue;
        const ab_tensor *tensor = &cell->tensor[weight_of(param)];
        AB_TRY_GOTO(ab_tensor_read(tensor, values));
        ab_always_on_weigh(weights, ab_cell_param_name(cell, param, name), values, ab_tensor_count(tensor),
                           half_of(cell));
    }
out:
    free(values);
    return status;
}

static ab_status weigh_averages(const ab_cell *cell, ab_always_on_average *average) {
    const size_t bytes = (size_t)most_values(cell) * sizeof(float);
    ab_status status = AB_OK;
    float *weight = malloc(bytes), *mean = malloc(bytes);
    *average = (ab_always_on_average){.differing = 0};
    if (!weight || !mean) status = ab_fail(AB_NO_MEMORY, "looking at averaged weights: out of memory");
    for (int p = 0; p < cell->plan->params && status == AB_OK; p++) {
        const ab_plan_param *param = &cell->plan->param[p];
        if (param->ema == AB_NONE) continue;
        const ab_tensor *tensor = &cell->tensor[param->ema];
        AB_TRY_GOTO(ab_tensor_read(&cell->tensor[weight_of(param)], weight));
        AB_TRY_GOTO(ab_tensor_read(tensor, mean));
        ab_always_on_average_of(average, weight, mean, ab_tensor_count(tensor), tensor->format,
                                cell->config.recipe.ema_decay);
    }
out:
    free(weight);
    free(mean);
    return status;
}

ab_status ab_cell_report_always_on_stats(ab_cell *cell, ab_probe_sink *sink) {
    const bool averaged = cell->config.policy.keep.ema_format != NULL;
    AB_TRY(ab_cell_weigh(cell, &cell->always_on.last));
    if (averaged) AB_TRY(weigh_averages(cell, &cell->always_on.average));
    ab_always_on_report(&cell->always_on, averaged, sink);
    return AB_OK;
}
