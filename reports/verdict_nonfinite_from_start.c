/* O0's very first loss is no number: the data, the initial weights or the loss itself are not finite, before any gradient was cast. */
#include "reports/diagnose.h"
#include "reports/json.h"
#include "reports/text.h"

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    if (!facts->baseline || facts->baseline_loss.first_nonfinite != 0) return false;
    const cJSON *origin = cJSON_GetArrayItem(ab_json_at(facts->cell, "probes.nan_provenance.origins"), 0);
    verdict->confidence = 0.95;
    ab_verdict_say(verdict, "O0's loss of step 0 is no number: no loss scale and no format is to blame");
    if (origin) {
        ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(origin, "op", ""));
        ab_verdict_say(verdict, "the first NaN was made by %.80s in the %.20s pass", verdict->layer,
                       ab_json_text(origin, "pass", ""));
        ab_verdict_point(facts, verdict, "/probes/nan_provenance/origins/0");
    } else {
        snprintf(verdict->missing, sizeof verdict->missing,
                 "where the first NaN comes from: run with --probes all --probe-every 1");
    }
    snprintf(verdict->remedy, sizeof verdict->remedy,
             "look for NaN or infinity in the data and in --init before anything else");
    return true;
}

const ab_verdict_rule ab_verdict_rule_nonfinite_from_start = {
    .id = "nonfinite_from_start",
    .family = AB_FAMILY_TRAINING,
    .text = "the first loss of fp32 training is no number: data or initial weights",
    .judge = judge,
};
