/* Sums of products rounded to the half format at every step, as the run was asked to: long sums lose their small addends. */
#include "reports/diagnose.h"
#include "reports/json.h"

#include <string.h>

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    if (strcmp(ab_json_text(facts->cell, "accumulate", "fp32"), "half") != 0 || facts->unlearned)
        return false;
    if (!ab_case_uses_half(facts)) return false;
    verdict->confidence = 0.65;
    ab_verdict_say(verdict, "sums of products are kept in %s", facts->half->name);
    ab_verdict_point(facts, verdict, "/accumulate");
    if (facts->behind) {
        ab_verdict_say(verdict, "loss gap to O0 %+.4g, allowed %.4g", facts->gap, facts->gap_limit);
        ab_verdict_point(facts, verdict, "/summary/loss_gap");
    }
    snprintf(verdict->remedy, sizeof verdict->remedy, "--accumulate fp32");
    ab_verdict_option(verdict, "--accumulate", "fp32");
    return true;
}

const ab_verdict_rule ab_verdict_rule_accumulator_in_half = {
    .id = "accumulator_in_half",
    .family = AB_FAMILY_PRECISION,
    .text = "products are summed in the half format",
    .judge = judge,
};
