/* The scale doubles again after few clean steps, so a large share of the steps is skipped although the
 * forward pass is correct. A scaler normally skips one in window + 1 steps; this is far more. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

static bool find(const ab_case *c, ab_verdict *verdict) {
    const ab_skip_facts *skip = &c->facts.skip;
    /* a window as long as the run cannot be the cause: each doubling takes `window` clean steps */
    if (!skip->dynamic || !ab_facts_short_window(&c->facts)) return false;
    char least[AB_TEXT_NUMBER], most[AB_TEXT_NUMBER];
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(verdict, "%d of the last %d steps were skipped, each with a finite loss",
                            skip->late, skip->late_steps);
    ab_verdict_point(&c->facts, verdict, "/skipped_steps");
    ab_verdict_add_evidence(verdict, "the scale doubles after %.0f clean steps; it went between %s and %s",
                            skip->window, ab_text_scale(least, skip->least_scale),
                            ab_text_scale(most, skip->largest_scale));
    ab_verdict_point(&c->facts, verdict, "/scale");
    return true;
}

/* A tenth of the steps is skipped, and without these skips the cell would not be behind O0. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    return c->facts.skip.late > c->facts.limits->window_skips * c->facts.skip.late_steps &&
           (c->suspect || c->facts.gap > c->gap_limit - c->facts.skip_cost) && find(c, verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return c->skipping ? find(c, verdict) : shows(c, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    enum { WINDOW = 2000 }; /* apex's, torch's and DeepSpeed's default order of magnitude */
    (void)verdict;
    (void)ab_remedy_longer_window(&c->facts, WINDOW, remedy);
}

static bool losses(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return c->facts.skip.loss_finite < c->facts.limits->window_finite * c->facts.skip.skipped;
}

static const ab_refutation refuted_losses = {
    "losses of skipped steps are NaN or inf: no scale makes them finite", losses};

const ab_verdict_rule ab_verdict_rule_scaler_window_too_short = {
    .id = "scaler_window_too_short",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_GRADIENT,
    .text = "the scaler grows the scale so often that a large share of the steps is skipped",
    .needs = {&ab_need_o0},
    .predicts = AB_SYMPTOM_SKIPPING | AB_SYMPTOM_BEHIND,
    .refuted_by = {&refuted_losses},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
