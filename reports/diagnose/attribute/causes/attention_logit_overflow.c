/* The products of queries and keys, or a mask added to them, exceed the half format's largest number before
 * the softmax. */
#include "reports/diagnose/attribute/overflow.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_overflow(c, AB_OVERFLOW_ATTENTION, verdict);
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return ab_show_overflow(c, AB_OVERFLOW_ATTENTION, verdict);
}

const ab_verdict_rule ab_verdict_rule_attention_logit_overflow = {
    .id = "attention_logit_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "attention logits, or their mask, leave the half format's range",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_rate, &ab_refuted_fits, &ab_refuted_statistics},
    .judge = judge,
    .shows = shows,
    .remedy = ab_remedy_of_overflow,
};
