/* Weights or buffers whose format changed to a narrower one after training began, by model.half() for an
 * evaluation for example: what the optimizer updates is then the half copy, and what it lost does not come
 * back. The loop states it (dtype_changed). */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const ab_stated changed = ab_stated_of(&c->facts, "dtype_changed");
    const char *width = "fp32";
    if (!changed.known || !(changed.largest > 0)) return false;
    if (changed.last <= 2) width = c->facts.half->name;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, changed.first_step);
    ab_text_clean(verdict->layer, sizeof verdict->layer, changed.place);
    ab_verdict_add_evidence(verdict, "%s was cast in place at step %d, with %d others; it is in %s now",
                            ab_text_brief(changed.place, 80), changed.first_step, changed.entries - 1, width);
    ab_verdict_point_document(verdict, "/probe/facts/%d", changed.index);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy, "cast a copy of the model, not the one that is trained");
}

static bool widened(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_stated_of(&c->facts, "dtype_changed").least > 2;
}

static const ab_refutation refuted_widened = {"the casts were to wider formats only", widened};

const ab_verdict_rule ab_verdict_rule_cast_in_place = {
    .id = "cast_in_place",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_STORE,
    .text = "the weights were cast in place after training began",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_widened},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
