/* A loss scale so high that scaled gradients exceed the half format's largest number: a fixed one, where
 * infinities reach the weights unchecked; or a dynamic one at a minimum that is too high, which keeps
 * skipping. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* Number of a gradient's values that the cast made infinite or that were infinite before. */
static double beyond(const cJSON *tensor) {
    return ab_json_number(tensor, "overflowed", 0) + ab_json_number(tensor, "inf", 0);
}

/* Activation gradients are recorded in the order of the backward pass: the first one with a value out of
 * range is where the overflow happened. */
static const cJSON *first_overflow(const ab_case *c, const char *kind, int *place) {
    const cJSON *tensor;
    *place = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.tensors")) {
        if (ab_json_is_true(tensor, "cast") && strcmp(ab_json_text(tensor, "kind", ""), kind) == 0 &&
            beyond(tensor) > 0)
            return tensor;
        ++*place;
    }
    return NULL;
}

/* The scale rose after the search for the first one: it came down, by itself, from where gradients fit. */
static bool rises_late(const ab_case *c) {
    const cJSON *run;
    double scale = (double)INFINITY;
    double step = 0;
    cJSON_ArrayForEach(run, ab_json_at(c->facts.cell, "scale")) {
        const double here = cJSON_GetNumberValue(cJSON_GetArrayItem(run, 0));
        if (step >= c->facts.skip.late_from && here > scale) return true;
        scale = here;
        step += cJSON_GetNumberValue(cJSON_GetArrayItem(run, 1));
    }
    return false;
}

/* The scaler is at its minimum: more than `share` of the steps overflow at its last scale with finite losses,
 * and the scale does not fall, or by less than an octave in a run that skips nearly all its steps. (The
 * minimum may be above the first scale: then the first overflow raises it.) A short window that keeps raising
 * the scale is not meant. */
static bool at_its_floor(const ab_case *c, double share) {
    if (rises_late(c)) return false;
    const double nearly_all = c->facts.limits->floor_skips;
    const ab_skip_facts *skip = &c->facts.skip;
    const bool all = skip->late > nearly_all * skip->late_steps && ab_facts_at_floor(&c->facts);
    const bool many = !ab_facts_short_window(&c->facts) &&
                      ab_facts_skipped_at_last_scale(&c->facts) > share * skip->late_steps;
    const bool creeps =
        skip->late > nearly_all * skip->late_steps && skip->last_scale > skip->first_scale / 2;
    return skip->dynamic && skip->late > share * skip->late_steps &&
           skip->loss_finite > nearly_all * skip->skipped && (all || many || creeps);
}

/* The first non-finite value was produced in the backward pass and would be finite without the scale, as far
 * as known. */
static bool made_by_scale(const ab_case *c, ab_first_nonfinite *first) {
    *first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, c->facts.skip.dynamic);
    return first->known && strcmp(first->pass, "backward") == 0 &&
           (strcmp(first->cause, "scale_induced") == 0 || strcmp(first->cause, "cannot_tell") == 0);
}

static void say_overflow(const ab_case *c, const cJSON *tensor, int place, ab_verdict *verdict) {
    char scale[AB_TEXT_NUMBER];
    ab_verdict_add_evidence(verdict, "%.0f of %.0f values of %s are beyond %s at the %s scale %s",
                            beyond(tensor), ab_json_number(tensor, "count", 0),
                            ab_text_brief(ab_json_text(tensor, "name", ""), 80), c->facts.half->name,
                            c->facts.skip.dynamic ? "last" : "fixed",
                            ab_text_scale(scale, c->facts.skip.last_scale));
    ab_verdict_point(&c->facts, verdict, "/probes/tensors/%d/overflowed", place);
}

/* True if O0's largest value of any gradient of the layer, times the scale, is near the limit. */
static bool near_in_baseline(const ab_case *c, const ab_first_nonfinite *first, double scale) {
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.baseline, "probes.tensors")) {
        if (strcmp(ab_json_text(tensor, "layer", ""), first->op) == 0 &&
            ab_expected_overflow(&c->facts, tensor, scale))
            return true;
    }
    return false;
}

/* Fills evidence and layer from the first tensor that overflowed, else from the origin probe: the probed
 * steps may all be after the overflow. */
static bool find_overflow(const ab_case *c, ab_verdict *verdict) {
    int place;
    ab_first_nonfinite first;
    const double scale = c->facts.skip.last_scale; /* a fixed one has no other */
    const cJSON *tensor = first_overflow(c, "activation_gradient", &place);
    if (!tensor) tensor = first_overflow(c, "weight_gradient", &place);
    const bool proved = made_by_scale(c, &first);
    if (!tensor && !proved) return false;
    verdict->since = proved ? first.step : ab_first_step_with(tensor, "overflowed");
    if (verdict->since == AB_STEP_UNKNOWN) verdict->since = c->facts.loss.first_nonfinite;
    verdict->own =
        tensor ? ab_expected_overflow(&c->facts, tensor, scale) : near_in_baseline(c, &first, scale);
    if (tensor) say_overflow(c, tensor, place, verdict);
    if (proved) ab_say_first_nonfinite(&c->facts, &first, verdict);
    if (tensor) ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(tensor, "layer", ""));
    return true;
}

/* For runs where no probed step overflowed. */
static void say_floor(const ab_case *c, ab_verdict *verdict) {
    const ab_skip_facts *skip = &c->facts.skip;
    char scale[AB_TEXT_NUMBER];
    verdict->since = (int)ab_json_number(c->facts.cell, "first_skipped_step", AB_STEP_UNKNOWN);
    ab_verdict_add_evidence(verdict,
                            "%d of the last %d steps were skipped, at scale %s at last, and it does not fall",
                            skip->late, skip->late_steps, ab_text_scale(scale, skip->last_scale));
    ab_verdict_point(&c->facts, verdict, "/skipped_steps");
    ab_text_show(verdict->missing, sizeof verdict->missing,
                 "which gradients overflow: no probed step did; run with --probe-every 1");
}

static bool find(const ab_case *c, double share, ab_verdict *verdict) {
    if ((c->facts.skip.dynamic && !at_its_floor(c, share)) || !ab_facts_uses_half(&c->facts)) return false;
    if (c->unlearned && !c->nonfinite) return false;
    const bool seen = find_overflow(c, verdict);
    if (!c->facts.skip.dynamic &&
        !(seen && (c->facts.skip.first_scale > 1 || (verdict->own && !c->unlearned))))
        return false;
    if (!seen) say_floor(c, verdict);
    verdict->proof = c->nonfinite || c->facts.skip.dynamic ? AB_PROOF_SHOWN : AB_PROOF_CONSISTENT;
    if (c->facts.loss.first_nonfinite >= 0) {
        ab_verdict_add_evidence(
            verdict, "the first loss that is NaN or inf is that of step %d; the loss of step 0 was %.4g",
            c->facts.loss.first_nonfinite, c->facts.loss.first);
        ab_verdict_point(&c->facts, verdict, "/loss/%d", c->facts.loss.first_nonfinite);
    }
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return find(c, c->behind ? c->facts.limits->scale_skips_behind : c->facts.limits->scale_skips, verdict);
}

/* Fewer skips, but they continue as the scale does not change. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    return c->facts.skip.dynamic && find(c, c->facts.limits->scale_skips_behind, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_checked_scale(&c->facts, remedy))
        ab_remedy_add_text(remedy, "a scaler whose scale may fall further");
}

/* The backward pass has no finite value at any scale. */
static bool has_no_value(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    return first.known && strcmp(first.cause, "mathematics") == 0;
}

static const ab_refutation refuted_no_value = {"the backward pass has no finite value at any scale",
                                               has_no_value};

const ab_verdict_rule ab_verdict_rule_scale_too_high = {
    .id = "scale_too_high",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_BACKWARD,
    .text = "the loss scale is so high that gradients overflow",
    .needs = {&ab_need_gradients},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_first_loss, &refuted_no_value},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
