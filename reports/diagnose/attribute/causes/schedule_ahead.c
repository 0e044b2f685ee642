/* A learning-rate schedule that goes on in steps that are skipped: it runs ahead of the updates. */
#include "reports/diagnose/attribute/log_facts.h"

static bool shows(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    if (!(v.rate_moved >= c->facts.limits->log_rate_moved)) return false;
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(
        verdict,
        "the learning rate changed in %.0f of %.0f lines of which every step was skipped, first in "
        "line %d",
        v.rate_moved, v.skipped_intervals, ab_log_line_of(&v, "rate_line"));
    ab_verdict_point_log(verdict, "rate_moved");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "call scheduler.step() only after a step that was taken (the scale did not fall)");
}

const ab_verdict_rule ab_verdict_rule_schedule_ahead = {
    .id = "schedule_ahead",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_UPDATE,
    .text = "the learning-rate schedule advances in skipped steps",
    .needs = {&ab_need_log},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_log_sound},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
