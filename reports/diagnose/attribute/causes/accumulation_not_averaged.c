/* Gradients of micro-batches are summed, not averaged. The gradient of a mean cross entropy with respect to
 * its logits has a norm of at most sqrt(2) per row, divided by the rows of the whole step, times the factor
 * with which that loss enters the run's; a larger one was not averaged. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* Energy of the gradient of O0's logits at the first step over all micro-batches; *bound: its maximum if they
 * are averaged. NAN if the loss is not a single cross entropy or the record has no energies. */
static double logit_energy(const ab_case *c, double *bound) {
    const cJSON *tensor = ab_facts_logits(&c->facts), *cell = c->facts.baseline;
    const cJSON *energy = cJSON_GetArrayItem(ab_json_at(tensor, "steps.energy"), 0),
                *nonzero = cJSON_GetArrayItem(ab_json_at(tensor, "steps.nonzero"), 0);
    const double classes = ab_facts_classes(&c->facts);
    const double a_step = ab_json_number(tensor, "count", 0) / ab_json_number(cell, "probes.steps_probed", 1);
    if (!tensor || classes < 2 || ab_facts_summed(&c->facts) || !cJSON_IsNumber(energy) ||
        !cJSON_IsNumber(nonzero))
        return (double)NAN;
    const double steps = fmax(1, round(nonzero->valuedouble / a_step)), rows = a_step / classes;
    const double scale = ab_first_scale(cell), factor = ab_facts_loss_factor(&c->facts);
    *bound = 2 / rows * factor * factor; /* rows: of the whole step */
    return energy->valuedouble / steps / (scale * scale);
}

/* The loop saw that each micro-batch's loss is a mean, and that these means are added up. fp32 adds them up
 * too: where it learns, the sum does no harm, or is that of several losses of one batch. */
static bool sums_means(const ab_case *c, ab_verdict *verdict) {
    const ab_stated sum = ab_stated_of(&c->facts, "sum_of_means");
    if (!sum.known || !(sum.largest > 1) || (c->facts.baseline && !ab_baseline_fails(c))) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    if (ab_baseline_fails(c)) ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(verdict,
                            "the gradients of %.3g mean losses are added up in a step, and none was divided",
                            sum.largest);
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", sum.index);
    return true;
}

/* Independent of symptoms: no mean can exceed the bound. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    const double micro = ab_json_number(c->facts.document, "config.gradient_accumulation_steps", 1);
    double bound = 0;
    const double energy = logit_energy(c, &bound);
    if (!(energy > c->facts.limits->accumulation_bound * bound)) return false;
    ab_verdict_own(verdict, AB_PROOF_COMPARED, 0);
    if (ab_baseline_fails(c)) ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(
        verdict,
        "O0's gradient of the logits has the norm %.3g at the first step; the mean over %.0f "
        "micro-batches cannot have more than %.3g",
        sqrt(energy), micro, sqrt(bound));
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/tensors");
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (!(ab_baseline_fails(c) || c->behind || c->nonfinite)) return false;
    return sums_means(c, verdict) || shows(c, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_no_fault(&c->facts, "accumulation_not_averaged", remedy))
        ab_remedy_add_text(remedy, "divide each loss, or the learning rate of sgd, by the %.0f micro-batches",
                           ab_json_number(c->facts.document, "config.gradient_accumulation_steps", 1));
}

const ab_verdict_rule ab_verdict_rule_accumulation_not_averaged = {
    .id = "accumulation_not_averaged",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_GRADIENT,
    .text = "gradients of micro-batches are summed, not averaged",
    .needs = {&ab_need_o0, &ab_need_gradients},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_one_batch},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
