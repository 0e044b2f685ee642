/* A cause as a newcomer would add it: every sick cell has it, but nobody believes it. */
#include "reports/diagnose/attribute/verdict.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    (void)c;
    verdict->proof = AB_PROOF_CONSISTENT;
    ab_verdict_add_evidence(verdict, "the cell is sick");
    return true;
}

const ab_verdict_rule ab_verdict_rule_added_cause = {
    .id = "added_cause",
    .family = AB_FAMILY_TRAINING,
    .text = "something is wrong",
    .judge = judge,
};
