/* A formula without a finite value at its input: the logarithm or root of 0, 0/0. Fails in fp32 as in any
 * format. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/overflow.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* Its cause: computed again in double it has no finite value, or the op has none at 0. */
typedef struct origin {
    ab_first_nonfinite first;
    bool proved, singular, beyond; /* beyond: an exponential whose value is beyond fp32's range */
} origin;

static origin origin_of(const ab_case *c) {
    origin o = {.first = ab_first_nonfinite_of(c->facts.baseline, "fp32", false)};
    if (!o.first.known || strcmp(o.first.pass, "update") == 0) return o;
    o.proved = strcmp(o.first.cause, "mathematics") == 0;
    const ab_traits t = ab_first_traits(&c->facts, &o.first);
    o.singular = t & (AB_TRAITS_OF_ZERO | AB_TRAIT_softmax);
    o.beyond = t & AB_TRAIT_exponential && ab_first_is_beyond_fp32(&o.first);
    return o;
}

/* The value that it has none at, where a probe saw it. */
static void say_input(const ab_case *c, ab_verdict *verdict) {
    const cJSON *at = ab_loop_stated_at(&c->facts, "singular_at", verdict->layer);
    if (at)
        ab_verdict_add_evidence(verdict, "what it read there is %.4g",
                                ab_json_number(at, "first", (double)NAN));
}

/* Rounding to half put the input where the formula has no value; fp32 has another input there. */
static bool judge_half(const ab_case *c, ab_verdict *verdict) {
    if (!ab_judge_overflow(c, AB_OVERFLOW_FORMULA, verdict)) return false;
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    if (ab_first_is_beyond_fp32(&first))
        ab_verdict_add_evidence(verdict, "in double it is %.3g: fp32 does not hold that either", first.value);
    else
        ab_verdict_add_evidence(verdict,
                                "at these inputs it has no finite value in double either, and in fp32 "
                                "they are others: rounding to %s made them so",
                                c->facts.half->name);
    say_input(c, verdict);
    return true;
}

/* The event of a cause in the record of a cell; NULL: none. */
static const cJSON *event_of(const cJSON *cell, const char *cause, int *place) {
    const cJSON *event;
    *place = -1;
    cJSON_ArrayForEach(event, ab_json_at(cell, "probes.origin.events")) {
        ++*place;
        if (strcmp(ab_json_text(event, "cause.id", ""), cause) == 0) return event;
    }
    return NULL;
}

static void say_formula(const cJSON *formula, ab_verdict *verdict) {
    ab_verdict_own(verdict, AB_PROOF_SHOWN, (int)ab_json_number(formula, "step", 0));
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(formula, "op", ""));
    ab_verdict_add_evidence(verdict,
                            "%s has no finite value or derivative at its input: step %d, %s pass; in double "
                            "neither",
                            ab_text_brief(verdict->layer, 60), verdict->since,
                            ab_json_text(formula, "pass", "")[0] == 'b' ? "backward" : "forward");
}

/* A scaler skips step after step because of a gradient that has no value. The losses are finite. */
static bool stops_steps(const ab_case *c, ab_verdict *verdict) {
    const ab_skip_facts *skip = &c->facts.skip;
    int made;
    const cJSON *formula = event_of(c->facts.cell, "mathematics", &made);
    if (!ab_is_loop(&c->facts) || !formula || !c->skipping || c->nonfinite ||
        strcmp(ab_json_text(formula, "pass", ""), "backward") != 0)
        return false;
    say_formula(formula, verdict);
    ab_verdict_point(&c->facts, verdict, "/probes/origin/events/%d", made);
    say_input(c, verdict);
    ab_verdict_add_evidence(verdict, "%d of the last %d steps were skipped, at any scale, with finite losses",
                            skip->late, skip->late_steps);
    ab_verdict_point(&c->facts, verdict, "/skipped_steps");
    return true;
}

/* It made a gradient NaN, and with it the weights that a later step reads. Nothing of it is in the losses:
 * they were made of a branch that was not taken, and a mask hides what the weights became. */
static bool spoils_weights(const ab_case *c, ab_verdict *verdict) {
    int made, read;
    const cJSON *formula = event_of(c->facts.baseline, "mathematics", &made),
                *weights = event_of(c->facts.baseline, "bad_weights", &read);
    if (!ab_is_loop(&c->facts) || !formula || !weights || read < made) return false;
    say_formula(formula, verdict);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/origin/events/%d", made);
    say_input(c, verdict);
    ab_verdict_add_evidence(verdict, "the weights of %s are not finite from step %.0f on",
                            ab_text_brief(ab_json_text(weights, "op", ""), 60),
                            ab_json_number(weights, "step", 0));
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/origin/events/%d", read);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (judge_half(c, verdict) || spoils_weights(c, verdict) || stops_steps(c, verdict)) return true;
    if (!c->facts.baseline || c->facts.baseline_loss.nonfinite == 0) return false;
    const origin o = origin_of(c);
    if (!o.proved && !o.singular && !o.beyond) return false;
    ab_verdict_own(verdict, o.proved || o.beyond ? AB_PROOF_SHOWN : AB_PROOF_COMPARED, o.first.step);
    ab_say_baseline_fails(c, verdict);
    ab_say_first_nonfinite(&c->facts, &o.first, verdict);
    ab_verdict_point_baseline(&c->facts, verdict, "%s", o.first.pointer);
    if (o.beyond)
        ab_verdict_add_evidence(verdict, "in double it is %.3g: fp32 does not hold that", o.first.value);
    say_input(c, verdict);
    return true;
}

/* What grows beyond any format may reach a formula without a value on its way, but a formula whose value at
 * its inputs is not finite in double has none. */
static bool diverged(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    const origin o = origin_of(c);
    return ab_baseline_jumps(c) && !(o.proved && o.singular);
}

static const ab_refutation refuted_diverged = {"O0's losses had risen to several times the first before",
                                               diverged};

/* Data that were prepared before the training have causes of their own, if they are not finite in fp32 too;
 * but what was divided by a number that is no spread of data is a formula: the degree of a node without
 * neighbours; unless only some samples have it.
 */
static bool in_data(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    if (c->facts.baseline && c->facts.baseline_loss.nonfinite == 0) return false;
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    return ab_loop_made_data(&c->facts, &first);
}

static bool is_mask(const ab_case *c, const ab_verdict *verdict) {
    const ab_stated rows = ab_stated_of(&c->facts, "masked_rows");
    return rows.known && strcmp(rows.place, verdict->layer) == 0;
}

static const ab_refutation refuted_in_data = {"it ran before the training: the data are not finite", in_data},
                           refuted_is_mask = {"its rows have nothing but the -inf of a mask", is_mask};

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    ab_remedy_add_text(remedy,
                       "change the formula of %s in the network: add an epsilon, or use the fused form "
                       "(log_softmax, cross_entropy, layer_norm)",
                       ab_text_brief(verdict->layer, 60));
}

const ab_verdict_rule ab_verdict_rule_math_singularity = {
    .id = "math_singularity",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_FORWARD,
    .text = "a formula has no finite value at its input, in any format",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_bad_start, &refuted_diverged, &refuted_in_data, &refuted_is_mask},
    .judge = judge,
    .shows = spoils_weights,
    .remedy = remedy,
};
