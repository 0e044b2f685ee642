/* A loop without a loss scaler that leaves the weights as they are whenever a gradient is not finite, and
 * says so nowhere: its loss looks calm and it does not learn. Either the loop itself does not call the
 * optimizer, or an optimizer does nothing inside its step: then gradients that are not finite would have made
 * the next loss NaN. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

/* The steps that cannot have changed a weight: of the optimizer, or as many as had such gradients. */
static double unapplied(const ab_case *c) {
    int place = 0;
    const double skipped = ab_loop_number(&c->facts, "steps_skipped");
    const cJSON *tensor = ab_loop_overflow(&c->facts, &place);
    if (skipped > 0 || c->facts.loss.nonfinite > 0) return skipped;
    return ab_json_number(tensor, "steps", 0);
}

/* The end of a run: backward passes for a later optimizer, as of a resumed run, that never made a step. */
static bool never_resumed(const ab_case *c, ab_verdict *verdict) {
    const ab_stated passes = ab_stated_of(&c->facts, "passes_since_last_step");
    const double steps = ab_loop_number(&c->facts, "steps");
    if (!passes.known || !(passes.last > c->facts.limits->skipping_share * (steps + passes.last)))
        return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, passes.first_step);
    ab_verdict_add_evidence(
        verdict,
        "after step %.0f there were %.0f backward passes and no step: an optimizer that was made "
        "for them was never called",
        steps, passes.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", passes.index);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const double steps = ab_loop_number(&c->facts, "steps"), skipped = unapplied(c);
    char share[AB_TEXT_NUMBER];
    int place = 0;
    if (never_resumed(c, verdict)) return true;
    if (ab_loop_number(&c->facts, "steps_with_scale") > 0 ||
        !(skipped > c->facts.limits->skipping_share * steps))
        return false;
    const bool called = ab_loop_number(&c->facts, "steps_skipped") == 0;
    const cJSON *tensor = ab_loop_overflow(&c->facts, &place);
    verdict->proof = AB_PROOF_SHOWN;
    verdict->since = (int)ab_json_number(c->facts.cell, "first_skipped_step",
                                         ab_json_number(tensor, "first_step", AB_STEP_UNKNOWN));
    ab_verdict_add_evidence(verdict, "%.0f of %.0f steps (%s %%) left the weights as they were%s", skipped,
                            steps, ab_text_percent(share, skipped / steps),
                            called ? ", although the optimizer was called" : "");
    ab_verdict_point_document(verdict, called ? "/probe/overflowed" : "/probe/groups/0/steps_skipped");
    ab_verdict_add_evidence(verdict, "there is no loss scaler that would have skipped them and said so");
    ab_verdict_point_document(verdict, "/probe/groups/0/steps_with_scale");
    const ab_first_nonfinite made = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    if (made.known && made.step > verdict->since)
        verdict->since = made.step; /* the first that was looked at */
    if (!tensor) return true;
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(tensor, "layer", ""));
    ab_verdict_add_evidence(verdict, "the gradient of %s is not finite from step %.0f on, at %.0f steps",
                            ab_text_brief(ab_json_text(tensor, "name", ""), 80),
                            ab_json_number(tensor, "first_step", 0), ab_json_number(tensor, "steps", 0));
    ab_verdict_point_document(verdict, "/probe/overflowed/%d", place);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy, "report every step that is skipped, and stop after several in a row");
}

static bool has_no_step(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_loop_calls_no_step(&c->facts);
}

static const ab_refutation refuted_no_step = {"the loop makes no step at all, and has no reason to skip",
                                              has_no_step};

const ab_verdict_rule ab_verdict_rule_silent_skips = {
    .id = "silent_skips",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_UPDATE, /* which is left out: after what made a gradient not finite */
    .text = "steps are skipped without a word, so the weights do not change",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_SKIPPING | AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_first_loss, &refuted_no_step},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
