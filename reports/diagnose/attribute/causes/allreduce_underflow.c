/* Half gradients that are divided by the number of ranks before they are summed fall below the format: they
 * are 0 when they reach the other ranks. */
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
    if (!wire || !(r.sent_flushed > c->facts.limits->reduction_flushed)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    set_layer(verdict, r.worst_sent_flushed);
    ab_verdict_add_evidence(
        verdict,
        "%.2g %% of the contributions of %.0f ranks become 0 when they are divided and sent in %s; "
        "the reduced gradient is off the mean by %.2g of it",
        100 * r.sent_flushed, ab_json_number(c->facts.document, "config.ranks", 1), wire->name, r.error);
    ab_verdict_point(&c->facts, verdict, "/reduction/tensors");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    ab_remedy_reduction(&c->facts, AB_REDUCTION_AROUND, remedy);
}

const ab_verdict_rule ab_verdict_rule_allreduce_underflow = {
    .id = "allreduce_underflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_GRADIENT,
    .text = "gradients become 0 when they are divided by the ranks before the sum",
    .needs = {&ab_need_reduction},
    .predicts = AB_SYMPTOMS_OF_CELL | AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_one_rank},
    .judge = judge,
    .remedy = remedy,
};
