/* A weight that is NaN or inf before the first step, in fp32 too. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const cJSON *weights = ab_json_at(c->facts.baseline, "vitals.initial_weights");
    const double bad = ab_json_number(weights, "nonfinite", 0);
    if (!ab_baseline_fails(c) || bad <= 0) return false;
    const char *name = ab_json_text(weights, "nonfinite_name", ""), *dot = strrchr(name, '.');
    char layer[AB_VERDICT_LAYER];
    ab_text_show(layer, sizeof layer, "%.*s", dot ? (int)(dot - name) : (int)strlen(name), name);
    ab_text_clean(verdict->layer, sizeof verdict->layer, layer);
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(verdict, "%.0f initial weights are not finite in fp32, the first in %s", bad,
                            ab_text_brief(name, 60));
    ab_verdict_point_baseline(&c->facts, verdict, "/vitals/initial_weights/nonfinite");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    if (ab_remedy_no_fault(&c->facts, "nan_initial_weight", remedy))
        (void)ab_remedy_more_steps(&c->facts, remedy);
    else
        ab_remedy_add_text(remedy, "another --init file, or other initial values of %s",
                           verdict->layer[0] ? verdict->layer : "the weights");
}

const ab_verdict_rule ab_verdict_rule_nonfinite_initial_weight = {
    .id = "nonfinite_initial_weight",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_WEIGHTS,
    .text = "an initial weight is not finite",
    .needs = {&ab_need_o0, &ab_need_vitals},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_o0_finite},
    .judge = judge,
    .remedy = remedy,
};
