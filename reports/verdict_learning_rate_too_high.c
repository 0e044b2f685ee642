/* O0 itself diverges: its losses pass all bounds or rise far above the first one, from a first one that is sound; or it does not learn,
 * and all the while its weights become several times what they were. Then nothing half is to blame. */
#include "reports/diagnose_facts.h"
#include "reports/json.h"
#include "reports/text.h"

#include <math.h>
#include <string.h>

/* The rate at which the first step of O0 would be a hundredth of its weights (norms), or with momentum, which makes ten of one, a
 * thousandth; Adam and its kin step by the rate itself. Where the record does not say, a hundredth of the rate in force. */
static double better_rate(const ab_case *facts, double lr, double *share) {
    static const double least = 1e-12;
    const char *optimizer = ab_json_text(facts->document, "config.optimizer", "");
    const bool own_size = strncmp(optimizer, "adam", 4) == 0 || strcmp(optimizer, "lamb") == 0;
    const double wanted = own_size || strcmp(optimizer, "sgd") == 0 ? 1e-2 : 1e-3;
    const double rms = ab_json_number(facts->baseline, "vitals.initial_weights.rms", 0);
    *share = own_size && rms > 0 ? lr / rms : lr * ab_relative_gradient(facts->baseline);
    return *share > least ? fmin(lr / 10, lr * wanted / *share) : lr / 100;
}

/* How many times as large O0's weights are at the end as at the beginning (root mean squares); NAN where the record does not say. Weights
 * of runs that learn become a few tens of percent larger. */
static double growth(const ab_case *facts) {
    const double first = ab_json_number(facts->baseline, "vitals.initial_weights.rms", 0);
    return first > 0 ? ab_json_number(facts->baseline, "vitals.final_weights.rms", (double)NAN) / first
                     : (double)NAN;
}

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    const ab_loss_facts *o0 = &facts->baseline_loss;
    const double lr = ab_json_number(facts->document, "config.lr", 0);
    static const double far = 3;
    const double times = growth(facts);
    const bool grew = times > far && o0->nonfinite == 0;
    if (!facts->unlearned || !(facts->diverged || grew) || !isfinite(o0->first)) return false;
    const bool lost = o0->nonfinite > 0, rose = o0->largest > 3 * o0->first;
    verdict->confidence = (lost && rose) || grew ? 0.85 : 0.75;
    verdict->since = 1; /* after the first update */
    ab_say_baseline_fails(facts, verdict);
    if (rose)
        ab_verdict_say(verdict, "O0's loss was %.4g at step 0 and reached %.4g", o0->first, o0->largest);
    if (rose) ab_verdict_point_baseline(facts, verdict, "/loss");
    if (grew) {
        ab_verdict_say(verdict,
                       "O0's weights became %.3g times as large (root mean squares), and it learned nothing",
                       times);
        ab_verdict_point_baseline(facts, verdict, "/vitals/final_weights/rms");
    }
    double share;
    const double better = better_rate(facts, lr, &share);
    if (share > 0)
        ab_verdict_say(verdict, "the learning rate is %.3g: the first step is %.2g of the weights (norms)",
                       lr, share);
    else
        ab_verdict_say(verdict, "the learning rate is %.3g", lr);
    snprintf(verdict->missing, sizeof verdict->missing,
             "whether the rate or the data is at fault: run O0 with --lr %.3g, and look at --normalize",
             lr / 10);
    snprintf(verdict->remedy, sizeof verdict->remedy, "--lr %.2g (or less), or a schedule with warm-up",
             better);
    ab_verdict_option(verdict, "--lr", "%.2g", better);
    ab_ask_for_more_steps(facts, verdict);
    return true;
}

const ab_verdict_rule ab_verdict_rule_learning_rate_too_high = {
    .id = "learning_rate_too_high",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_UPDATE,
    .text = "training diverges in fp32 too: the steps are too large",
    .judge = judge,
};
