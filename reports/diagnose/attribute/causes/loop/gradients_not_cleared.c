/* Gradients are never set to zero between steps: every backward pass adds to those of all steps before, and
 * the optimizer steps along their sum. The loop states the share of the steps it looked at
 * (gradients_not_cleared).
 */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/text.h"

static bool find(const ab_case *c, ab_verdict *verdict) {
    const ab_stated kept = ab_stated_of(&c->facts, "gradients_not_cleared");
    char share[AB_TEXT_NUMBER];
    if (!kept.known || !(kept.last > c->facts.limits->skipping_share)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, kept.first_step);
    ab_verdict_add_evidence(verdict,
                            "in %s %% of the steps that were looked at the gradients of the step before were "
                            "still there when the backward pass began, and it was added to them",
                            ab_text_percent(share, kept.last));
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", kept.index);
    return true;
}

static bool thrown_away(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_stated_of(&c->facts, "steps_without_gradients").known;
}

static const ab_refutation refuted_thrown_away = {"gradients are thrown away before the step", thrown_away};

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy, "set the gradients to zero before the first backward pass of every step");
}

const ab_verdict_rule ab_verdict_rule_gradients_not_cleared = {
    .id = "gradients_not_cleared",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_GRADIENT,
    .text = "gradients are added to those of all steps before",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_thrown_away},
    .judge = find,
    .shows = find,
    .remedy = remedy,
};
