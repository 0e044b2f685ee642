/* Gradients of micro-batches that are added up in the half format. The sum of k equal gradients has a spacing
 * of up to 2^(1-p) of it (p significand bits); from k = 2^p on an equal addend is below half of that and is
 * lost. With fewer micro-batches the sum is only less exact. Of a sum of gradients that the loop itself
 * makes, operations that were looked at show what was lost, or that it overflowed. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/overflow.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The weight gradients that are stored in the half format: how many, and the first one. */
static int half_sums(const ab_case *c, const cJSON **first, int *place) {
    const cJSON *tensor;
    int i = -1, count = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.tensors")) {
        i++;
        if (strcmp(ab_json_text(tensor, "kind", ""), "weight_gradient") != 0 ||
            strcmp(ab_json_text(tensor, "stored", ""), c->facts.half->name) != 0)
            continue;
        if (count++ > 0) continue;
        *first = tensor;
        *place = i;
    }
    return count;
}

static double micro_batches(const ab_case *c) {
    return ab_json_number(c->facts.document, "config.gradient_accumulation_steps", 1);
}

static double first_lost(const ab_case *c) { return exp2(c->facts.half->precision); }

static bool find(const ab_case *c, ab_verdict *verdict) {
    const cJSON *first = NULL;
    int place = 0;
    const int count = ab_is_loop(&c->facts) ? half_sums(c, &first, &place) : 0;
    if (count == 0) return false;
    const bool lost = micro_batches(c) > first_lost(c);
    ab_verdict_own(verdict, lost ? AB_PROOF_SHOWN : AB_PROOF_CONSISTENT, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(first, "layer", ""));
    ab_verdict_add_evidence(verdict, "gradients of %.0f micro-batches are added up in %s, %s and %d more",
                            micro_batches(c), c->facts.half->name,
                            ab_text_brief(ab_json_text(first, "name", ""), 80), count - 1);
    ab_verdict_point(&c->facts, verdict, "/probes/tensors/%d/stored", place);
    if (lost)
        ab_verdict_add_evidence(
            verdict,
            "with %d significand bits the %.0fth of equal addends, and all later ones, change no sum",
            c->facts.half->precision, first_lost(c) + 1);
    return true;
}

static bool lost_increments(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_lost(c, "gradient_increments_lost", c->facts.limits->counts_lost,
                         "what is added to a sum of gradients that is kept in half does not change it",
                         verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (ab_judge_overflow(c, AB_OVERFLOW_GRADIENTS, verdict) || lost_increments(c, verdict)) return true;
    return (c->behind || micro_batches(c) > first_lost(c)) && find(c, verdict);
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return lost_increments(c, verdict) || (micro_batches(c) > first_lost(c) && find(c, verdict));
}

static bool one_batch(const ab_case *c, const ab_verdict *verdict) {
    return !ab_is_stated(c, "gradient_increments_lost") && ab_refuted_one_batch.holds(c, verdict);
}

static const ab_refutation refuted_one_batch = {"a step has one micro-batch", one_batch};

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_masters(&c->facts, remedy)) ab_remedy_add_text(remedy, "add the gradients up in fp32");
}

const ab_verdict_rule ab_verdict_rule_accumulated_in_half = {
    .id = "accumulated_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_GRADIENT,
    .text = "gradients of micro-batches are added up in the half format",
    .needs = {&ab_need_gradients, &ab_need_loop},
    .predicts = AB_SYMPTOM_BEHIND | AB_SYMPTOM_SKIPPING,
    .refuted_by = {&refuted_one_batch, &ab_refuted_o0_fails},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
