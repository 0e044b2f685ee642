/* Adam in the half format: an epsilon that is stored as zero, or a second moment that underflows, divides by nothing. */
#include "reports/diagnose.h"
#include "reports/json.h"
#include "reports/text.h"

#include <string.h>

/* The parameter with the largest share of second moments that are zero. */
static const cJSON *worst_param(const ab_case *facts, int *place) {
    const cJSON *param, *worst = NULL;
    double most = 0;
    int i = 0;
    cJSON_ArrayForEach(param, ab_json_at(facts->cell, "probes.adam_warning.params")) {
        const double share = ab_json_number(param, "zero_share", 0);
        if (strcmp(ab_json_text(param, "state_format", ""), facts->half->name) == 0 &&
            (!worst || share > most)) {
            worst = param;
            most = share;
            *place = i;
        }
        i++;
    }
    return worst;
}

static bool epsilon_lost(const ab_case *facts, double *value) {
    const cJSON *constant;
    cJSON_ArrayForEach(constant, ab_json_at(facts->cell, "probes.adam_warning.constants")) {
        if (strcmp(ab_json_text(constant, "name", ""), "eps") != 0 || !ab_json_is_true(constant, "lost"))
            continue;
        *value = ab_json_number(constant, "value", 0);
        return true;
    }
    return false;
}

static bool judge(const ab_case *facts, ab_verdict *verdict) {
    int place = 0;
    double eps = 0;
    if (facts->loss.first_nonfinite == 0) return false; /* before the first update */
    if (facts->unlearned || !ab_json_is_true(facts->cell, "probes.adam_warning.applies")) return false;
    const cJSON *param = worst_param(facts, &place);
    const bool no_eps = epsilon_lost(facts, &eps);
    if (!param || !(no_eps || ab_json_number(param, "zero_share", 0) > 0.5)) return false;
    verdict->confidence = no_eps && facts->nonfinite ? 0.9 : 0.75;
    if (no_eps) {
        ab_verdict_say(verdict, "epsilon %.3g is 0 in %s, the format of the optimizer's state", eps,
                       facts->half->name);
        ab_verdict_point(facts, verdict, "/probes/adam_warning/constants");
    }
    char share[AB_TEXT_NUMBER];
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(param, "layer", ""));
    ab_verdict_say(verdict, "%s %% of the second moments of %.80s are zero",
                   ab_text_percent(share, ab_json_number(param, "zero_share", 0)),
                   ab_json_text(param, "name", ""));
    ab_verdict_point(facts, verdict, "/probes/adam_warning/params/%d/zero_share", place);
    snprintf(verdict->remedy, sizeof verdict->remedy,
             "--optimizer-state fp32, or an epsilon of 1e-4 or more (--eps 1e-4)");
    ab_verdict_option(verdict, "--optimizer-state", "fp32");
    return true;
}

const ab_verdict_rule ab_verdict_rule_optimizer_state_underflow = {
    .id = "optimizer_state_underflow",
    .family = AB_FAMILY_PRECISION,
    .text = "the optimizer's state, kept in the half format, underflows",
    .judge = judge,
};
