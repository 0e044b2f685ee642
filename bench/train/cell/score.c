/* The class with the largest logit. */
#include "bench/train/cell/score.h"

#include <math.h>
#include <string.h>

static void take_attribute(const ab_net_op *op, const char *name, void *field, size_t bytes) {
    for (const ab_attr *attr = op->op->attrs; attr && attr->name; attr++)
        if (strcmp(attr->name, name) == 0) memcpy(field, (const char *)op->attrs + attr->offset, bytes);
}

ab_class_terms ab_class_terms_of(const ab_net *net) {
    ab_class_terms terms = {.weight = {NULL, 0}, .smoothing = 0, .ignored = -1};
    if (net->scored < 0) return terms;
    const ab_net_op *op = &net->op[net->scored];
    take_attribute(op, "weight", &terms.weight, sizeof terms.weight);
    take_attribute(op, "label_smoothing", &terms.smoothing, sizeof terms.smoothing);
    take_attribute(op, "ignore_index", &terms.ignored, sizeof terms.ignored);
    return terms;
}

int64_t ab_score_class_of(const ab_batches *batches, int64_t i, int64_t classes) {
    const ab_cell_memory *memory = batches->memory;
    if (!memory->tensor[memory->plan->targets].format) {
        int32_t id = ((const int32_t *)batches->targets)[i];
        const bool counts = id >= 0 && id < classes && id != ab_class_terms_of(memory->plan->net).ignored;
        return counts ? id : -1;
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
