/* The class with the largest logit, and sums of squares in double. */
#include "bench/train/cell/score.h"

#include "bench/train/cell/parts.h"

#include <math.h>
#include <stdlib.h>

int64_t ab_score_class_of(const ab_batches *batches, int64_t i, int64_t classes) {
    const ab_cell_memory *memory = batches->memory;
    if (!memory->tensor[memory->plan->targets].format) {
        int32_t id = ((const int32_t *)batches->targets)[i];
        return id >= 0 && id < classes ? id : -1;
    }
    const float *share = (const float *)batches->targets + i * classes;
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++)
        if (share[k] > share[best]) best = k;
    return best;
}

static bool is_best(const float *logits, int64_t target, int64_t classes) {
    int64_t best = 0, numbers = 0;
    for (int64_t k = 0; k < classes; k++) {
        numbers += !isnan(logits[k]);
        if (logits[k] > logits[best]) best = k;
    }
    return best == target && numbers == classes;
}

ab_status ab_score_batch(ab_training_score *score, const ab_batches *batches) {
    const ab_plan *plan = batches->memory->plan;
    if (!score->logits) return AB_OK;
    const ab_tensor *tensor = &batches->memory->tensor[plan->logits];
    const int64_t classes = plan->net->classes, rows = ab_tensor_count(tensor) / classes;
    AB_TRY(ab_tensor_read(tensor, score->logits));
    for (int64_t i = 0; i < rows; i++) {
        const int64_t target = ab_score_class_of(batches, i, classes);
        score->count += target >= 0;
        score->correct += target >= 0 && is_best(score->logits + i * classes, target, classes);
    }
    return AB_OK;
}

ab_status ab_cell_score_training(ab_cell *cell) {
    const ab_plan *plan = cell->plan;
    if (plan->logits == AB_NONE || !cell->memory.backend->host_memory) return AB_OK;
    const size_t count = (size_t)ab_tensor_count(&cell->memory.tensor[plan->logits]);
    free(cell->score.logits);
    cell->score.logits = malloc(count * sizeof *cell->score.logits);
    return cell->score.logits ? AB_OK : ab_fail(AB_NO_MEMORY, "training accuracy: out of memory");
}

ab_status ab_cell_gradient_norm(const ab_cell *cell, const ab_step_result *result, double *norm) {
    *norm = result->grad_norm > 0 ? result->grad_norm : (double)NAN;
    if (result->grad_norm > 0 || !cell->memory.backend->host_memory) return AB_OK;
    float *values = ab_params_room(cell->plan);
    ab_status status = values ? AB_OK : ab_fail(AB_NO_MEMORY, "norm of gradients: out of memory");
    double sum = 0;
    for (int i = 0; i < cell->trained.count && status == AB_OK; i++) {
        const ab_tensor *grad = cell->gradients.item[i].to;
        status = ab_tensor_read(grad, values);
        for (int64_t k = 0; k < ab_tensor_count(grad) && status == AB_OK; k++)
            sum += (double)values[k] * (double)values[k];
    }
    free(values);
    *norm = sqrt(sum);
    return status;
}
