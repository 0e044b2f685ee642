/* The loss scale of a checkpoint is 1 or less: a dynamic scaler that has fallen this far found an overflow at
 * every larger scale, so something overflows that the scale does not make, and gradients are not scaled up at
 * all. 1 is the floor of DeepSpeed's scaler and of others; those without a floor fall below it. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

static bool find(const ab_case *c, ab_verdict *verdict) {
    const cJSON *own = ab_json_at(c->facts.document, "checkpoint");
    const double scale = ab_json_number(own, "scale", (double)NAN),
                 clean = ab_json_number(own, "growth_tracker", (double)NAN);
    char text[AB_TEXT_NUMBER];
    if (!(scale <= c->facts.limits->floor_scale)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_verdict_add_evidence(verdict, "the checkpoint's loss scale is %s: it has fallen to its floor",
                            ab_text_scale(text, scale));
    ab_verdict_point(&c->facts, verdict, "/scale");
    if (clean >= 0) ab_verdict_add_evidence(verdict, "%.0f steps without an overflow since", clean);
    if (c->facts.skip.skipped > 0)
        ab_verdict_add_evidence(verdict, "%d of %d steps skipped", c->facts.skip.skipped,
                                c->facts.loss.steps);
    return true;
}

/* A scaler that has been clean for half a window is on its way up. */
static bool rises_again(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_json_number(c->facts.document, "checkpoint.growth_tracker", 0) > c->facts.skip.window / 2;
}

static const ab_refutation refuted_rises = {"the scale has been clean for half a window and rises again",
                                            rises_again};

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "find what is inf or NaN at any scale: run a few steps from this checkpoint with "
                       "`ampprobe` (docs/pytorch.md); or train in bf16, without a scale");
}

const ab_verdict_rule ab_verdict_rule_scale_at_floor = {
    .id = "scale_at_floor",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_BACKWARD,
    .text = "the loss scale of a checkpoint has fallen to its floor",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_SKIPPING | AB_SYMPTOM_BEHIND,
    .refuted_by = {&refuted_rises},
    .judge = find,
    .shows = find,
    .remedy = remedy,
};
