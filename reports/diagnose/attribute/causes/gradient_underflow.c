/* Gradients too small for the half format at the current scale: the cast flushes them to zero. The criterion
 * is the lost energy (sum of squares), not the number of values: many tiny values may vanish harmlessly. Any
 * of three signs is enough: energy flushed by the cell's own casts; energy that its weight gradients lack at
 * the first step relative to O0's (same weights and batch); energy that O0's gradients would lose at this
 * scale. The last two work even if everything is flushed and nothing is left to count. If the record has
 * gradients of the fp32 reference (same weights and batch), they are compared per element. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/layers.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

typedef struct worst {
    const cJSON *tensor;
    int place;
    double energy, share; /* flushed here */
    double expected;      /* share of O0's energy flushed at this scale */
    int since;            /* the first step that flushed values */
} worst;

/* The gradient of a bias before a norm or a softmax is only fp32 rounding error: the output gradients that it
 * sums cancel. Flushing it loses nothing. */
static bool is_rounding(const ab_case *c, const cJSON *tensor) {
    const char *name = ab_json_text(tensor, "name", ""), *bias = strstr(name, ".bias.grad");
    const cJSON *own = ab_baseline_tensor(&c->facts, tensor), *other;
    if (!bias || !own || strcmp(bias, ".bias.grad") != 0) return false;
    cJSON_ArrayForEach(other, ab_json_at(c->facts.baseline, "probes.tensors")) {
        if (strcmp(ab_json_text(other, "kind", ""), "activation_gradient") != 0 ||
            strcmp(ab_json_text(other, "layer", ""), ab_json_text(tensor, "layer", "-")) != 0)
            continue;
        return ab_json_number(own, "max_abs", 0) <
               c->facts.limits->rounding_only * ab_json_number(other, "max_abs", 0);
    }
    return false;
}

static worst measure(const ab_case *c, const cJSON *tensor, int place) {
    const double nonzero = ab_json_number(tensor, "nonzero", 0),
                 flushed = ab_json_number(tensor, "flushed", 0);
    const double expected = ab_expected_flush(&c->facts, tensor);
    worst w = {tensor, place, 0, 0, expected > 0 ? expected : 0, 0};
    if (!(expected >= c->facts.limits->underflow_energy)) w.since = ab_first_step_with(tensor, "flushed");
    if (nonzero <= 0 || flushed <= 0) return w;
    const double energy = ab_facts_flushed_energy(&c->facts, tensor);
    w.energy = energy > 0 ? energy : 0;
    w.share = flushed / nonzero;
    return w;
}

/* Of two that each lose enough, the one that was flushed at an earlier step: the other may only be read from
 * weights which that one spoilt. Else the one that loses more. */
static bool is_worse(const worst *a, const worst *b, double enough) {
    const double x = fmax(a->energy, a->expected), y = fmax(b->energy, b->expected);
    if (fmin(x, y) >= enough && a->since != b->since && fmin(a->since, b->since) >= 0)
        return a->since < b->since;
    return x > y || (x == y && a->share > b->share);
}

/* The tensor that explains most; of equals the first in the backward pass, since later ones receive zeros. */
static worst find_worst(const ab_case *c) {
    worst w = {NULL, 0, 0, 0, 0, AB_STEP_UNKNOWN};
    const cJSON *tensor;
    int place = -1;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.tensors")) {
        place++;
        if (!ab_json_is_true(tensor, "cast") || is_rounding(c, tensor)) continue;
        const worst here = measure(c, tensor, place);
        if (fmax(here.energy, fmax(here.share, here.expected)) > 0 &&
            (!w.tensor || is_worse(&here, &w, c->facts.limits->underflow_energy)))
            w = here;
    }
    return w;
}

/* Octaves from a tensor's largest gradient to the overflow limit at the current scale: the smaller of this
 * cell's and O0's, because flushing may have reduced this cell's. */
static double margin(const ab_case *c, const cJSON *tensor) {
    const double largest = ab_json_number(ab_baseline_tensor(&c->facts, tensor), "max_abs", 0);
    const double expected =
        log2(ab_format_overflow_limit(c->facts.half) / (largest * c->facts.skip.last_scale));
    return fmin(ab_json_number(tensor, "margin_octaves", (double)INFINITY), expected);
}

/* Octaves by which the scale may rise before the largest recorded gradient overflows, minus one as a reserve.
 */
static double headroom(const ab_case *c) {
    double least = (double)INFINITY;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.tensors")) {
        if (ab_json_is_true(tensor, "cast")) least = fmin(least, margin(c, tensor));
    }
    return isfinite(least) ? floor(least) - 1 : 0;
}

/* The op whose gradients lost the largest share of their energy to zeros relative to the fp32 reference; NULL
 * if none lost `least`. */
static const cJSON *flushed_beside_reference(const ab_case *c, double least, int *place) {
    const cJSON *tensor, *most = NULL;
    int i = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "shadow.tensors")) {
        const double share = ab_json_number(tensor, "flushed_energy_share", 0);
        if (share >= least) {
            least = share;
            most = tensor;
            *place = i;
        }
        i++;
    }
    return most;
}

static void say_reference(const ab_case *c, const cJSON *tensor, int place, ab_verdict *verdict) {
    char share[AB_TEXT_NUMBER];
    ab_verdict_add_evidence(
        verdict, "beside the fp32 reference's, gradients of %s lost %s %% of their energy to zeros",
        ab_text_brief(ab_json_text(tensor, "op", ""), 60),
        ab_text_percent(share, ab_json_number(tensor, "flushed_energy_share", 0)));
    ab_verdict_point(&c->facts, verdict, "/shadow/tensors/%d/flushed_energy_share", place);
}

static void say_evidence(const ab_case *c, const worst *w, double deficit, ab_verdict *verdict) {
    char energy[AB_TEXT_NUMBER], share[AB_TEXT_NUMBER];
    const char *name = ab_json_text(w->tensor, "name", "");
    if (w->share > 0) {
        ab_verdict_add_evidence(
            verdict, "%s %% of the non-zero values of %s are flushed to zero, with about %s %% of its energy",
            ab_text_percent(share, w->share), ab_text_brief(name, 80), ab_text_percent(energy, w->energy));
        ab_verdict_point(&c->facts, verdict, "/probes/tensors/%d/flushed", w->place);
    }
    if (deficit > c->facts.limits->underflow_energy) {
        ab_verdict_add_evidence(
            verdict, "at the first step weight gradients lack %s %% of the energy of O0's of the same batch",
            ab_text_percent(share, deficit));
        ab_verdict_point(&c->facts, verdict, "/probes/tensors");
    }
    if (w->expected > c->facts.limits->underflow_energy) {
        ab_verdict_add_evidence(verdict, "O0's own %s would lose about %s %% of its energy at scale %s",
                                ab_text_brief(name, 80), ab_text_percent(energy, w->expected),
                                ab_text_scale(share, c->facts.skip.last_scale));
        ab_verdict_point(&c->facts, verdict, "/probes/tensors/%d/exponents", w->place);
    }
}

static void say_headroom(const ab_case *c, ab_verdict *verdict) {
    ab_verdict_add_evidence(verdict, "the largest gradients are %.0f octaves below the limit of %s",
                            headroom(c) + 1, c->facts.half->name);
}

static double flushed_share(const cJSON *tensor) {
    return ab_json_number(tensor, "flushed", 0) / ab_json_number(tensor, "nonzero", 1);
}

/* A tensor with half of its values flushed and no normal number left. If the cell is behind by twice the
 * limit, half of the values flushed is enough, or a tenth if no normal number is left. */
static const cJSON *mostly_subnormal_tensor(const ab_case *c, int *place) {
    const bool far_behind = ab_case_far_behind(c);
    const cJSON *tensor;
    int i = -1;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.tensors")) {
        const double largest = ab_json_number(tensor, "max_abs", 0);
        i++;
        if (!ab_json_is_true(tensor, "cast") || !(largest > 0)) continue;
        const bool tiny = largest < ab_format_min_normal(c->facts.half);
        const double share = flushed_share(tensor);
        if (((tiny || far_behind) && share > c->facts.limits->underflow_some_values) ||
            (tiny && far_behind && share > c->facts.limits->underflow_few_values)) {
            *place = i;
            return tensor;
        }
    }
    return NULL;
}

static bool judge_mostly_subnormal(const ab_case *c, ab_verdict *verdict) {
    int place = 0;
    const cJSON *tensor = c->behind && !c->nonfinite ? mostly_subnormal_tensor(c, &place) : NULL;
    char share[AB_TEXT_NUMBER];
    if (!tensor) return false;
    verdict->proof = AB_PROOF_CONSISTENT;
    verdict->since = ab_first_step_with(tensor, "flushed");
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(tensor, "layer", ""));
    ab_verdict_add_evidence(verdict, "%s %% of the non-zero values of %s are flushed to zero",
                            ab_text_percent(share, flushed_share(tensor)),
                            ab_text_brief(ab_json_text(tensor, "name", ""), 80));
    ab_verdict_point(&c->facts, verdict, "/probes/tensors/%d/flushed", place);
    ab_verdict_add_evidence(verdict, "its largest is %.3g; below %.3g %s keeps fewer and fewer bits",
                            ab_json_number(tensor, "max_abs", 0), ab_format_min_normal(c->facts.half),
                            c->facts.half->name);
    ab_verdict_point(&c->facts, verdict, "/probes/tensors/%d/max_abs", place);
    say_headroom(c, verdict);
    return true;
}

/* Casts of gradients to a format of one byte, in operations that were looked at. */
static bool flushed_in_fp8(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_lost(c, "fp8_gradients_flushed", c->facts.limits->underflow_values,
                         "the gradients that are cast to fp8 become 0", verdict);
}

/* A function's own backward() casts gradients to fp16, which makes a share of their energy 0, and no gradient
 * reaches the first layer at any probed step: fp32 beside it has the same function. Where the first layer has
 * gradients, what is lost may be no more than the end of learning.
 */
static bool flushed_by_function(const ab_case *c, ab_verdict *verdict) {
    const cJSON *cell = ab_is_loop(&c->facts) ? c->facts.baseline : NULL;
    if (!cell || !ab_layers_front_is_nothing(cell) ||
        !ab_judge_lost(c, "gradients_flushed", c->facts.limits->underflow_energy,
                       "the energy of gradients becomes 0 as they are cast to fp16", verdict))
        return false;
    const ab_front front = ab_layers_front(cell);
    ab_verdict_add_evidence(verdict, "all %.0f values of the gradient of %s at the probed steps are 0",
                            ab_json_number(front.gradient, "count", 0), ab_text_brief(front.layer, 60));
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/tensors/%d/zero", front.place);
    return true;
}

static bool flushed_by_cast(const ab_case *c, ab_verdict *verdict) {
    return flushed_in_fp8(c, verdict) || flushed_by_function(c, verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (flushed_by_cast(c, verdict)) return true;
    if (!ab_case_fails_alone(c) || !ab_facts_uses_half(&c->facts)) return false;
    const worst w = find_worst(c);
    if (!w.tensor) return false;
    const double deficit = ab_gradient_deficit(&c->facts);
    int place = 0;
    const cJSON *reference = flushed_beside_reference(c, c->facts.limits->underflow_energy, &place);
    const bool proved = w.expected >= c->facts.limits->underflow_energy ||
                        deficit > c->facts.limits->underflow_deficit || reference;
    /* values flushed at the end of a diverging run are not evidence */
    const bool counted = c->behind && (w.energy >= c->facts.limits->underflow_energy ||
                                       w.share >= c->facts.limits->underflow_values);
    if (!proved && !counted) return judge_mostly_subnormal(c, verdict);
    verdict->proof = counted || reference ? AB_PROOF_SHOWN : AB_PROOF_COMPARED;
    verdict->next = c->facts.loss.first_nonfinite == 0; /* the first loss does not depend on gradients */
    verdict->own = w.expected >= c->facts.limits->underflow_energy;
    verdict->since = proved ? 0 : ab_first_step_with(w.tensor, "flushed");
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(w.tensor, "layer", ""));
    say_evidence(c, &w, deficit, verdict);
    if (reference) say_reference(c, reference, place, verdict);
    say_headroom(c, verdict);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    if (!ab_facts_uses_half(&c->facts)) {
        ab_remedy_add_text(remedy, "keep gradients in fp32 there, or scale the loss");
        return;
    }
    const double octaves = headroom(c), scale = ldexp(c->facts.skip.last_scale, (int)octaves);
    if (octaves >= 1 && ab_remedy_higher_scale(&c->facts, scale, remedy)) {
        remedy->with_others = true;
        return;
    }
    if (!ab_remedy_bf16(&c->facts, remedy)) (void)ab_remedy_keep_fp32(&c->facts, verdict->layer, remedy);
    ab_remedy_add_text(remedy, "no higher scale fits under the limit of %s", c->facts.half->name);
}

static bool fails_alike(const ab_case *c, const ab_verdict *verdict) {
    return !ab_is_stated(c, "gradients_flushed") && ab_refuted_o0_fails.holds(c, verdict);
}

static const ab_refutation refuted_fails_alike = {"O0 does not learn either, and this cell is not behind it",
                                                  fails_alike};

static bool unscaled(const ab_case *c, const ab_verdict *verdict) {
    return verdict->proof == AB_PROOF_COMPARED && !verdict->own &&
           ab_times_unscaled(&c->facts) > c->facts.limits->unscaled_times;
}

static const ab_refutation refuted_unscaled = {
    "gradients are unscaled more than once a step, which alone leaves less of them", unscaled};

const ab_verdict_rule ab_verdict_rule_gradient_underflow = {
    .id = "gradient_underflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_BACKWARD,
    .text = "gradients are flushed to zero: the loss scale is too low",
    .needs = {&ab_need_gradients},
    .predicts = AB_SYMPTOM_BEHIND, /* zeros produce no infinities by themselves */
    .refuted_by = {&refuted_fails_alike, &refuted_unscaled},
    .judge = judge,
    .shows = flushed_by_cast,
    .remedy = remedy,
};
