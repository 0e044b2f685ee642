/* The forward pass itself leaves the half format's range while fp32 does not: no loss scale can help. Seen as
 * losses that are not numbers whatever the scale is, or as an output with infinities where the losses stay
 * numbers, where O0 is sound. */
#include "reports/diagnose/diagnose_facts.h"

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    return ab_judge_overflow(facts, AB_OVERFLOW_ACTIVATION, verdict);
}

const ab_verdict_rule ab_verdict_rule_activation_overflow = {
    .id = "activation_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "the forward pass leaves the half format's range",
    .judge = judge,
};
