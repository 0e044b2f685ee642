/* A sum or mean over many values that exceeds the half format's largest number although its terms do not. */
#include "reports/diagnose/attribute/overflow.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_overflow(c, AB_OVERFLOW_REDUCTION, verdict);
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return ab_show_overflow(c, AB_OVERFLOW_REDUCTION, verdict);
}

const ab_verdict_rule ab_verdict_rule_reduction_overflow = {
    .id = "reduction_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "a sum passes the half format's range",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_rate, &ab_refuted_fits, &ab_refuted_statistics},
    .judge = judge,
    .shows = shows,
    .remedy = ab_remedy_of_overflow,
};
