/* By the thresholds of the diagnosis, from what a record always has. */
#include "reports/record/learned.h"

#include "kernels/core/text.h"
#include "reports/diagnose/thresholds/thresholds.h"
#include "reports/record/json.h"

#include <math.h>

static double first_loss(const cJSON *cell) {
    const cJSON *losses = ab_json_at(cell, "loss"), *first = losses ? losses->child : NULL;
    return cJSON_IsNumber(first) ? first->valuedouble : (double)NAN;
}

/* Below a reference by a stated share of it; of a loss that can be negative, below it at all. */
static bool is_below(double loss, double reference) {
    const double share = ab_thresholds_default.learned_share;
    return reference > 0 ? loss < share * reference : loss < reference;
}

/* The test loss is lower with the targets of the samples than with those of others, beyond chance. */
static bool knows_targets(const cJSON *cell) {
    const double matched = ab_json_number(cell, "test_loss_shuffled.matched", (double)NAN),
                 other = ab_json_number(cell, "test_loss_shuffled.shuffled", (double)NAN),
                 error = ab_json_number(cell, "test_loss_shuffled.standard_error", (double)NAN);
    return (other - matched) / error > ab_thresholds_default.knows_targets;
}

bool ab_learned(const cJSON *document, const cJSON *cell, double loss_final, char *reason, size_t size) {
    const double first = first_loss(cell),
                 constant = ab_json_number(cell, "vitals.constant_loss.loss", (double)NAN);
    const bool resumed = ab_json_number(document, "config.first_step", 0) > 0;
    const bool fell = is_below(loss_final, first);
    if (isnan(constant) && (isnan(first) || resumed || fell)) return true;
    if (isfinite(constant) && (is_below(loss_final, constant) || (fell && knows_targets(cell)))) return true;
    if (isfinite(constant))
        ab_text_show(reason, size,
                     "O0 learned nothing: its final loss is %.4g, the best constant prediction has %.4g",
                     loss_final, constant);
    else
        ab_text_show(reason, size, "O0 learned nothing: its final loss is %.4g, its first was %.4g",
                     loss_final, first);
    return false;
}
