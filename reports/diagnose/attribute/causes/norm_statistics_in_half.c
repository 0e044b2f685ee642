/* A norm whose squares, or their mean, exceed the half format's largest number: inputs above 255 are enough.
 */
#include "reports/diagnose/attribute/overflow.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_overflow(c, AB_OVERFLOW_NORM, verdict);
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return ab_show_overflow(c, AB_OVERFLOW_NORM, verdict);
}

const ab_verdict_rule ab_verdict_rule_norm_statistics_in_half = {
    .id = "norm_statistics_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "a norm's squares leave the half format's range",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_rate, &ab_refuted_fits, &ab_refuted_statistics},
    .judge = judge,
    .shows = shows,
    .remedy = ab_remedy_of_overflow,
};
