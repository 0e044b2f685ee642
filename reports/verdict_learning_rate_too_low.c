/* O0 does not learn because its weights hardly move: all updates of the run together could not change them by a few percent. */
#include "reports/diagnose_facts.h"
#include "reports/json.h"
#include "reports/text.h"

#include <math.h>
#include <string.h>

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    /* usual steps are around 1e-3 of the weights; at 3e-5 one percent takes 300 steps that all point the same way */
    static const double least = 0.005, least_step = 3e-5;
    const double lr = ab_json_number(facts->document, "config.lr", 0),
                 step = ab_relative_update(facts->baseline);
    if (!(step < least_step) || !ab_baseline_is_flat(facts) || facts->diverged ||
        !(step * facts->baseline_loss.steps < least))
        return false;
    const double factor =
        fmin(1e6, 10 * fmax(1, round(0.5 / (step * facts->baseline_loss.steps + 1e-12) / 10)));
    verdict->confidence = 0.8;
    ab_say_baseline_fails(facts, verdict);
    ab_verdict_say(
        verdict,
        "an update is %.2g of the weights (norms, O0): %d of them cannot move the weights by more than "
        "%.2g %%",
        step, facts->baseline_loss.steps, 100 * step * facts->baseline_loss.steps);
    ab_verdict_point_baseline(facts, verdict, "/probes/lost_updates");
    snprintf(verdict->remedy, sizeof verdict->remedy, "--lr %.2g (now %.3g)", lr * factor, lr);
    ab_verdict_option(verdict, "--lr", "%.2g", lr * factor);
    return true;
}

const ab_verdict_rule ab_verdict_rule_learning_rate_too_low = {
    .id = "learning_rate_too_low",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_UPDATE,
    .text = "the weights hardly move: the learning rate is too low",
    .judge = judge,
};
