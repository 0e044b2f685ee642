/* Gradients clipped while they still carry the loss scale: the limit is too tight by the scale. */
#include "reports/diagnose.h"
#include "reports/text.h"

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    if (!ab_case_fault(facts, "clip_before_unscale") || facts->skip.largest_scale <= 1) return false;
    char scale[AB_TEXT_NUMBER];
    verdict->confidence = 0.9;
    ab_verdict_say(
        verdict, "the run clips before it unscales: at scale %s the limit acts as one %s times smaller",
        ab_text_scale(scale, facts->skip.last_scale), ab_text_scale(scale, facts->skip.last_scale));
    ab_verdict_point(facts, verdict, "/scale");
    snprintf(verdict->remedy, sizeof verdict->remedy,
             "unscale, then clip: leave out --fault clip_before_unscale");
    return true;
}

const ab_verdict_rule ab_verdict_rule_clip_before_unscale = {
    .id = "clip_before_unscale",
    .family = AB_FAMILY_CONFIGURATION,
    .text = "gradients are clipped before the loss scale is taken out",
    .judge = judge,
};
