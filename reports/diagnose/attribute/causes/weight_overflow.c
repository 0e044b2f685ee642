/* Weights too large for the half format: the cast makes them infinite. */
#include "reports/diagnose/attribute/overflow.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_overflow(c, AB_OVERFLOW_WEIGHT, verdict);
}

static bool update(const ab_case *c, const ab_verdict *verdict) {
    (void)c;
    return verdict->since > 0 && !verdict->own;
}

static const ab_refutation refuted_update = {
    "the weights were finite, and O0's stay far below the limit: an update made them NaN or inf", update};

const ab_verdict_rule ab_verdict_rule_weight_overflow = {
    .id = "weight_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "weights are beyond the half format's range",
    .needs = {&ab_need_o0},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_update, &ab_refuted_rate, &ab_refuted_fits, &ab_refuted_statistics},
    .judge = judge,
    .remedy = ab_remedy_of_overflow,
};
