/* Sums of products rounded to the half format after every addition, as configured: long sums lose their small
 * addends. */
#include "kernels/core/text.h"
#include "reports/diagnose/diagnose_facts.h"
#include "reports/record/json.h"

#include <string.h>

/* The first non-finite value is a partial sum; the result itself would fit. */
static bool overflowed(const ab_case *facts, ab_first_nonfinite *first) {
    *first = ab_first_nonfinite_of(facts->cell, facts->half->name, false);
    return first->known && strcmp(first->cause, "accumulator_overflow") == 0;
}

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    ab_first_nonfinite first;
    if (!ab_case_accumulates_in_half(facts) || facts->unlearned || !ab_case_fails_alone(facts)) return false;
    const bool proved = overflowed(facts, &first);
    verdict->confidence = proved ? 0.95 : 0.65;
    verdict->own = verdict->with_others = true;
    verdict->since = 0;
    ab_verdict_say(verdict, "sums of products are kept in %s", facts->half->name);
    ab_verdict_point(facts, verdict, "/accumulate");
    if (proved) ab_say_first_nonfinite(facts, &first, verdict);
    if (facts->behind) {
        ab_verdict_say(verdict, "loss gap to O0 %+.4g, allowed %.4g", facts->gap, facts->gap_limit);
        ab_verdict_point(facts, verdict, "/summary/loss_gap");
    }
    ab_text_show(verdict->remedy, sizeof verdict->remedy, "--accumulate fp32");
    ab_verdict_option(verdict, "--accumulate", "fp32");
    return true;
}

const ab_verdict_rule ab_verdict_rule_accumulator_in_half = {
    .id = "accumulator_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "products are summed in the half format",
    .judge = judge,
};
