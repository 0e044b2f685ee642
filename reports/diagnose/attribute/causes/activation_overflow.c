/* The forward pass overflows the half format but not fp32, so no loss scale helps. Symptoms: losses that are
 * NaN or inf at any scale, or infinite outputs with finite losses, while O0 is healthy. */
#include "reports/diagnose/attribute/overflow.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_overflow(c, AB_OVERFLOW_ACTIVATION, verdict);
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return ab_show_overflow(c, AB_OVERFLOW_ACTIVATION, verdict);
}

const ab_verdict_rule ab_verdict_rule_activation_overflow = {
    .id = "activation_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "the forward pass leaves the half format's range",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_rate, &ab_refuted_fits, &ab_refuted_statistics},
    .judge = judge,
    .shows = shows,
    .remedy = ab_remedy_of_overflow,
};
