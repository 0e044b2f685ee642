/* Evaluation: accuracy and loss of the trained or the averaged weights. */
#include "bench/train/cell/parts.h"
#include "bench/train/pass/forward.h"
#include "kernels/core/elementary64.h"

#include <math.h>
#include <stdlib.h>

/* ---- trained weights ------------------------------------------------------------------------- */

static double weight_of(const ab_class_terms *terms, int64_t class) {
    return terms->weight.value ? (double)terms->weight.value[class] : 1.0;
}

/* The cross entropy of a row as torch defines it with class weights and label smoothing; `top`: logarithm of
 * the sum of the exponentials. */
static double entropy(const ab_class_terms *terms, const float *logits, double top, int64_t target,
                      int64_t classes) {
    double spread = 0;
    for (int64_t k = 0; terms->smoothing > 0 && k < classes; k++)
        spread += weight_of(terms, k) * (top - (double)logits[k]);
    return (1 - terms->smoothing) * weight_of(terms, target) * (top - (double)logits[target]) +
           terms->smoothing / (double)classes * spread;
}

/* A row with a NaN has no best class and counts as wrong. */
static void score(const ab_class_terms *terms, const float *logits, int64_t target, int64_t classes,
                  ab_eval_result *result) {
    int64_t best = 0, numbers = 0;
    double sum = 0;
    for (int64_t k = 0; k < classes; k++) {
        numbers += !isnan(logits[k]);
        if (logits[k] > logits[best]) best = k;
    }
    for (int64_t k = 0; k < classes; k++) sum += ab_exp((double)logits[k] - (double)logits[best]);
    result->loss += entropy(terms, logits, (double)logits[best] + ab_log(sum), target, classes);
    result->weight += weight_of(terms, target);
    result->correct += best == target && numbers == classes;
    result->ranked += numbers == classes;
    result->count++;
}

/* The parts of a cell that evaluation uses. */
typedef struct evaluation {
    ab_batches *batches;
    ab_walk *walk;
    ab_split split;
    int64_t total; /* samples */
} evaluation;

/* Padding samples in the last batch are not scored. */
static ab_status run_batch(const evaluation *e, int64_t first, int64_t n) {
    ab_batches_choose_range(e->batches, first, n);
    AB_TRY(ab_batches_load(e->batches, e->walk, e->split, false));
    return ab_forward(e->walk);
}

/* A network without classes has only its loss, a mean over a batch: an incomplete last batch is ignored
 * unless it is the only one. */
static ab_status evaluate_loss(const evaluation *e, ab_eval_result *result) {
    const int64_t batch = e->walk->memory->plan->batch;
    result->correct = -1;
    for (int64_t first = 0; first == 0 || first + batch <= e->total; first += batch) {
        float loss;
        AB_TRY(run_batch(e, first, e->total - first));
        AB_TRY(ab_forward_loss(e->walk, &loss));
        result->loss += (double)loss * (double)batch;
        result->count += batch;
    }
    result->weight = (double)result->count;
    return AB_OK;
}

/* logits: scratch for one batch. */
static ab_status evaluate_classes(const evaluation *e, float *logits, ab_eval_result *result) {
    const ab_plan *plan = e->walk->memory->plan;
    const ab_tensor *tensor = &e->walk->memory->tensor[plan->logits];
    const int64_t batch = plan->batch, classes = plan->net->classes;
    const int64_t rows = ab_tensor_count(tensor) / classes / batch; /* per sample */
    const ab_class_terms terms = ab_class_terms_of(plan->net);
    for (int64_t first = 0; first < e->total; first += batch) {
        int64_t n = e->total - first < batch ? e->total - first : batch;
        AB_TRY(run_batch(e, first, n));
        AB_TRY(ab_tensor_read(tensor, logits));
        for (int64_t i = 0; i < n * rows; i++) {
            int64_t target = ab_score_class_of(e->batches, i, classes, terms.ignored);
            if (target >= 0) score(&terms, logits + i * classes, target, classes, result);
        }
    }
    return AB_OK;
}

static ab_status evaluate(const evaluation *e, ab_eval_result *result) {
    const ab_cell_memory *memory = e->walk->memory;
    if (memory->plan->logits == AB_NONE) return evaluate_loss(e, result);
    float *logits = malloc((size_t)ab_tensor_count(&memory->tensor[memory->plan->logits]) * sizeof *logits);
    if (!logits) return ab_fail(AB_NO_MEMORY, "evaluation: out of memory");
    ab_status status = evaluate_classes(e, logits, result);
    free(logits);
    return status;
}

/* A loss of one's own is not the cross entropy of its scores: its mean over the batches is reported, in units
 * of the samples that evaluate_classes counts. */
static ab_status put_own_loss(const evaluation *e, ab_eval_result *result) {
    ab_eval_result own = {0};
    AB_TRY(evaluate_loss(e, &own));
    result->loss = own.loss / (double)own.count * result->weight;
    return AB_OK;
}

ab_status ab_cell_evaluate(ab_cell *cell, ab_split split, int64_t limit, ab_eval_result *result) {
    int64_t total = cell->config.data->split[split].count;
    if (limit > 0 && limit < total) total = limit;
    const evaluation e = {&cell->batches, &cell->walk, split, total};
    *result = (ab_eval_result){0};
    cell->walk.exec.training = false;
    cell->observation.observer = NULL;
    AB_TRY(evaluate(&e, result));
    if (cell->plan->net->scores >= 0) AB_TRY(put_own_loss(&e, result));
    if (result->count) result->loss /= result->weight;
    return AB_OK;
}

/* ---- averaged weights ------------------------------------------------------------------------ */

/* Copies the trained weights' bytes, parameter by parameter. */
static ab_status save_weights(const ab_cell_memory *memory, void **kept) {
    for (int p = 0; p < memory->plan->params; p++) {
        const ab_plan_param *param = &memory->plan->param[p];
        if (param->ema == AB_NONE) continue;
        const ab_tensor *stored = &memory->tensor[param->stored];
        kept[p] = malloc(ab_cell_memory_bytes(stored) + 1);
        if (!kept[p]) return ab_fail(AB_NO_MEMORY, "averaged weights: out of memory");
        AB_TRY(ab_tensor_download(stored, kept[p]));
    }
    return AB_OK;
}

static ab_status put_average(const ab_cell_memory *memory, const ab_plan_param *param) {
    const ab_tensor *average = &memory->tensor[param->ema];
    float *values = malloc((size_t)ab_tensor_count(average) * sizeof *values);
    if (!values) return ab_fail(AB_NO_MEMORY, "averaged weights: out of memory");
    ab_status status = ab_tensor_read(average, values);
    if (status == AB_OK) status = ab_tensor_write(&memory->tensor[param->stored], values);
    free(values);
    return status;
}

static ab_status put_averages(const ab_cell_memory *memory) {
    for (int p = 0; p < memory->plan->params; p++)
        if (memory->plan->param[p].ema != AB_NONE) AB_TRY(put_average(memory, &memory->plan->param[p]));
    return AB_OK;
}

static ab_status put_back(const ab_cell_memory *memory, void *const *kept) {
    for (int p = 0; p < memory->plan->params; p++)
        if (kept[p]) AB_TRY(ab_tensor_upload(&memory->tensor[memory->plan->param[p].stored], kept[p]));
    return AB_OK;
}

ab_status ab_cell_evaluate_ema(ab_cell *cell, ab_split split, int64_t limit, ab_eval_result *result) {
    if (!cell->config.policy.keep.ema_format) return ab_fail(AB_CONFIG, "no averaged weights are kept");
    void **kept = calloc((size_t)cell->plan->params + 1, sizeof *kept);
    if (!kept) return ab_fail(AB_NO_MEMORY, "averaged weights: out of memory");
    ab_status status = save_weights(&cell->memory, kept);
    if (status == AB_OK) {
        status = put_averages(&cell->memory);
        ab_walk_weights_changed(&cell->walk);
        if (status == AB_OK) status = ab_cell_evaluate(cell, split, limit, result);
        ab_status back = put_back(&cell->memory, kept);
        ab_walk_weights_changed(&cell->walk);
        if (status == AB_OK) status = back;
    }
    for (int p = 0; p < cell->plan->params; p++) free(kept[p]);
    free(kept);
    return status;
}
