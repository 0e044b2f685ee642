/* The forward pass itself leaves the half format's range while fp32 does not: no loss scale can help. Seen as losses that are not
 * numbers whatever the scale is, where O0's are. */
#include "reports/diagnose.h"
#include "reports/json.h"
#include "reports/text.h"

#include <string.h>

/* The first op whose stored output passed the limit. */
static const cJSON *first_overflow(const ab_case *facts, int *place) {
    const cJSON *tensor;
    *place = 0;
    cJSON_ArrayForEach(tensor, ab_json_at(facts->cell, "probes.activations")) {
        if (ab_json_is_true(tensor, "cast") &&
            ab_json_number(tensor, "overflowed", 0) + ab_json_number(tensor, "inf", 0) > 0)
            return tensor;
        ++*place;
    }
    return NULL;
}

static bool from_the_start(const ab_case *facts) { return facts->loss.first_nonfinite == 0; }

/* A scaler went all the way down and the losses stayed what they were. */
static bool whatever_the_scale(const ab_case *facts) {
    return facts->skip.dynamic && facts->skip.least_scale < 1 &&
           facts->skip.skipped - facts->skip.loss_finite > facts->skip.skipped / 2;
}

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    int place;
    const bool baseline_sound =
        facts->baseline && facts->baseline != facts->cell && facts->baseline_loss.nonfinite == 0;
    if (!facts->nonfinite || !baseline_sound || !ab_case_uses_half(facts)) return false;
    const cJSON *tensor = first_overflow(facts, &place);
    if (!tensor && !from_the_start(facts) && !whatever_the_scale(facts)) return false;
    verdict->confidence = tensor ? 0.9 : 0.7;
    ab_verdict_say(verdict, "%d of %d losses are not numbers, the first at step %d; all of O0's are",
                   facts->loss.nonfinite, facts->loss.steps, facts->loss.first_nonfinite);
    ab_verdict_point(facts, verdict, "/loss/%d", facts->loss.first_nonfinite);
    if (whatever_the_scale(facts)) {
        char least[AB_TEXT_NUMBER];
        ab_verdict_say(verdict, "they stayed so while the scale fell to %s",
                       ab_text_scale(least, facts->skip.least_scale));
        ab_verdict_point(facts, verdict, "/scale");
    }
    if (tensor) {
        ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(tensor, "layer", ""));
        ab_verdict_say(verdict, "%.80s is the first output with values beyond %s: %.0f of them",
                       ab_json_text(tensor, "name", ""), facts->half->name,
                       ab_json_number(tensor, "overflowed", 0));
        ab_verdict_point(facts, verdict, "/probes/activations/%d/overflowed", place);
        snprintf(verdict->remedy, sizeof verdict->remedy,
                 "--to '%.80s=fp32', or --half bf16; no loss scale helps", verdict->layer);
        return true;
    }
    snprintf(verdict->missing, sizeof verdict->missing,
             "which layer: the record has no census of activations; run with --probes all --probe-every 1");
    snprintf(verdict->remedy, sizeof verdict->remedy,
             "--half bf16, or the layer in fp32; no loss scale helps");
    return true;
}

const ab_verdict_rule ab_verdict_rule_activation_overflow = {
    .id = "activation_overflow",
    .family = AB_FAMILY_PRECISION,
    .text = "the forward pass leaves the half format's range",
    .judge = judge,
};
