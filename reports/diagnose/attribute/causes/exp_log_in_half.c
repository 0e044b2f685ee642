/* exp above 11.1, or the logarithm of a probability that is 0 in the half format. As separate ops, softmax
 * and logarithm overflow in the backward pass too. */
#include "reports/diagnose/attribute/overflow.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_overflow(c, AB_OVERFLOW_EXP_LOG, verdict);
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return ab_show_overflow(c, AB_OVERFLOW_EXP_LOG, verdict);
}

const ab_verdict_rule ab_verdict_rule_exp_log_in_half = {
    .id = "exp_log_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "exp or log in the half format",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_rate, &ab_refuted_fits, &ab_refuted_statistics},
    .judge = judge,
    .shows = shows,
    .remedy = ab_remedy_of_overflow,
};
