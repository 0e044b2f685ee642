/* Gradients of most micro-batches are cleared before the step, though the loss is divided by the number of
 * all: a zero_grad() in the loop over micro-batches. The loop states in which share of the steps that were
 * looked at (micro_batches_dropped). */
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"

static bool find(const ab_case *c, ab_verdict *verdict) {
    const ab_stated dropped = ab_stated_of(&c->facts, "micro_batches_dropped");
    if (!(dropped.last > c->facts.limits->skipping_share)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, dropped.first_step);
    ab_verdict_add_evidence(verdict,
                            "in %.3g %% of the steps that were looked at some micro-batches have their "
                            "gradients cleared before the "
                            "step, and the mean loss of each is divided by the number of all",
                            100 * dropped.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", dropped.index);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy, "clear gradients once a step, not before every micro-batch");
}

const ab_verdict_rule ab_verdict_rule_micro_batches_dropped = {
    .id = "micro_batches_dropped",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_GRADIENT,
    .text = "gradients of micro-batches are cleared before the step that they belong to",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_first_loss},
    .judge = find,
    .shows = find,
    .remedy = remedy,
};
