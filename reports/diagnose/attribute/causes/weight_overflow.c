/* Weights too large for the half format: the cast makes them infinite. */
#include "reports/diagnose/attribute/overflow.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_overflow(c, AB_OVERFLOW_WEIGHT, verdict);
}

const ab_verdict_rule ab_verdict_rule_weight_overflow = {
    .id = "weight_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "weights are beyond the half format's range",
    .judge = judge,
    .remedy = ab_remedy_of_overflow,
};
