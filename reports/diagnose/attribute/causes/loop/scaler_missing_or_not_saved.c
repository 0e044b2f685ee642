/* fp16 without a loss scaler, or with one that a resumed run did not get back. Without one, small gradients
 * are flushed (gradient_underflow, where an fp32 run shows that it matters; here the loop itself is the
 * mistake). A scaler that was not saved begins at its first scale again and skips until it has found the old
 * one: a saved one would skip one step at most. One that is made anew in every epoch never finds it. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/log_facts.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* ---- no scaler ------------------------------------------------------------------------------- */

/* The cast gradient that loses the largest share of its energy. */
static const cJSON *most_flushed(const ab_case *c, double *share, int *place) {
    const cJSON *tensor, *most = NULL;
    int i = -1;
    *share = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.tensors")) {
        i++;
        const double here = ab_json_is_true(tensor, "cast") ? ab_facts_flushed_energy(&c->facts, tensor) : 0;
        if (!(here > *share)) continue;
        *share = here;
        *place = i;
        most = tensor;
    }
    return most;
}

/* The first gradient of the backward pass, if no value of it is a normal number: all are zero or lost bits.
 */
static const cJSON *not_normal(const ab_case *c, int *place) {
    const cJSON *tensor;
    *place = -1;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.tensors")) {
        ++*place;
        if (strcmp(ab_json_text(tensor, "kind", ""), "activation_gradient") != 0) continue;
        const bool stored = strcmp(ab_json_text(tensor, "stored", ""), c->facts.half->name) == 0;
        const double finite = ab_json_number(tensor, "zero", 0) + ab_json_number(tensor, "nonzero", 0);
        return stored && finite > 0 &&
                       ab_json_number(tensor, "max_abs", 0) < ab_format_min_normal(c->facts.half)
                   ? tensor
                   : NULL;
    }
    return NULL;
}

static void say_flushed(const ab_case *c, const cJSON *tensor, double share, int place, ab_verdict *verdict) {
    char text[AB_TEXT_NUMBER];
    verdict->since = ab_first_step_with(tensor, "flushed");
    ab_verdict_add_evidence(verdict, "%s lost %s %% of its energy to zeros",
                            ab_text_brief(ab_json_text(tensor, "name", ""), 80),
                            ab_text_percent(text, share));
    ab_verdict_point(&c->facts, verdict, "/probes/tensors/%d/flushed", place);
}

static void say_not_normal(const ab_case *c, const cJSON *tensor, int place, ab_verdict *verdict) {
    char text[AB_TEXT_NUMBER];
    const double zero = ab_json_number(tensor, "zero", 0), nonzero = ab_json_number(tensor, "nonzero", 0);
    verdict->since = 0;
    ab_verdict_add_evidence(
        verdict, "%s %% of the values of %s are zero, the largest is %.3g: none is a normal number of %s",
        ab_text_percent(text, zero / (zero + nonzero)), ab_text_brief(ab_json_text(tensor, "name", ""), 80),
        ab_json_number(tensor, "max_abs", 0), c->facts.half->name);
    ab_verdict_point(&c->facts, verdict, "/probes/tensors/%d/zero", place);
}

static bool has_none(const ab_case *c, ab_verdict *verdict) {
    double share;
    int place = 0, first = 0;
    if (!ab_need_loop.there(c) || ab_loop_number(&c->facts, "steps_with_scale") > 0 ||
        !ab_facts_uses_half(&c->facts) ||
        ab_format_flush_limit(c->facts.half) <= c->facts.limits->few_binades)
        return false;
    const cJSON *lost = most_flushed(c, &share, &place), *small = not_normal(c, &first);
    const bool flushed = lost && share >= c->facts.limits->underflow_energy;
    if (!flushed && !small) return false;
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(flushed ? lost : small, "layer", ""));
    ab_verdict_add_evidence(verdict, "layers run in %s, and no step had a loss scale", c->facts.half->name);
    ab_verdict_point_document(verdict, "/probe/groups/0/steps_with_scale");
    if (flushed) say_flushed(c, lost, share, place, verdict);
    if (small) say_not_normal(c, small, first, verdict);
    return true;
}

/* ---- not saved ------------------------------------------------------------------------------- */

/* Skipped steps at the beginning, one after the other. */
static int skipped_at_first(const ab_case *c) {
    const cJSON *skipped;
    int count = 0;
    cJSON_ArrayForEach(skipped, ab_json_at(c->facts.cell, "skipped_steps")) {
        if ((int)skipped->valuedouble != count) break;
        count++;
    }
    return count;
}

static bool was_reset_in_log(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    char from[AB_TEXT_NUMBER], to[AB_TEXT_NUMBER];
    if (!(v.resets > 0)) return false;
    ab_verdict_add_evidence(
        verdict,
        "at a resume, in line %d, the scale jumped from %s to %s, the first of the log; %.0f times "
        "in all",
        ab_log_line_of(&v, "reset_line"), ab_text_scale(from, v.reset_from), ab_text_scale(to, v.reset_to),
        v.resets);
    ab_verdict_point_log(verdict, "resets");
    return true;
}

static bool was_not_saved(const ab_case *c, ab_verdict *verdict) {
    const ab_stated before = ab_stated_of(&c->facts, "resumed_steps"),
                    loaded = ab_stated_of(&c->facts, "loaded_scale");
    const int skipped = skipped_at_first(c);
    char scale[AB_TEXT_NUMBER];
    if (!before.known || !(before.largest > 0) || !c->facts.skip.dynamic ||
        !(skipped > c->facts.limits->spare_skips))
        return false;
    if (loaded.known && loaded.last == c->facts.skip.first_scale) return false; /* it came back */
    verdict->since = 0;
    ab_verdict_add_evidence(verdict,
                            "the optimizer had made %.0f steps before, and the loss scale begins at %s",
                            before.largest, ab_text_scale(scale, c->facts.skip.first_scale));
    ab_verdict_point_document(verdict, "/probe/facts/%d", before.index);
    ab_verdict_add_evidence(
        verdict,
        "the first %d steps were skipped to find the scale again; a scaler that was saved "
        "skips one at most",
        skipped);
    ab_verdict_point(&c->facts, verdict, "/skipped_steps");
    return true;
}

/* How often the scale rose back to its first value after a step that was skipped: a scaler lowers it there,
 * so that it is a new one. *step: the first time. */
static int times_anew(const ab_case *c, int *step) {
    const cJSON *run, *skipped = cJSON_GetArrayItem(ab_json_at(c->facts.cell, "skipped_steps"), 0);
    double before = (double)INFINITY, from = 0;
    int count = 0;
    cJSON_ArrayForEach(run, ab_json_at(c->facts.cell, "scale")) {
        const double here = cJSON_GetNumberValue(cJSON_GetArrayItem(run, 0));
        while (skipped && skipped->valuedouble < from - 1) skipped = skipped->next;
        if (here > before && here == c->facts.skip.first_scale && skipped &&
            skipped->valuedouble == from - 1) {
            if (count++ == 0) *step = skipped->valueint + 1; /* the last of the run before */
        }
        before = here;
        from += cJSON_GetNumberValue(cJSON_GetArrayItem(run, 1));
    }
    return count;
}

/* One optimizer, whose steps all have the scale of one scaler. */
static bool was_made_anew(const ab_case *c, ab_verdict *verdict) {
    int step = 0;
    const int times = c->skipping && c->facts.skip.dynamic ? times_anew(c, &step) : 0;
    char scale[AB_TEXT_NUMBER];
    if (times == 0 || cJSON_GetArraySize(ab_json_at(ab_loop_document(&c->facts), "probe.groups")) != 1)
        return false;
    verdict->since = step;
    ab_verdict_add_evidence(
        verdict,
        "the scale was back at its first value, %s, %d times after a skipped step, first at "
        "step %d: a scaler lowers it there, so each time it is a new one",
        ab_text_scale(scale, c->facts.skip.first_scale), times, step);
    ab_verdict_point(&c->facts, verdict, "/scale");
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    verdict->proof = AB_PROOF_SHOWN;
    if (ab_log_view_of(c).facts) return was_reset_in_log(c, verdict);
    verdict->own = true;
    return was_not_saved(c, verdict) || was_made_anew(c, verdict) || has_none(c, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "a dynamic loss scale, whose state is saved with the weights and loaded again");
}

const ab_verdict_rule ab_verdict_rule_scaler_missing_or_not_saved = {
    .id = "scaler_missing_or_not_saved",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_GRADIENT,
    .text = "the loop has no loss scaler, or a resumed run did not get its scaler's state back",
    .needs = {&ab_need_gradients, &ab_need_loop, &ab_need_log},
    .predicts = AB_SYMPTOM_SKIPPING | AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_first_loss, &ab_refuted_log_sound},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
