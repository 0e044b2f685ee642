/* The same inputs are non-finite in every sample: they are constant and were divided by their spread of 0. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

/* In a probe's record: a division by a spread before the training began made what the loss is not finite
 * from. */
static bool seen_by_loop(const ab_case *c, ab_verdict *verdict) {
    const ab_stated made = ab_stated_of(&c->facts, "made_before_training");
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    if (!ab_loop_divided_by_spread(&c->facts, &first)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_say_first_nonfinite(&c->facts, &first, verdict);
    ab_verdict_add_evidence(verdict, "it ran before the first step: the data are not finite from then on");
    ab_verdict_point_document(verdict, "/probe/facts/%d", made.index);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (seen_by_loop(c, verdict)) return true;
    const cJSON *inputs = ab_json_at(c->facts.baseline, "vitals.nonfinite_inputs");
    const double common = ab_json_number(inputs, "features_in_every_sample", 0);
    if (!ab_baseline_fails(c) || common <= 0) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, (int)ab_json_number(inputs, "first_step", 0));
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(
        verdict,
        "%.0f inputs are not finite in every sample of the batch of step %.0f, %.0f in any: a division by "
        "a spread of 0, not a few bad samples",
        common, ab_json_number(inputs, "first_step", 0), ab_json_number(inputs, "features", 0));
    ab_verdict_point_baseline(&c->facts, verdict, "/vitals/nonfinite_inputs/features_in_every_sample");
    return true;
}

/* Which input is the first; older records do not hold it. */
static void say_input(const ab_case *c, ab_remedy *remedy) {
    const cJSON *inputs = ab_json_at(c->facts.baseline, "vitals.nonfinite_inputs");
    const double first = ab_json_number(inputs, "first_feature_in_every_sample", -1);
    ab_remedy_add_text(remedy, "divide by max(spread, epsilon), or leave such inputs out");
    if (first >= 0)
        ab_remedy_add_text(remedy, "the first is input %.0f of every sample (counted from 0)", first);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (ab_remedy_no_fault(&c->facts, "normalize_by_zero", remedy))
        (void)ab_remedy_more_steps(&c->facts, remedy);
    else
        say_input(c, remedy);
}

static bool o0_finite(const ab_case *c, const ab_verdict *verdict) {
    return c->facts.baseline && ab_refuted_o0_finite.holds(c, verdict);
}

static const ab_refutation refuted_o0_finite = {"all of O0's losses are finite", o0_finite};

const ab_verdict_rule ab_verdict_rule_data_normalization_division_by_zero = {
    .id = "data_normalization_division_by_zero",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_DATA,
    .text = "inputs that never change were divided by their spread of 0",
    .needs = {&ab_need_o0, &ab_need_vitals},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_o0_finite},
    .judge = judge,
    .remedy = remedy,
};
