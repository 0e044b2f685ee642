/* The sum of half gradients over ranks overflows before it is divided, although every contribution is finite.
 */
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

static void set_layer(ab_verdict *verdict, const char *layer) {
    ab_text_clean(verdict->layer, sizeof verdict->layer, layer);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const ab_reduction_facts r = ab_reduction_facts_of(c->facts.cell);
    const ab_format *wire = ab_facts_half_wire(&c->facts);
    const unsigned symptoms = ab_symptoms_of(c);
    if (!wire || !(r.overflowed > 0) || !(symptoms & (AB_SYMPTOM_NONFINITE | AB_SYMPTOM_SKIPPING)))
        return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    set_layer(verdict, r.worst_overflowed);
    ab_verdict_add_evidence(
        verdict,
        "%.0f values of the gradient became NaN or inf in the sum over %.0f ranks in %s, from "
        "finite contributions",
        r.overflowed, ab_json_number(c->facts.document, "config.ranks", 1), wire->name);
    ab_verdict_point(&c->facts, verdict, "/reduction/tensors");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    ab_remedy_reduction(&c->facts, AB_REDUCTION_BEFORE, remedy);
}

const ab_verdict_rule ab_verdict_rule_allreduce_overflow = {
    .id = "allreduce_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_GRADIENT,
    .text = "the sum of gradients over ranks overflows before it is divided",
    .needs = {&ab_need_reduction},
    .predicts = AB_SYMPTOMS_OF_CELL | AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_one_rank},
    .judge = judge,
    .remedy = remedy,
};
