/* Weight decay that storing half weights loses entirely: lr x decay is below half an ulp of one. It explains a gap only when
 * nothing else does, so it ranks low. */
#include "reports/diagnose.h"
#include "reports/json.h"
#include "reports/text.h"

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    if (!facts->behind || facts->unlearned || !ab_case_half_weights(facts)) return false;
    const cJSON *param;
    double nonzero = 0, lost = 0;
    cJSON_ArrayForEach(param, ab_json_at(facts->cell, "probes.lost_updates")) {
        nonzero += ab_json_number(param, "weight_decay.nonzero", 0);
        lost += ab_json_number(param, "weight_decay.lost", 0);
    }
    if (nonzero <= 0 || lost < 0.99 * nonzero) return false;
    char share[AB_TEXT_NUMBER];
    verdict->confidence = 0.4;
    ab_verdict_say(verdict, "%s %% of the weight-decay terms, taken alone, change no weight",
                   ab_text_percent(share, lost / nonzero));
    ab_verdict_point(facts, verdict, "/probes/lost_updates");
    snprintf(verdict->remedy, sizeof verdict->remedy, "--set master_weights=True (fp32 masters)");
    ab_verdict_option(verdict, "--set", "master_weights=True");
    return true;
}

const ab_verdict_rule ab_verdict_rule_weight_decay_lost = {
    .id = "weight_decay_lost",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_UPDATE,
    .text = "weight decay never acts: lr x decay is below half an ulp of the half weights",
    .judge = judge,
};
