/* Rotary embeddings whose angles are computed in the half format: position times frequency is rounded to p
 * significand bits, so its error grows with the position, up to angle x 2^-p. The loop states the largest
 * angle (angles_in_half). */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const ab_stated angle = ab_stated_of(&c->facts, "angles_in_half");
    const double error = angle.largest * exp2(-c->facts.half->precision);
    if (!angle.known || !(error >= c->facts.limits->angle_error)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, angle.first_step);
    ab_text_clean(verdict->layer, sizeof verdict->layer, angle.place);
    ab_verdict_add_evidence(
        verdict, "%s computes angles up to %.4g radians in %s, which rounds them by up to %.2g radians",
        ab_text_brief(angle.place, 80), angle.largest, c->facts.half->name, error);
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", angle.index);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    if (!ab_remedy_keep_fp32(&c->facts, verdict->layer, remedy))
        ab_remedy_add_text(remedy, "compute the angles, sines and cosines in fp32");
}

const ab_verdict_rule ab_verdict_rule_rotary_in_half = {
    .id = "rotary_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "angles of a rotary embedding are rounded to the half format",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_o0_fails},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
