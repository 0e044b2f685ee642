/* Gradients are reduced over ranks in a half format: every hop of the sum rounds, and small contributions to
 * a large sum are lost. Counted beside the mean in double. */
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
    if (!wire || !(r.error > c->facts.limits->reduction_error)) return false;
    if (r.sent_flushed > c->facts.limits->reduction_flushed) return false; /* lost before they were added */
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    set_layer(verdict, r.worst_error);
    ab_verdict_add_evidence(
        verdict,
        "the reduced gradient is off the mean of the %.0f ranks by %.2g of it, %+.2g along it; %s "
        "on the wire",
        ab_json_number(c->facts.document, "config.ranks", 1), r.error, r.bias, wire->name);
    ab_verdict_point(&c->facts, verdict, "/reduction/tensors");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    ab_remedy_reduction(&c->facts, AB_REDUCTION_WIDE, remedy);
}

const ab_verdict_rule ab_verdict_rule_reduced_in_half = {
    .id = "reduced_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_GRADIENT,
    .text = "the sum of gradients over ranks is rounded to a half format at every hop",
    .needs = {&ab_need_reduction},
    .predicts = AB_SYMPTOMS_OF_CELL | AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_one_rank},
    .judge = judge,
    .remedy = remedy,
};
