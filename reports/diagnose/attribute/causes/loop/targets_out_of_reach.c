/* The model's outputs come from a bounded function (relu, sigmoid, tanh), and targets lie beyond its bounds:
 * outputs stay at a bound, where no gradient passes. The loop states what that costs (targets_out_of_reach),
 * by the mean of the targets of such outputs, so that noise round a target within the bounds costs nothing.
 * The loss falls all the same, to what the other samples leave. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"

static bool find(const ab_case *c, ab_verdict *verdict) {
    const ab_stated stated = ab_stated_of(&c->facts, "targets_out_of_reach");
    if (!(stated.last > c->facts.limits->reach)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, stated.first_step);
    ab_verdict_add_evidence(
        verdict,
        "predictions are the outputs of %s, and those at its bounds have targets beyond them: that costs "
        "%.2g of the variance of all targets, whatever is learned",
        ab_text_brief(stated.place, 40), stated.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", stated.index);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy, "no such function at the output; or targets scaled to its range");
}

const ab_verdict_rule ab_verdict_rule_targets_out_of_reach = {
    .id = "targets_out_of_reach",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_FORWARD,
    .text = "the last function of the model cannot give what the targets ask for",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_first_loss},
    .judge = find,
    .shows = find,
    .remedy = remedy,
};
