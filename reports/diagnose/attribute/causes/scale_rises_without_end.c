/* A loss scale that rises without an overflow beyond any that a gradient could bear: no gradient reaches the
 * scaler (all are 0, or they are not checked), or the scaler has no cap. */
#include "reports/diagnose/attribute/log_facts.h"
#include "reports/record/text.h"

static bool shows(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    char from[AB_TEXT_NUMBER], to[AB_TEXT_NUMBER];
    if (!(v.runaway_scale > c->facts.limits->log_runaway_scale)) return false;
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(verdict,
                            "the scale rose from %s to %s without an overflow, the last time in line %d",
                            ab_text_scale(from, v.runaway_from), ab_text_scale(to, v.runaway_scale),
                            ab_log_line_of(&v, "runaway_line"));
    ab_verdict_point_log(verdict, "runaway_scale");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(
        remedy, "check that the gradients which the scaler looks at are those of the loss, and not all 0; "
                "set the scaler's cap (max_loss_scale) to 2^24");
}

const ab_verdict_rule ab_verdict_rule_scale_rises_without_end = {
    .id = "scale_rises_without_end",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_GRADIENT,
    .text = "the loss scale rises without end: the least fp16 gradient would overflow at it",
    .needs = {&ab_need_log},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_log_came_down},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
