/* Adam-like optimizers with state in the half format: the increment of a second moment is below half an ulp
 * of it, or below the smallest number, so it does not change. In fp16 it stays 0, and the update is the first
 * moment over epsilon instead of about one learning rate. The probe counts moments that did not change
 * although their formula changes them by more than rounding in double; in fp32 there are none. O0 has such
 * state only if it was asked to by name, or in older documents: then it also fails, and the rate is not the
 * cause. Epsilon itself is 0 in fp16 below 3e-8; this is the evidence if no update could be probed. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The parameter with the largest share of zero or stale second moments. */
static const cJSON *worst_param(const cJSON *cell, const char *half, int *place, double *most) {
    const cJSON *param, *worst = NULL;
    int i = 0;
    *most = 0;
    cJSON_ArrayForEach(param, ab_json_at(cell, "probes.adam_warning.params")) {
        const double share =
            fmax(ab_json_number(param, "zero_share", 0), ab_json_number(param, "stale_share", 0));
        if (strcmp(ab_json_text(param, "state_format", ""), half) == 0 && (!worst || share > *most)) {
            worst = param;
            *most = share;
            *place = i;
        }
        i++;
    }
    return worst;
}

static bool epsilon_lost(const cJSON *cell, double *value) {
    const cJSON *constant;
    cJSON_ArrayForEach(constant, ab_json_at(cell, "probes.adam_warning.constants")) {
        if (strcmp(ab_json_text(constant, "name", ""), "eps") != 0 || !ab_json_is_true(constant, "lost"))
            continue;
        *value = ab_json_number(constant, "value", 0);
        return true;
    }
    return false;
}

/* True if squares of ordinary gradients underflow to 0. In a format with fp32's range they only become stale:
 * averages that lag, not divisions by zero. */
static bool has_few_binades(const ab_facts *facts) {
    return ab_format_flush_limit(facts->half) > facts->limits->few_binades;
}

static void point(const ab_case *c, bool o0, ab_verdict *verdict, const char *place) {
    if (o0)
        ab_verdict_point_baseline(&c->facts, verdict, "%s", place);
    else
        ab_verdict_point(&c->facts, verdict, "%s", place);
}

/* Finite weights became NaN or inf in training: with an epsilon above 0 no finite gradient does that. */
static bool weights_became_infinite(const ab_case *c) {
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    return first.known && first.step > 0 && strcmp(first.cause, "bad_weights") == 0;
}

/* Judges the cell, or O0 if it has such state too and fails. */
static bool judge_cell(const ab_case *c, bool o0, ab_verdict *verdict) {
    const cJSON *cell = o0 ? c->facts.baseline : c->facts.cell;
    int place = 0;
    double eps = 0, share = 0;
    if (!ab_json_is_true(cell, "probes.adam_warning.applies")) return false;
    const cJSON *param = worst_param(cell, c->facts.half->name, &place, &share);
    const bool no_eps = epsilon_lost(cell, &eps);
    /* nothing could be counted: the first loss is already NaN or inf, or no step before the infinite update
     * was probed */
    const bool unseen = share == 0 && no_eps && c->facts.loss.first_nonfinite == 0 && !o0,
               untold = no_eps && !o0 && weights_became_infinite(c);
    if (!param || (!(share > c->facts.limits->state_stale) && !unseen && !untold)) return false;
    const bool counted = share > c->facts.limits->state_stale && has_few_binades(&c->facts);
    verdict->proof = counted ? AB_PROOF_SHOWN : AB_PROOF_CONSISTENT;
    verdict->own = verdict->remedy.with_others = true;
    verdict->next = unseen;
    verdict->since = 0;
    char text[AB_TEXT_NUMBER], where[64];
    if (o0) ab_say_baseline_fails(c, verdict);
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(param, "layer", ""));
    if (share > 0) {
        ab_verdict_add_evidence(verdict,
                                "%s %% of the second moments of %s are zero although there is a gradient%s",
                                ab_text_percent(text, share),
                                ab_text_brief(ab_json_text(param, "name", ""), 80), o0 ? ", in O0 too" : "");
        ab_text_show(where, sizeof where, "/probes/adam_warning/params/%d/zero_share", place);
        point(c, o0, verdict, where);
    }
    if (no_eps) {
        ab_verdict_add_evidence(verdict, "epsilon %.3g is 0 in %s, the format of the optimizer's state", eps,
                                c->facts.half->name);
        point(c, o0, verdict, "/probes/adam_warning/constants");
    }
    return true;
}

/* ---- from the states themselves -------------------------------------------------------------- */

static double zero_share(const cJSON *tensor) {
    const double zero = ab_json_number(tensor, "zero", 0), nonzero = ab_json_number(tensor, "nonzero", 0);
    return zero + nonzero > 0 ? zero / (zero + nonzero) : 0;
}

/* Share of a parameter's gradients that are zero: their second moments are rightly 0. */
static double zero_gradients(const cJSON *cell, const char *state) {
    const char *end = strrchr(state, '.');
    const size_t length = end ? (size_t)(end - state) : 0;
    const cJSON *tensor;
    cJSON_ArrayForEach(tensor, ab_json_at(cell, "probes.tensors")) {
        const char *name = ab_json_text(tensor, "name", "");
        if (length > 0 && strncmp(name, state, length) == 0 && strcmp(name + length, ".grad") == 0)
            return zero_share(tensor);
    }
    return 0;
}

static bool is_second_moment(const char *name) {
    const char *end = strrchr(name, '.');
    return end && strcmp(end, ".state1") == 0;
}

/* Of a loop that a probe watched: the second moments in half of which most are 0 beside their gradients. */
static const cJSON *worst_state(const ab_case *c, double *share, int *place) {
    const cJSON *tensor, *worst = NULL;
    int i = -1;
    *share = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.optimizer_state")) {
        const char *name = ab_json_text(tensor, "name", "");
        i++;
        if (!is_second_moment(name) || strcmp(ab_json_text(tensor, "stored", ""), c->facts.half->name) != 0)
            continue;
        const double here = zero_share(tensor) - zero_gradients(c->facts.cell, name);
        if (!(here > *share)) continue;
        *share = here;
        *place = i;
        worst = tensor;
    }
    return worst;
}

/* The root of a second moment that became 0 is below that of the flush limit; an epsilon above it bounds the
 * update. */
static bool bounds_update(const ab_case *c) {
    return ab_json_number(c->facts.document, "config.eps", 0) >= sqrt(ab_format_flush_limit(c->facts.half));
}

static bool seen_in_states(const ab_case *c, ab_verdict *verdict) {
    double share;
    int place = 0;
    char text[AB_TEXT_NUMBER];
    const cJSON *state = worst_state(c, &share, &place);
    const double eps = ab_json_number(c->facts.document, "config.eps", (double)NAN);
    if (!state || !(share > c->facts.limits->state_stale) || !has_few_binades(&c->facts) || bounds_update(c))
        return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    verdict->remedy.with_others = true;
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(state, "layer", ""));
    ab_verdict_add_evidence(verdict,
                            "%s %% of the second moments in %s are zero although there is a gradient",
                            ab_text_percent(text, share), ab_text_brief(ab_json_text(state, "name", ""), 80));
    ab_verdict_point(&c->facts, verdict, "/probes/optimizer_state/%d/zero", place);
    if (eps <= ab_format_flush_limit(c->facts.half))
        ab_verdict_add_evidence(verdict, "epsilon %.3g is 0 in %s, the format of the optimizer's state", eps,
                                c->facts.half->name);
    return true;
}

/* An optimizer of the loop's own, whose operations were looked at. */
static bool seen_in_operations(const ab_case *c, ab_verdict *verdict) {
    return !bounds_update(c) &&
           ab_judge_lost(c, "state_flushed", c->facts.limits->state_stale,
                         "what is added to states of the optimizer in fp16 is below its range: they stay 0",
                         verdict);
}

/* The optimizer of a loop makes the first value that is not finite, of finite gradients: a quotient that has
 * no value in double either, as what it divides by is a state, or a correction, that rounding left at 0. */
static bool divides_by_zero(const ab_case *c, ab_first_nonfinite *first) {
    *first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    return ab_is_loop(&c->facts) && first->known && strcmp(first->pass, "update") == 0 &&
           strcmp(first->cause, "mathematics") == 0 && ab_first_traits(&c->facts, first) & AB_TRAIT_quotient;
}

static bool seen_in_update(const ab_case *c, ab_verdict *verdict) {
    ab_first_nonfinite first;
    if (!divides_by_zero(c, &first)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, first.step);
    ab_say_first_nonfinite(&c->facts, &first, verdict);
    ab_verdict_add_evidence(verdict, "it is the optimizer's, whose gradients are finite, and has no finite "
                                     "value in double either: what it divides by is 0");
    return true;
}

/* A checkpoint without an O0 shows it by itself, where squares of gradients became 0. */
static bool shows_alone(const ab_case *c, ab_verdict *verdict) {
    return ab_json_at(c->facts.document, "checkpoint") != NULL && has_few_binades(&c->facts) &&
           judge_cell(c, false, verdict);
}

/* O0 learns little for the same reason: its updates are too large. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    return (c->lr_unstable && judge_cell(c, true, verdict)) || seen_in_states(c, verdict) ||
           seen_in_operations(c, verdict) || shows_alone(c, verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (seen_in_update(c, verdict)) return true;
    /* an O0 that only does not learn does not explain the cell's NaN or inf losses */
    const bool own = c->nonfinite && !c->diverged;
    if (ab_baseline_fails(c)) return judge_cell(c, true, verdict) || (own && judge_cell(c, false, verdict));
    return shows(c, verdict) || (ab_case_fails_alone(c) && judge_cell(c, false, verdict));
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    (void)ab_remedy_wide_state(&c->facts, remedy);
    if (cJSON_IsNumber(ab_json_at(c->facts.document, "config.eps")))
        ab_remedy_add_text(remedy, "or an epsilon of 1e-4 or more (--eps 1e-4)");
}

static bool wide_state(const ab_case *c, const ab_verdict *verdict) {
    ab_first_nonfinite first;
    double share;
    int place;
    (void)verdict;
    return !divides_by_zero(c, &first) && !worst_state(c, &share, &place) &&
           !ab_is_stated(c, "state_flushed") &&
           !ab_json_is_true(c->facts.cell, "probes.adam_warning.applies") &&
           !ab_json_is_true(c->facts.baseline, "probes.adam_warning.applies");
}

static const ab_refutation refuted_wide_state = {"the optimizer's state is in fp32", wide_state};

const ab_verdict_rule ab_verdict_rule_optimizer_state_underflow = {
    .id = "optimizer_state_underflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_STATE,
    .text = "the optimizer's state, kept in the half format, underflows",
    .needs = {&ab_need_state},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOM_NONFINITE | AB_SYMPTOM_BEHIND,
    .refuted_by = {&refuted_wide_state},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
