/* A log whose losses end as NaN or inf. Where from, a log does not tell. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/log_facts.h"

static bool shows(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    if (!(v.nonfinite_losses > 0)) return false;
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(verdict, "%.0f losses are NaN or inf, the first in line %d", v.nonfinite_losses,
                            ab_log_line_of(&v, "nonfinite_line"));
    ab_verdict_point_log(verdict, "nonfinite_losses");
    ab_text_show(
        verdict->missing, sizeof verdict->missing,
        "where they are from: record the loop with ampprobe, which runs such a step again and names the "
        "first operation");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "go back to a checkpoint before that line; bf16 or fp32 for the step that fails");
}

const ab_verdict_rule ab_verdict_rule_losses_nonfinite_in_log = {
    .id = "losses_nonfinite_in_log",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "the forward pass gives losses that are NaN or inf",
    .needs = {&ab_need_log},
    .predicts = AB_SYMPTOM_NONFINITE,
    .refuted_by = {&ab_refuted_log_sound},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
