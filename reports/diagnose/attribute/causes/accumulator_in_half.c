/* Sums of products rounded to the half format after every addition, as configured: long sums lose their small
 * addends. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"

#include <string.h>

/* The first non-finite value is a partial sum; the result itself would fit. */
static bool overflowed(const ab_case *c, ab_first_nonfinite *first) {
    *first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    return first->known && strcmp(first->cause, "accumulator_overflow") == 0;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    ab_first_nonfinite first;
    if (!ab_facts_accumulates_in_half(&c->facts) || c->unlearned || !ab_case_fails_alone(c)) return false;
    const bool proved = overflowed(c, &first);
    verdict->confidence = proved ? 0.95 : 0.65;
    verdict->own = verdict->remedy.with_others = true;
    verdict->since = 0;
    ab_verdict_say(verdict, "sums of products are kept in %s", c->facts.half->name);
    ab_verdict_point(&c->facts, verdict, "/accumulate");
    if (proved) ab_say_first_nonfinite(&c->facts, &first, verdict);
    if (c->behind) {
        ab_verdict_say(verdict, "loss gap to O0 %+.4g, allowed %.4g", c->facts.gap, c->gap_limit);
        ab_verdict_point(&c->facts, verdict, "/summary/loss_gap");
    }
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    (void)ab_remedy_wide_sums(&c->facts, remedy);
}

const ab_verdict_rule ab_verdict_rule_accumulator_in_half = {
    .id = "accumulator_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "products are summed in the half format",
    .judge = judge,
    .remedy = remedy,
};
