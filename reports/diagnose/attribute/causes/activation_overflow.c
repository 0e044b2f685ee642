/* The forward pass overflows the half format but not fp32, so no loss scale helps. Symptoms: losses that are
 * NaN or inf at any scale, or infinite outputs with finite losses, while O0 is healthy. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/overflow.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <float.h>

/* Without an O0 (a probe's record): the first layer whose output is not finite has infinities, no NaN, and
 * finite values up to the half format's end. Infinities of a mask come without those. */
static bool seen_by_probe(const ab_case *c, ab_verdict *verdict) {
    const double half_way = ab_format_max(c->facts.half) / 2;
    const cJSON *output;
    int place = -1;
    if (c->facts.baseline || !ab_case_fails_alone(c)) return false;
    cJSON_ArrayForEach(output, ab_json_at(c->facts.cell, "probes.activations")) {
        const double inf = ab_json_number(output, "inf", 0), nan = ab_json_number(output, "nan", 0);
        place++;
        if (inf + nan == 0) continue;
        if (!ab_json_is_true(output, "cast") || nan > 0 || !(ab_json_number(output, "max_abs", 0) > half_way))
            return false;
        ab_verdict_own(verdict, AB_PROOF_SHOWN, c->facts.loss.first_nonfinite);
        ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(output, "layer", ""));
        ab_verdict_add_evidence(verdict,
                                "%.0f of %.0f outputs of %s are infinite in %s, the others reach %.4g", inf,
                                ab_json_number(output, "count", 0), ab_text_brief(verdict->layer, 60),
                                c->facts.half->name, ab_json_number(output, "max_abs", 0));
        ab_verdict_point(&c->facts, verdict, "/probes/activations/%d/inf", place);
        return true;
    }
    return false;
}

/* A cast to a format of one byte that nobody scaled its input for. */
static bool overflows_fp8(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_lost(c, "fp8_overflowed", DBL_MIN, "the values that are cast to fp8 are beyond its range",
                         verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return overflows_fp8(c, verdict) || ab_judge_overflow(c, AB_OVERFLOW_ACTIVATION, verdict) ||
           seen_by_probe(c, verdict);
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return overflows_fp8(c, verdict) || ab_show_overflow(c, AB_OVERFLOW_ACTIVATION, verdict);
}

const ab_verdict_rule ab_verdict_rule_activation_overflow = {
    .id = "activation_overflow",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "the forward pass leaves the half format's range",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_rate, &ab_refuted_fits, &ab_refuted_statistics},
    .judge = judge,
    .shows = shows,
    .remedy = ab_remedy_of_overflow,
};
