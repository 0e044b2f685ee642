/* A loss that is printed as exactly 0 beside a gradient norm that is NaN: Hugging Face's Trainer replaces
 * losses that are NaN or inf before it logs them (logging_nan_inf_filter, on by default). */
#include "reports/diagnose/attribute/log_facts.h"

static bool shows(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    if (!(v.hidden_nans > 0)) return false;
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(
        verdict, "%.0f lines have a loss of 0 and a gradient norm that is NaN, the first is line %d",
        v.hidden_nans, ab_log_line_of(&v, "hidden_line"));
    ab_verdict_point_log(verdict, "hidden_nans");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(
        remedy, "the losses are NaN: set logging_nan_inf_filter=False to see them, and look for the first "
                "NaN in the forward pass (ampprobe)");
}

const ab_verdict_rule ab_verdict_rule_nan_hidden_by_log = {
    .id = "nan_hidden_by_log",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "losses that are NaN are logged as 0",
    .needs = {&ab_need_log},
    .predicts = AB_SYMPTOM_NONFINITE,
    .refuted_by = {&ab_refuted_log_sound},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
