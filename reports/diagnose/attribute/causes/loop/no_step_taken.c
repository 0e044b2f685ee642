/* A loop in which no optimizer makes a step, though no gradient is known that would be a reason: it never
 * calls backward(), or never step(). A probe states the forward or backward passes of such a run
 * (passes_without_backward, passes_without_step). Where the loss or a gradient is not finite the loop may
 * leave out steps on purpose: that is silent_skips. */
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"

static bool find(const ab_case *c, ab_verdict *verdict) {
    const ab_stated forward = ab_stated_of(&c->facts, "passes_without_backward"),
                    backward = ab_stated_of(&c->facts, "passes_without_step");
    if (!ab_loop_calls_no_step(&c->facts)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    if (forward.known) {
        ab_verdict_add_evidence(verdict,
                                "%.0f forward passes in training mode, and no backward pass: the loss was "
                                "never differentiated",
                                forward.last);
        ab_verdict_point_document(verdict, "/probe/facts/%d/last", forward.index);
        return true;
    }
    ab_verdict_add_evidence(
        verdict, "%.0f backward passes, and no step of an optimizer: no weight has changed", backward.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", backward.index);
    ab_verdict_add_evidence(verdict, "every gradient that was looked at is finite: none is a reason to skip");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy, "call the backward pass and the optimizer's step in every iteration");
}

static bool is_nonfinite(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return c->nonfinite;
}

static const ab_refutation refuted_nonfinite = {"losses are NaN or inf: steps may be left out on purpose",
                                                is_nonfinite};

const ab_verdict_rule ab_verdict_rule_no_step_taken = {
    .id = "no_step_taken",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_GRADIENT,
    .text = "no step of an optimizer is ever made",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_SKIPPING | AB_SYMPTOM_BASELINE | AB_SYMPTOM_BEHIND,
    .refuted_by = {&refuted_nonfinite},
    .judge = find,
    .shows = find,
    .remedy = remedy,
};
