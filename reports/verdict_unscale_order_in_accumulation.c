/* Micro-batches divided by the loss scale one after the other: what was accumulated first is divided more than once. */
#include "reports/diagnose.h"
#include "reports/json.h"
#include "reports/text.h"

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    const double micro = ab_json_number(facts->document, "config.gradient_accumulation_steps", 1);
    if (!ab_case_fault(facts, "unscale_each_micro_batch") || micro < 2) return false;
    if (facts->skip.largest_scale <= 1) return false;
    char scale[AB_TEXT_NUMBER];
    verdict->confidence = 0.85;
    ab_verdict_say(verdict, "%.0f micro-batches a step, and the scale %s is taken out after each of them",
                   micro, ab_text_scale(scale, facts->skip.last_scale));
    ab_verdict_point(facts, verdict, "/scale");
    snprintf(verdict->remedy, sizeof verdict->remedy,
             "unscale once, before the step: leave out --fault unscale_each_micro_batch");
    return true;
}

const ab_verdict_rule ab_verdict_rule_unscale_order_in_accumulation = {
    .id = "unscale_order_in_accumulation",
    .family = AB_FAMILY_CONFIGURATION,
    .text = "accumulated gradients are unscaled more than once",
    .judge = judge,
};
