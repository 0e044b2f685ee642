/* The loss is computed in a half format: every loss of the record is a number of that format, which losses
 * computed in fp32 are by chance only. Rounding a logit x moves its log-probability by up to x 2^-p; that
 * matters where it exceeds the loss that is left, or where the cell is behind. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

static bool is_number_of(const ab_format *format, double x) {
    static const ab_rounding nearest = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};
    return ab_format_round(format, &nearest, x) == x;
}

/* The different losses, if all of them are numbers of the format; else 0. */
static int losses_of(const ab_case *c, const ab_format *format) {
    const cJSON *loss;
    double last = (double)NAN;
    int different = 0;
    cJSON_ArrayForEach(loss, ab_json_at(c->facts.cell, "loss")) {
        if (!cJSON_IsNumber(loss)) continue;
        if (!is_number_of(format, loss->valuedouble)) return 0;
        different += loss->valuedouble != last;
        last = loss->valuedouble;
    }
    return different;
}

/* The format of the loss; NULL: none of them. */
static const ab_format *loss_format(const ab_case *c, int *count) {
    static const ab_format *const formats[] = {&ab_format_bf16, &ab_format_fp16};
    for (size_t i = 0; i < AB_COUNT_OF(formats); i++) {
        *count = losses_of(c, formats[i]);
        if (*count >= c->facts.limits->enough_losses) return formats[i];
    }
    return NULL;
}

/* The output of the last layer: of more than one value, so no loss. */
static const cJSON *last_output(const ab_case *c, int *place) {
    const cJSON *tensor, *last = NULL;
    int i = -1;
    cJSON_ArrayForEach(tensor, ab_json_at(c->facts.cell, "probes.activations")) {
        i++;
        if (!(ab_json_number(tensor, "count", 0) > ab_json_number(c->facts.cell, "steps_total", 0))) continue;
        last = tensor;
        *place = i;
    }
    return last;
}

static bool find(const ab_case *c, bool must_matter, ab_verdict *verdict) {
    int count = 0, place = 0;
    const ab_format *format = ab_is_loop(&c->facts) ? loss_format(c, &count) : NULL;
    if (!format) return false;
    const cJSON *logits = last_output(c, &place);
    const double largest = ab_json_number(logits, "max_abs", 0), error = largest * exp2(-format->precision);
    const bool matters = error > c->facts.limits->logit_error * c->facts.loss.final;
    if (must_matter && !matters) return false;
    ab_verdict_own(verdict, matters ? AB_PROOF_SHOWN : AB_PROOF_CONSISTENT, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(logits, "layer", ""));
    ab_verdict_add_evidence(verdict,
                            "all of %d different losses are numbers of %s: the loss is computed in it", count,
                            format->name);
    ab_verdict_point(&c->facts, verdict, "/loss");
    if (!logits) return true;
    ab_verdict_add_evidence(verdict,
                            "outputs of %s reach %.4g, rounded by up to %.2g; the loss at the end is %.3g",
                            verdict->layer, largest, error, c->facts.loss.final);
    ab_verdict_point(&c->facts, verdict, "/probes/activations/%d/max_abs", place);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) { return find(c, !c->behind, verdict); }
static bool shows(const ab_case *c, ab_verdict *verdict) { return find(c, true, verdict); }

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    if (!ab_remedy_keep_fp32(&c->facts, verdict->layer, remedy))
        ab_remedy_add_text(remedy, "compute the loss from logits in fp32");
}

const ab_verdict_rule ab_verdict_rule_logits_in_half = {
    .id = "logits_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "the loss is computed from logits in the half format",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_o0_fails},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
