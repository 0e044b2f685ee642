/* A formula without a finite value at its input: the logarithm or root of 0, 0/0. Fails in fp32 as in any
 * format. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* Inputs or initial weights were already non-finite. */
static bool has_nonfinite_start(const cJSON *cell) {
    return ab_json_number(cell, "vitals.nonfinite_inputs.batches", 0) > 0 ||
           ab_json_number(cell, "vitals.initial_weights.nonfinite", 0) > 0;
}

/* The losses rose before they became non-finite: training diverged first. */
static bool grew(const ab_case *c) {
    const ab_loss_facts *loss = &c->facts.baseline_loss;
    return loss->first_nonfinite > 0 && loss->largest > c->facts.limits->far_above * loss->first;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    ab_first_nonfinite first;
    if (!c->facts.baseline || c->facts.baseline_loss.nonfinite == 0 || has_nonfinite_start(c->facts.baseline))
        return false;
    first = ab_first_nonfinite_of(c->facts.baseline, "fp32", false);
    if (!first.known || strcmp(first.pass, "update") == 0) return false;
    const bool proved = strcmp(first.cause, "mathematics") == 0;
    const bool singular = ab_first_traits(&c->facts, &first) & (AB_TRAITS_OF_ZERO | AB_TRAIT_softmax);
    if (!proved && (!singular || grew(c))) return false;
    if (proved && grew(c) && !singular) return false;
    verdict->confidence = proved ? 0.93 : 0.85;
    ab_say_baseline_fails(c, verdict);
    ab_say_first_nonfinite(&c->facts, &first, verdict);
    ab_verdict_point_baseline(&c->facts, verdict, "%s", first.pointer);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    ab_remedy_say(remedy,
                  "change the formula of %s in the network: add an epsilon, or use the fused form "
                  "(log_softmax, cross_entropy, layer_norm)",
                  ab_text_brief(verdict->layer, 60));
}

const ab_verdict_rule ab_verdict_rule_math_singularity = {
    .id = "math_singularity",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_FORWARD,
    .text = "a formula has no finite value, in any format",
    .judge = judge,
    .remedy = remedy,
};
