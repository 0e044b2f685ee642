/* Steps that had no gradients: a loop threw them away between the backward pass and the step (it states
 * steps_without_gradients); or no parameter that an optimizer holds ever has one (no_gradients). Or two
 * checkpoints of one run: steps were taken, and the trained weights did not move. Each of Adam's steps moves
 * every weight that has had a gradient, unless the update is lost in rounding or the step is skipped.
 */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

static bool had_no_gradients(const ab_case *c, ab_verdict *verdict) {
    const ab_stated empty = ab_stated_of(&c->facts, "steps_without_gradients");
    const double steps = ab_loop_number(&c->facts, "steps");
    if (!empty.known || !(empty.largest > c->facts.limits->skipping_share * steps)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, empty.first_step);
    ab_verdict_add_evidence(
        verdict, "%.0f of %.0f steps had no gradients: they were set to zero after the backward pass",
        empty.largest, steps);
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", empty.index);
    return true;
}

/* The graph is cut before the first of them, or the optimizer was made for other parameters. */
static bool has_none_to_train(const ab_case *c, ab_verdict *verdict) {
    const ab_stated none = ab_stated_of(&c->facts, "no_gradients"),
                    other = ab_stated_of(&c->facts, "held_by_no_optimizer");
    if (!none.known) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN,
                   none.first_step - (int)none.last > 0 ? none.first_step - (int)none.last : 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, none.place);
    ab_verdict_add_evidence(verdict,
                            "no parameter that the optimizer holds had a gradient in any of %.0f steps; the "
                            "first is %s",
                            none.last, ab_text_brief(none.place, 60));
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", none.index);
    if (!other.known) return true;
    ab_verdict_add_evidence(verdict,
                            "%s has gradients, and no optimizer holds it: it came after the optimizer",
                            ab_text_brief(other.place, 60));
    ab_verdict_point_document(verdict, "/probe/facts/%d", other.index);
    return true;
}

static bool find(const ab_case *c, ab_verdict *verdict) {
    const cJSON *since = ab_json_at(c->facts.document, "checkpoint.since");
    const double moved = ab_json_number(since, "moved", 0), elements = ab_json_number(since, "elements", 0);
    char share[AB_TEXT_NUMBER];
    if (had_no_gradients(c, verdict) || has_none_to_train(c, verdict)) return true;
    if (!since || ab_json_number(since, "steps", 0) < 1 || !(moved < c->facts.limits->still_share * elements))
        return false;
    verdict->proof = AB_PROOF_SHOWN;
    verdict->since = 1; /* what a lost update or a skipped step makes of the weights */
    ab_verdict_add_evidence(verdict,
                            "%s %% of %.0f trained weights differ after %.0f steps; %.0f of %.0f tensors are "
                            "the same in every element",
                            ab_text_percent(share, moved / elements), elements,
                            ab_json_number(since, "steps", 0), ab_json_number(since, "tensors_still", 0),
                            ab_json_number(since, "tensors", 0));
    return true;
}

static bool has_no_rate(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_json_number(c->facts.document, "checkpoint.lr", (double)NAN) == 0;
}

static const ab_refutation refuted_no_rate = {"the learning rate is 0: the schedule has ended", has_no_rate};

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (ab_stated_of(&c->facts, "steps_without_gradients").known)
        ab_remedy_add_text(remedy, "call zero_grad() before the backward pass, or after the step");
    else
        ab_remedy_add_text(
            remedy,
            "see whether steps are skipped (the scaler's state, the log) and whether updates are lost "
            "in half weights; keep fp32 master weights");
}

const ab_verdict_rule ab_verdict_rule_weights_stand_still = {
    .id = "weights_stand_still",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_STORE,
    .text = "the weights stand still although steps are made",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BEHIND | AB_SYMPTOM_BASELINE,
    .refuted_by = {&refuted_no_rate},
    .judge = find,
    .shows = find,
    .remedy = remedy,
};
