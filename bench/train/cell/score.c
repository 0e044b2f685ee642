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

int64_t ab_score_class_of(const ab_batches *batches, int64_t i, int64_t classes, int64_t ignored) {
    const ab_cell_memory *memory = batches->memory;
    if (!memory->tensor[memory->plan->targets].format) {
        int32_t id = ((const int32_t *)batches->targets)[i];
        return id >= 0 && id < classes && id != ignored ? id : -1;
    }
    const float *share = (const float *)batches->targets + i * classes;
    int64_t best = 0;
    for (int64_t k = 1; k < classes; k++)
        if (share[k] > share[best]) best = k;
    return best;
}

/* Whether the target's logit is the first of the largest; false where one is NaN, which compares as neither.
 */
static bool is_best(const float *logits, int64_t target, int64_t classes) {
    const float own = logits[target];
    bool best = !isnan(own);
    for (int64_t k = 0; k < classes && best; k++) best = k < target ? logits[k] < own : logits[k] <= own;
    return best;
}

/* The values of the tensor, where they are if that is fp32. */
static ab_status read_logits(const ab_tensor *tensor, float *room, const float **logits) {
    *logits = tensor->format == &ab_format_fp32 ? tensor->data : room;
    return *logits == room ? ab_tensor_read(tensor, room) : AB_OK;
}

ab_status ab_score_batch(ab_training_score *score, const ab_batches *batches) {
    const ab_plan *plan = batches->memory->plan;
    if (!score->logits) return AB_OK;
    const ab_tensor *tensor = &batches->memory->tensor[plan->logits];
    const int64_t classes = plan->net->classes, rows = ab_tensor_count(tensor) / classes,
                  ignored = ab_class_terms_of(plan->net).ignored;
    const float *logits;
    AB_TRY(read_logits(tensor, score->logits, &logits));
    for (int64_t i = 0; i < rows; i++) {
        const int64_t target = ab_score_class_of(batches, i, classes, ignored);
        score->count += target >= 0;
        score->correct += target >= 0 && is_best(logits + i * classes, target, classes);
    }
    return AB_OK;
}
