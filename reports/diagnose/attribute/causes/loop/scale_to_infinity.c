/* A dynamic scale that doubles without end, because nothing ever overflows: gradients that carry it do not
 * pass through the half format, are not checked, or are zero. Beyond the ratio of a format's largest number
 * to its smallest any gradient in it would overflow; a format with fp32's range reaches fp32's own end first,
 * where the scaled loss becomes inf. A log shows it by its lines. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/log_facts.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

/* The scale that no working run reaches. */
static double end_of_scales(const ab_case *c) {
    const ab_format *half = c->facts.half;
    if (ab_format_flush_limit(half) > c->facts.limits->few_binades)
        return ab_format_overflow_limit(half) / ab_format_min_subnormal(half);
    return ab_near_overflow(&c->facts);
}

/* The first step at a scale of at least `scale`. */
static int first_step_at(const ab_case *c, double scale) {
    const cJSON *run;
    double step = 0;
    cJSON_ArrayForEach(run, ab_json_at(c->facts.cell, "scale")) {
        const cJSON *value = cJSON_GetArrayItem(run, 0), *steps = cJSON_GetArrayItem(run, 1);
        if (!cJSON_IsNumber(value) || value->valuedouble >= scale) return (int)step;
        step += cJSON_IsNumber(steps) ? steps->valuedouble : 0;
    }
    return AB_STEP_UNKNOWN;
}

static bool is_in_log(const ab_case *c, ab_verdict *verdict) {
    const ab_log_view v = ab_log_view_of(c);
    char from[AB_TEXT_NUMBER], to[AB_TEXT_NUMBER];
    if (!(v.runaway_scale > c->facts.limits->log_runaway_scale)) return false;
    ab_verdict_add_evidence(verdict,
                            "the scale rose from %s to %s without an overflow, the last time in line %d",
                            ab_text_scale(from, v.runaway_from), ab_text_scale(to, v.runaway_scale),
                            ab_log_line_of(&v, "runaway_line"));
    ab_verdict_point_log(verdict, "runaway_scale");
    return true;
}

/* It began too high, and overflows have brought it down. */
static bool only_fell(const ab_skip_facts *skip, double end) {
    return skip->largest_scale <= skip->first_scale && skip->last_scale < end;
}

static bool is_in_cell(const ab_case *c, ab_verdict *verdict) {
    const double end = end_of_scales(c);
    char first[AB_TEXT_NUMBER], last[AB_TEXT_NUMBER], most[AB_TEXT_NUMBER];
    if (!c->facts.skip.dynamic || !(c->facts.skip.largest_scale >= end) || only_fell(&c->facts.skip, end))
        return false;
    verdict->own = true;
    verdict->since = first_step_at(c, end);
    ab_verdict_add_evidence(verdict, "the scale rose from %s to %s, with %d skipped steps of %d",
                            ab_text_scale(first, c->facts.skip.first_scale),
                            ab_text_scale(last, c->facts.skip.largest_scale), c->facts.skip.skipped,
                            c->facts.loss.steps);
    ab_verdict_point(&c->facts, verdict, "/scale");
    ab_verdict_add_evidence(verdict, "at %s any gradient that is not zero would overflow %s",
                            ab_text_scale(most, end), c->facts.half->name);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    verdict->proof = AB_PROOF_SHOWN;
    return ab_log_view_of(c).facts ? is_in_log(c, verdict) : is_in_cell(c, verdict);
}

static bool is_not_scaled(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return !ab_log_view_of(c).facts && c->facts.skip.largest_scale <= 1;
}

static const ab_refutation refuted_not_scaled = {"the loss is not scaled", is_not_scaled};

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (ab_log_view_of(c).facts)
        ab_remedy_add_text(remedy, "check that the gradients which the scaler looks at are those of the "
                                   "loss, and not all 0; set the scaler's cap (max_loss_scale) to 2^24");
    else if (ab_format_flush_limit(c->facts.half) > c->facts.limits->few_binades)
        ab_remedy_add_text(remedy, "check that gradients reach the scaler: they are zero, or not in %s",
                           c->facts.half->name);
    else
        ab_remedy_option(remedy, "no loss scale", "--scales", "1");
}

const ab_verdict_rule ab_verdict_rule_scale_to_infinity = {
    .id = "scale_to_infinity",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_GRADIENT,
    .text = "the loss scale doubles without end: nothing that it scales ever overflows",
    .needs = {&ab_need_gradients, &ab_need_log},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_not_scaled, &ab_refuted_log_came_down},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
