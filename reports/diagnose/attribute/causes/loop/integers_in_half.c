/* Whole numbers (ids, positions, time steps, counts) in the half format: beyond 2^p, 2048 in fp16 and 256 in
 * bf16, neighbours are the same number. The loop states the largest that a layer reads
 * (whole_numbers_in_half), the largest that look something up or turn an angle after they were in fp16 or
 * bf16, and what was added to a counter and lost. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

static bool reads(const ab_case *c, const char *name, const ab_format *format, ab_verdict *verdict) {
    const ab_stated whole = ab_stated_of(&c->facts, name);
    const double limit = exp2(format->precision);
    if (!whole.known || !(whole.largest > limit)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, whole.first_step);
    ab_text_clean(verdict->layer, sizeof verdict->layer, whole.place);
    ab_verdict_add_evidence(
        verdict, "%s reads whole numbers up to %.0f in %s, which tells neighbours apart up to %.0f",
        ab_text_brief(whole.place, 80), whole.largest, format->name, limit);
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", whole.index);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return reads(c, "whole_numbers_in_half", c->facts.half, verdict) ||
           reads(c, "whole_numbers_in_fp16", &ab_format_fp16, verdict) ||
           reads(c, "whole_numbers_in_bf16", &ab_format_bf16, verdict) ||
           ab_judge_lost(c, "count_increments_lost", c->facts.limits->counts_lost,
                         "what is added to a counter that is kept in half is lost in rounding", verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    if (!ab_remedy_keep_fp32(&c->facts, verdict->layer, remedy))
        ab_remedy_add_text(remedy, "keep ids, positions and counts as integers or fp32");
}

const ab_verdict_rule ab_verdict_rule_integers_in_half = {
    .id = "integers_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "ids, positions or counts are stored in the half format, beyond the whole numbers that it holds",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_o0_fails},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
