/* A run that was resumed without the scaler's state: the scale starts again at its first value and the first
 * steps are skipped until it has come down. */
#include "reports/diagnose/attribute/log_facts.h"
#include "reports/record/text.h"

static bool shows(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    char from[AB_TEXT_NUMBER], to[AB_TEXT_NUMBER];
    if (!(v.resets > 0)) return false;
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(
        verdict,
        "at a resume, in line %d, the scale jumped from %s to %s, the first of the log; %.0f times "
        "in all",
        ab_log_line_of(&v, "reset_line"), ab_text_scale(from, v.reset_from), ab_text_scale(to, v.reset_to),
        v.resets);
    ab_verdict_point_log(verdict, "resets");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy, "save the scaler with the checkpoint and load it (scaler.state_dict(), "
                               "scaler.load_state_dict())");
}

const ab_verdict_rule ab_verdict_rule_scale_reset_at_resume = {
    .id = "scale_reset_at_resume",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_GRADIENT,
    .text = "a resume lost the scaler's state: the search for the scale begins again",
    .needs = {&ab_need_log},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_log_sound},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
