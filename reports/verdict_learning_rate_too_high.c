/* O0 itself diverges: its losses pass all bounds or rise far above the first one, from a first one that is sound. Then nothing half
 * is to blame. */
#include "reports/diagnose_facts.h"
#include "reports/json.h"
#include "reports/text.h"

#include <math.h>
#include <string.h>

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    const ab_loss_facts *o0 = &facts->baseline_loss;
    const double lr = ab_json_number(facts->document, "config.lr", 0);
    if (!facts->unlearned || !facts->diverged || !isfinite(o0->first)) return false;
    const bool lost = o0->nonfinite > 0, rose = o0->largest > 3 * o0->first;
    verdict->confidence = lost && rose ? 0.85 : 0.75;
    ab_say_baseline_fails(facts, verdict);
    if (rose)
        ab_verdict_say(verdict, "O0's loss was %.4g at step 0 and reached %.4g", o0->first, o0->largest);
    if (rose) ab_verdict_point_baseline(facts, verdict, "/loss");
    ab_verdict_say(verdict, "the learning rate is %.3g", lr);
    snprintf(verdict->missing, sizeof verdict->missing,
             "whether the rate or the data is at fault: run O0 with --lr %.3g, and look at --normalize",
             lr / 10);
    snprintf(verdict->remedy, sizeof verdict->remedy, "--lr %.3g (or less), or a schedule with warm-up",
             lr / 100);
    ab_verdict_option(verdict, "--lr", "%.3g", lr / 100);
    return true;
}

const ab_verdict_rule ab_verdict_rule_learning_rate_too_high = {
    .id = "learning_rate_too_high",
    .family = AB_FAMILY_TRAINING,
    .text = "training diverges in fp32 too: the steps are too large",
    .judge = judge,
};
