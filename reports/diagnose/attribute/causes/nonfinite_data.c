/* Inputs or targets that are NaN or inf in some samples: one such batch makes every weight non-finite, in any
 * format. In a loop's record also data that a cast to half before the training took beyond its range. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* Which argument or target, as a probe saw it before any layer read it. */
static void say_input(const ab_case *c, ab_verdict *verdict) {
    const ab_bad_input input = ab_loop_bad_input(&c->facts);
    if (!input.known) return;
    ab_verdict_add_evidence(verdict,
                            "%s is not finite in %.0f of %.0f rows before a layer reads it, at step %d",
                            ab_text_brief(input.place, 60), input.rows, input.of, input.first_step);
    ab_verdict_point_document(verdict, "/probe/facts/%d", input.index);
}

/* In a probe's record: what the loss is not finite from was there, or was made, before the training. */
static bool seen_by_loop(const ab_case *c, ab_verdict *verdict) {
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    const bool before = ab_loop_made_data(&c->facts, &first) && !ab_loop_divided_by_spread(&c->facts, &first),
               read = ab_is_loop(&c->facts) && strcmp(first.cause, "poisoned_input") == 0;
    if (!before && !read) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, before ? 0 : first.step);
    ab_say_first_nonfinite(&c->facts, &first, verdict);
    if (before) {
        ab_verdict_add_evidence(verdict,
                                "it ran before the first step: the data are not finite from then on");
        ab_verdict_point_document(verdict, "/probe/facts/%d",
                                  ab_stated_of(&c->facts, "made_before_training").index);
    } else {
        ab_verdict_add_evidence(verdict, "what it read was not finite, and no operation of the step made it");
        ab_verdict_point(&c->facts, verdict, "%s/cause", first.pointer);
    }
    say_input(c, verdict);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (seen_by_loop(c, verdict)) return true;
    const cJSON *inputs = ab_json_at(c->facts.baseline, "vitals.nonfinite_inputs");
    if (!ab_baseline_fails(c) || ab_json_number(inputs, "batches", 0) <= 0) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, (int)ab_json_number(inputs, "first_step", 0));
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

/* Data that a cast to half took beyond its range are finite in O0. */
static bool o0_finite(const ab_case *c, const ab_verdict *verdict) {
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    const bool cast = ab_loop_made_before(&c->facts, &first) && strcmp(first.by, "cast") == 0 &&
                      ab_loop_bad_input(&c->facts).known;
    return c->facts.baseline && ab_refuted_o0_finite.holds(c, verdict) && !cast;
}

static const ab_refutation refuted_o0_finite = {"all of O0's losses are finite", o0_finite};

const ab_verdict_rule ab_verdict_rule_nonfinite_data = {
    .id = "nonfinite_data",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_DATA,
    .text = "inputs of some samples are not finite",
    .needs = {&ab_need_o0, &ab_need_vitals},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_o0_finite, &refuted_in_every_sample},
    .judge = judge,
    .remedy = remedy,
};
