/* Outputs grow from layer to layer at the first step, in O0 too: initial weights are too large. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The first op whose output is more than `far` times as large as the first op's, if the last one is too; else
 * NULL. *growth: the largest ratio. */
static const cJSON *first_above(const cJSON *cell, double far, int *place, double *growth) {
    const cJSON *list = ab_json_at(cell, "probes.signals"), *op, *found = NULL;
    const double start = ab_json_number(cJSON_GetArrayItem(list, 0), "rms_first", 0);
    double last = 0;
    int i = 0;
    cJSON_ArrayForEach(op, list) {
        const double ratio = start > 0 ? ab_json_number(op, "rms_first", 0) / start : 0;
        if (!found && ratio > far) {
            found = op;
            *place = i;
        }
        *growth = fmax(*growth, ratio);
        if (ratio > 0) last = ratio;
        i++;
    }
    return last > far ? found : NULL;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const double far = c->facts.limits->exploding;
    const double uniform = ab_loss_of_uniform(&c->facts), first_loss = c->facts.baseline_loss.first;
    int place = 0;
    double growth = 0;
    const cJSON *op = first_above(c->facts.baseline, far, &place, &growth);
    if (!ab_baseline_fails(c) || !op) return false;
    /* a norm may take growth back; with a first loss far above that of knowing nothing it did not */
    verdict->proof = isfinite(uniform) && first_loss > far * uniform ? AB_PROOF_SHOWN : AB_PROOF_COMPARED;
    verdict->own = true;
    verdict->since = 0;
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(op, "op", ""));
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(verdict,
                            "at the first step the output of %s is %.3g times as large as the first op's",
                            ab_text_brief(verdict->layer, 60), growth);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/signals/%d/rms_first", place);
    if (isfinite(uniform))
        ab_verdict_add_evidence(verdict, "the first loss is %.4g; that of knowing nothing is %.3g",
                                first_loss, uniform);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(
        remedy, "smaller initial weights (\"init\" in the network's file), or norms between the layers");
}

const ab_verdict_rule ab_verdict_rule_exploding_signal = {
    .id = "exploding_signal",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_WEIGHTS,
    .text = "the signal grows from layer to layer: initial weights are too large",
    .needs = {&ab_need_o0, &ab_need_signals},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_o0_learns},
    .judge = judge,
    .remedy = remedy,
};
