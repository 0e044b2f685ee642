/* Gradients unscaled after every micro-batch: what was accumulated first is divided more than once, so only
 * the last micro-batch remains. In the record, gradients are unscaled more than once per step, or the first
 * gradient is smaller than O0's of the same batch. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const double micro = ab_json_number(c->facts.document, "config.gradient_accumulation_steps", 1);
    if (!ab_case_sound_baseline(c)) return false;
    const ab_tensor_sums first = ab_tensor_sums_of(c->facts.cell, "unscaled_gradients", "", false),
                         reference = ab_tensor_sums_of(c->facts.baseline, "unscaled_gradients", "", false);
    const double times = ab_times_unscaled(&c->facts), share = sqrt(first.energy / reference.energy);
    if (!(times > c->facts.limits->unscaled_times) &&
        !(share < c->facts.limits->unscaled_share && share > 0.5 / micro))
        return false;
    char scale[AB_TEXT_NUMBER];
    verdict->proof = times > c->facts.limits->unscaled_times ? AB_PROOF_SHOWN : AB_PROOF_COMPARED;
    verdict->own = true;
    verdict->since = 0;
    if (times > c->facts.limits->unscaled_times) {
        ab_verdict_add_evidence(
            verdict, "gradients are divided by the loss scale %s %.2g times a step, of %.0f micro-batches",
            ab_text_scale(scale, c->facts.skip.last_scale), times, micro);
        ab_verdict_point(&c->facts, verdict, "/probes/unscaled_gradients");
    }
    if (share < c->facts.limits->unscaled_share) {
        ab_verdict_add_evidence(
            verdict,
            "the first gradient's norm is %.2g of O0's over the same %.0f micro-batches: the last one is "
            "all that is left",
            share, micro);
        ab_verdict_point(&c->facts, verdict, "/probes/unscaled_gradients");
    }
    return true;
}

/* Gradients were written more than once per step, which has no other cause. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    return judge(c, verdict) && verdict->proof == AB_PROOF_SHOWN;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_no_fault(&c->facts, "unscale_each_micro_batch", remedy))
        ab_remedy_add_text(remedy, "unscale the gradients once, before the step");
}

const ab_verdict_rule ab_verdict_rule_unscale_order_in_accumulation = {
    .id = "unscale_order_in_accumulation",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_GRADIENT,
    .text = "accumulated gradients are unscaled more than once",
    .needs = {&ab_need_gradients, &ab_need_unscaled},
    .predicts = AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_one_batch, &ab_refuted_no_scale},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
