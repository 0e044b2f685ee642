/* Inputs that are NaN or inf in some samples: one such batch makes every weight non-finite, in any format. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const cJSON *inputs = ab_json_at(c->facts.baseline, "vitals.nonfinite_inputs");
    if (!ab_baseline_fails(c) || ab_json_number(inputs, "batches", 0) <= 0) return false;
    verdict->proof = AB_PROOF_SHOWN;
    verdict->own = true;
    verdict->since = (int)ab_json_number(inputs, "first_step", 0);
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(
        verdict,
        "%.0f batches have inputs that are not finite; in the first, of step %.0f, %.0f of %.0f samples",
        ab_json_number(inputs, "batches", 0), ab_json_number(inputs, "first_step", 0),
        ab_json_number(inputs, "samples", 0), ab_json_number(inputs, "batch", 0));
    ab_verdict_point_baseline(&c->facts, verdict, "/vitals/nonfinite_inputs");
    return true;
}

/* Which sample is the first, by its number in the data; older records do not hold it. */
static void say_sample(const ab_case *c, ab_remedy *remedy) {
    const cJSON *inputs = ab_json_at(c->facts.baseline, "vitals.nonfinite_inputs");
    const double sample = ab_json_number(inputs, "first_sample", -1);
    char data[AB_VERDICT_LAYER];
    ab_text_clean(data, sizeof data, ab_json_text(c->facts.document, "config.data", "the data"));
    if (sample < 0)
        ab_remedy_add_text(remedy, "leave such samples out");
    else
        ab_remedy_add_text(
            remedy, "remove sample %.0f of %s, whose input %.0f is not finite (counted from 0)%s", sample,
            data, ab_json_number(inputs, "first_feature", 0),
            ab_json_number(inputs, "batches", 0) > 1 || ab_json_number(inputs, "samples", 0) > 1
                ? ", and others like it"
                : "");
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (ab_remedy_no_fault(&c->facts, "nan_inputs", remedy))
        (void)ab_remedy_more_steps(&c->facts, remedy);
    else
        say_sample(c, remedy);
}

static bool in_every_sample(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_json_number(c->facts.baseline, "vitals.nonfinite_inputs.features_in_every_sample", 0) > 0;
}

static const ab_refutation refuted_in_every_sample = {"the same inputs are not finite in every sample",
                                                      in_every_sample};

const ab_verdict_rule ab_verdict_rule_nonfinite_data = {
    .id = "nonfinite_data",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_DATA,
    .text = "inputs of some samples are not finite",
    .needs = {&ab_need_o0, &ab_need_vitals},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_o0_finite, &refuted_in_every_sample},
    .judge = judge,
    .remedy = remedy,
};
