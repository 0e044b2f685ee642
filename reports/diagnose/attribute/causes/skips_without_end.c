/* A log that ends in skipped steps, so many in a row that every first scale of every framework would have
 * been halved to nothing; or the scaler is at its floor and still skips. The weights do not change any more.
 */
#include "reports/diagnose/attribute/log_facts.h"
#include "reports/record/text.h"

static bool shows(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    char scale[AB_TEXT_NUMBER];
    const bool floor = v.floor_skips >= c->facts.limits->log_floor_skips;
    if (!v.facts || !(floor || v.skips_at_end >= c->facts.limits->log_endless_skips)) return false;
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(verdict,
                            "the log ends in %.0f skipped steps without a sign of one taken, from line %d on",
                            v.skips_at_end, ab_log_line_of(&v, "skips_line"));
    ab_verdict_point_log(verdict, "skips_at_end");
    if (floor) {
        ab_verdict_add_evidence(verdict, "the last %.0f of them left the scale at %s: it is at its floor",
                                v.floor_skips, ab_text_scale(scale, v.last_scale));
        ab_verdict_point_log(verdict, "floor_skips");
    }
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(
        remedy, "go back to a checkpoint before these steps; no scale makes a forward pass finite: look "
                "for the first NaN or inf there (libampprobe, `ampbench diagnose --run`), or use bf16");
}

const ab_verdict_rule ab_verdict_rule_skips_without_end = {
    .id = "skips_without_end",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_GRADIENT,
    .text = "every step is skipped: gradients are NaN or inf at any scale that the scaler may use",
    .needs = {&ab_need_log},
    .predicts = AB_SYMPTOM_SKIPPING,
    .refuted_by = {&ab_refuted_log_sound},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
