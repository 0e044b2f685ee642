/* O0 itself diverges: its losses pass all bounds or rise far above the first one. Then nothing half is to blame. */
#include "reports/diagnose.h"
#include "reports/json.h"

#include <math.h>

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    static const double far_above = 3;
    const ab_loss_facts *o0 = &facts->baseline_loss;
    if (!facts->baseline || !facts->unlearned || !isfinite(o0->first)) return false;
    const bool lost = o0->first_nonfinite > 0, rose = o0->largest > far_above * o0->first;
    if (!lost && !rose) return false;
    verdict->confidence = lost && rose ? 0.85 : 0.75;
    ab_verdict_say(verdict, "O0 fails too: its loss was %.4g at step 0 and reached %.4g", o0->first,
                   o0->largest);
    if (lost) ab_verdict_say(verdict, "O0's loss is no number from step %d on", o0->first_nonfinite);
    snprintf(
        verdict->missing, sizeof verdict->missing,
        "whether the rate or the data is at fault: run O0 with a tenth of --lr %.3g, and look at --normalize",
        ab_json_number(facts->document, "config.lr", 0));
    snprintf(verdict->remedy, sizeof verdict->remedy, "--lr %.3g, or a schedule with warm-up",
             ab_json_number(facts->document, "config.lr", 0) / 10);
    return true;
}

const ab_verdict_rule ab_verdict_rule_learning_rate_too_high = {
    .id = "learning_rate_too_high",
    .family = AB_FAMILY_TRAINING,
    .text = "training diverges in fp32 too: the steps are too large",
    .judge = judge,
};
