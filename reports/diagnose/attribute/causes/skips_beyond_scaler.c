/* After the first step that was taken, a scaler skips when it has risen too far, once in its window. A log
 * with far more skips has gradients that grow, or are inf or NaN now and then at any scale. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/log_facts.h"
#include "reports/record/text.h"

static bool shows(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    char first[AB_TEXT_NUMBER], last[AB_TEXT_NUMBER];
    const double most =
        c->facts.limits->log_skips_expected * v.later_expected + c->facts.limits->log_skips_spare;
    if (!v.scaler || !(v.later > most)) return false;
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(
        verdict,
        "after the scale first rose %.0f steps were skipped; %s, whose scales these are, skips "
        "about %.3g in as many",
        v.later, v.scaler, v.later_expected);
    ab_verdict_point_log(verdict, "skips_later");
    ab_verdict_add_evidence(verdict, "the scale went from %s to %s", ab_text_scale(first, v.first_scale),
                            ab_text_scale(last, v.last_scale));
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "record the loop (ampprobe): it names the layer whose gradients grow, or the first "
                       "inf or NaN of a batch; until then a lower learning rate, or bf16");
}

static bool as_expected(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    const ab_log_view v = ab_log_view_of(c);
    return v.later <= v.later_expected;
}

static const ab_refutation refuted_as_expected = {"the log has no more skips than its scaler makes by itself",
                                                  as_expected};

const ab_verdict_rule ab_verdict_rule_skips_beyond_scaler = {
    .id = "skips_beyond_scaler",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_GRADIENT,
    .text = "far more steps are skipped than the loss scaler skips by itself",
    .needs = {&ab_need_log},
    .predicts = AB_SYMPTOM_SKIPPING,
    .refuted_by = {&refuted_as_expected},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
