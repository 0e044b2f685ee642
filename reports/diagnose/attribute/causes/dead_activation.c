/* A relu whose output is 0 for every sample of a batch, in O0: no signal and no gradient passes. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/layers.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* A function that is no module, as F.relu: its outputs are not shown, but both layers beside it are. */
static bool between_layers(const ab_case *c, ab_verdict *verdict) {
    const ab_silence s = ab_layers_silence(c->facts.baseline);
    if (!s.before) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, s.before);
    ab_verdict_add_evidence(verdict,
                            "all %.0f values of the weight gradient of %s at the probed steps of O0 are 0, "
                            "those of its bias are not: all that it reads is 0, while outputs of %s are not",
                            s.count, ab_text_brief(s.behind, 60), ab_text_brief(verdict->layer, 60));
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/tensors/%d/zero", s.place);
    return true;
}

/* In a probe's record of a loop, whatever its loss does: a bias behind the relu may learn a constant. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    int place = 0;
    const bool loop = ab_is_loop(&c->facts) && c->facts.baseline && c->facts.baseline_loss.nonfinite == 0;
    const cJSON *dead = loop ? ab_loop_silent_relu(&c->facts, &place) : NULL;
    if (!dead) return loop && between_layers(c, verdict);
    verdict->proof = AB_PROOF_SHOWN;
    verdict->since = 0;
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(dead, "layer", ""));
    ab_verdict_add_evidence(verdict, "all %.0f outputs of %s at the probed steps of O0 are 0",
                            ab_json_number(dead, "count", 0), ab_text_brief(verdict->layer, 60));
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/activations/%d/zero", place);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (shows(c, verdict)) return true;
    const double most = c->facts.limits->dead_units;
    int place = 0;
    const cJSON *dead = ab_silent_relu(&c->facts, most, &place);
    if (!ab_baseline_is_flat(c) || !dead) return false;
    const double first = ab_json_number(dead, "silent_first", 0),
                 last = ab_json_number(dead, "silent_last", 0);
    char then[AB_TEXT_NUMBER], now[AB_TEXT_NUMBER];
    verdict->proof = AB_PROOF_SHOWN;
    verdict->since = first > most ? 0 : 1; /* died in training, after the first update: the rate may be why */
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(dead, "op", ""));
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(
        verdict, "%s %% of the units of %s are 0 for a whole batch in O0 (%s %% at the first step)",
        ab_text_percent(now, last), ab_text_brief(verdict->layer, 60), ab_text_percent(then, first));
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/signals/%d/silent_last", place);
    return true;
}

static bool learns(const ab_case *c, const ab_verdict *verdict) {
    return !ab_is_loop(&c->facts) && ab_refuted_o0_learns.holds(c, verdict);
}

static const ab_refutation refuted_learns = {"O0 learns", learns};

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    int place = 0;
    const double most = c->facts.limits->dead_units;
    (void)verdict;
    if (ab_is_loop(&c->facts) ||
        ab_json_number(ab_silent_relu(&c->facts, most, &place), "silent_first", 0) > most) {
        ab_remedy_add_text(remedy,
                           "look at what shifts its inputs (biases, constants, --normalize), or use a leaky "
                           "function");
        return;
    }
    (void)ab_remedy_rate(&c->facts, ab_json_number(c->facts.document, "config.lr", 0) / 10, remedy);
    ab_remedy_add_text(remedy, "large steps silenced it; or a leaky function");
}

const ab_verdict_rule ab_verdict_rule_dead_activation = {
    .id = "dead_activation",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_FORWARD,
    .text = "a relu is silent for every sample: nothing gets through",
    .needs = {&ab_need_o0, &ab_need_signals},
    .predicts = AB_SYMPTOM_BASELINE,
    .refuted_by = {&refuted_learns},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
