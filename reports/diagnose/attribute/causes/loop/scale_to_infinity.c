/* A dynamic scale that doubles without end, because nothing ever overflows: gradients that carry it do not
 * pass through the half format, or are zero. Beyond the ratio of a format's largest number to its smallest
 * any gradient in it would overflow; a format with fp32's range reaches fp32's own end first, where the
 * scaled loss becomes inf. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
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

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const double end = end_of_scales(c);
    char first[AB_TEXT_NUMBER], last[AB_TEXT_NUMBER], most[AB_TEXT_NUMBER];
    if (!c->facts.skip.dynamic || !(c->facts.skip.largest_scale >= end)) return false;
    verdict->proof = AB_PROOF_SHOWN;
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

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (ab_format_flush_limit(c->facts.half) > c->facts.limits->few_binades)
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
    .needs = {&ab_need_gradients},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_no_scale},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
