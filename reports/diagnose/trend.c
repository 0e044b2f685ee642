/* What the loss did in the last half of the run, in words. */
#include "reports/diagnose/trend.h"

#include "reports/diagnose/detect/steps.h"
#include "reports/record/json.h"

#include <string.h>

static const char *const trend_names[] = {"falling",
                                          "flat: converged",
                                          "flat: all steps skipped",
                                          "flat: stalled by rounding",
                                          "flat: stalled by flushed gradients",
                                          "learning rate",
                                          "stalled",
                                          "flat: not learned",
                                          "not a number",
                                          "too short to say"};

const char *ab_trend_name(ab_trend trend) { return trend_names[trend]; }

/* It learned, or O0 did, and it is not behind O0 by more than chance. */
static bool has_converged(const ab_case *c) {
    const ab_loss_facts *own = &c->facts.loss;
    if (!c->facts.baseline) return own->final < c->facts.limits->learned_share * own->first;
    return !c->unlearned && !(c->facts.gap > c->gap_chance);
}

static ab_trend flat_because(const ab_case *c, const char *cause) {
    static const struct {
        const char *id;
        ab_trend trend;
    } known[] = {{"weight_update_lost", AB_TREND_ROUNDING},
                 {"ema_in_half", AB_TREND_CONVERGED},
                 {"gradient_underflow", AB_TREND_FLUSHED},
                 {"learning_rate_too_low", AB_TREND_RATE},
                 {"learning_rate_too_high", AB_TREND_RATE}};
    if (!cause) return c->sick ? AB_TREND_UNLEARNED : AB_TREND_CONVERGED;
    for (size_t i = 0; i < AB_COUNT_OF(known); i++)
        if (strcmp(cause, known[i].id) == 0) return known[i].trend;
    return AB_TREND_STALLED;
}

ab_trend ab_trend_of(const ab_case *c, const char *cause) {
    if (c->facts.loss.nonfinite > 0) return AB_TREND_NONFINITE;
    if (c->facts.loss.steps < 8 || !ab_json_at(c->facts.cell, "loss")) return AB_TREND_SHORT;
    if (c->facts.skip.skipped == c->facts.loss.steps) return AB_TREND_SKIPPED;
    if (ab_loss_falls(c)) return AB_TREND_FALLING;
    if (c->undecided) return AB_TREND_UNLEARNED;
    const ab_trend flat = flat_because(c, cause);
    return flat == AB_TREND_CONVERGED && !has_converged(c) ? AB_TREND_STALLED : flat;
}
