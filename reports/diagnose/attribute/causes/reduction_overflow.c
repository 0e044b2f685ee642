/* A sum or mean over many values that exceeds the half format's largest number although its terms do not. Of
 * a sum that a loop keeps itself, as a metric's, operations that were looked at show it. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/overflow.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/text.h"

static bool kept_sum(const ab_case *c, ab_verdict *verdict) {
    const ab_stated sum = ab_stated_of(&c->facts, "sum_beyond_half");
    if (!(sum.largest > ab_format_max(&ab_format_fp16))) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, sum.place);
    ab_verdict_add_evidence(verdict,
                            "%s adds to a sum that is kept in half until it is inf: in double it is %.4g",
                            ab_text_brief(sum.place, 80), sum.largest);
    ab_verdict_point_document(verdict, "/probe/facts/%d", sum.index);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return kept_sum(c, verdict) || ab_judge_overflow(c, AB_OVERFLOW_REDUCTION, verdict);
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return kept_sum(c, verdict) || ab_show_overflow(c, AB_OVERFLOW_REDUCTION, verdict);
}

static bool fits(const ab_case *c, const ab_verdict *verdict) {
    return !ab_is_stated(c, "sum_beyond_half") && ab_refuted_fits.holds(c, verdict);
}

static const ab_refutation refuted_fits = {"the result itself fits, only its partial sums do not", fits};

const ab_verdict_rule ab_verdict_rule_reduction_overflow = {
    .id = "reduction_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "a sum passes the half format's range",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_rate, &refuted_fits, &ab_refuted_statistics},
    .judge = judge,
    .shows = shows,
    .remedy = ab_remedy_of_overflow,
};
