/* Evaluating the averaged weights: they take the places of the trained ones for as long as that lasts. */
#include "bench/train/cell/cell_state.h"

#include <stdlib.h>

/* The trained weights' bytes, parameter by parameter. */
static ab_status put_aside(const ab_cell *cell, void **kept) {
    for (int p = 0; p < cell->plan->params; p++) {
        const ab_plan_param *param = &cell->plan->param[p];
        if (param->ema == AB_NONE) continue;
        const ab_tensor *stored = &cell->tensor[param->stored];
        kept[p] = malloc(ab_format_bytes(stored->format, ab_tensor_count(stored)) + 1);
        if (!kept[p]) return ab_fail(AB_NO_MEMORY, "averaged weights: out of memory");
        AB_TRY(ab_tensor_download(stored, kept[p]));
    }
    return AB_OK;
}

static ab_status put_average(ab_cell *cell, const ab_plan_param *param) {
    const ab_tensor *average = &cell->tensor[param->ema];
    float *values = malloc((size_t)ab_tensor_count(average) * sizeof *values);
    if (!values) return ab_fail(AB_NO_MEMORY, "averaged weights: out of memory");
    ab_status status = ab_tensor_read(average, values);
    if (status == AB_OK) status = ab_tensor_write(&cell->tensor[param->stored], values);
    free(values);
    return status;
}

static ab_status put_averages(ab_cell *cell) {
    for (int p = 0; p < cell->plan->params; p++)
        if (cell->plan->param[p].ema != AB_NONE) AB_TRY(put_average(cell, &cell->plan->param[p]));
    return AB_OK;
}

static ab_status put_back(ab_cell *cell, void *const *kept) {
    for (int p = 0; p < cell->plan->params; p++)
        if (kept[p]) AB_TRY(ab_tensor_upload(&cell->tensor[cell->plan->param[p].stored], kept[p]));
    return AB_OK;
}

ab_status ab_cell_evaluate_ema(ab_cell *cell, ab_split split, int64_t limit, ab_eval_result *result) {
    if (!cell->config.policy.keep.ema_format) return ab_fail(AB_CONFIG, "no averaged weights are kept");
    void **kept = calloc((size_t)cell->plan->params + 1, sizeof *kept);
    if (!kept) return ab_fail(AB_NO_MEMORY, "averaged weights: out of memory");
    ab_status status = put_aside(cell, kept);
    if (status == AB_OK) {
        status = put_averages(cell);
        cell->params_version++;
        if (status == AB_OK) status = ab_cell_evaluate(cell, split, limit, result);
        ab_status back = put_back(cell, kept);
        cell->params_version++;
        if (status == AB_OK) status = back;
    }
    for (int p = 0; p < cell->plan->params; p++) free(kept[p]);
    free(kept);
    return status;
}
