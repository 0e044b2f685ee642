/* A cause as a newcomer would add it: every sick cell has it, but nobody believes it. */
#include "reports/diagnose/diagnose_facts.h"

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    (void)facts;
    verdict->confidence = 0.01;
    ab_verdict_say(verdict, "the cell is sick");
    return true;
}

const ab_verdict_rule ab_verdict_rule_added_cause = {
    .id = "added_cause",
    .family = AB_FAMILY_TRAINING,
    .text = "something is wrong",
    .judge = judge,
};
