/* Half weights without fp32 masters: updates below half an ulp of the weight have no effect. Judged over all
 * layers by the share of the update energy lost in storing, or by the share of updates lost: on a plateau the
 * many small ones matter. The reported layer lost the largest share of its energy; of
 * those that lost the same share, as all of it, the most energy, whatever their order. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

static bool find(const ab_case *c, ab_verdict *verdict) {
    const cJSON *param, *worst = NULL;
    double energy = 0, lost = 0, worst_share = 0, worst_lost = 0, nonzero = 0, count = 0;
    int place = 0, worst_place = 0;
    cJSON_ArrayForEach(param, ab_json_at(c->facts.cell, "probes.lost_updates")) {
        const double share = ab_json_number(param, "update.lost_energy_share", 0),
                     own = ab_json_number(param, "update.lost_energy", 0);
        energy += ab_json_number(param, "update.energy", 0);
        lost += own;
        nonzero += ab_json_number(param, "update.nonzero", 0);
        count += ab_json_number(param, "update.lost", 0);
        if (!worst || share > worst_share || (share == worst_share && own > worst_lost)) {
            worst = param;
            worst_place = place;
            worst_share = share;
            worst_lost = own;
        }
        place++;
    }
    if (!worst || energy <= 0 || nonzero <= 0) return false;
    const ab_thresholds *t = c->facts.limits;
    const bool far_behind = ab_case_far_behind(c);
    const double least_energy = far_behind ? t->lost_energy_far_behind : t->lost_energy_behind,
                 least_updates = far_behind ? t->lost_updates_far_behind : t->lost_updates_behind;
    if (lost / energy < least_energy && count / nonzero < least_updates) return false;
    const bool much = lost / energy >= t->lost_energy || count / nonzero >= t->lost_updates;
    char all[AB_TEXT_NUMBER], most[AB_TEXT_NUMBER];
    verdict->own = !ab_updates_are_small(c);
    verdict->remedy.with_others = true;
    verdict->since = 0;
    verdict->proof = much ? AB_PROOF_SHOWN : AB_PROOF_CONSISTENT;
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(worst, "layer", ""));
    ab_verdict_add_evidence(
        verdict, "storing weights in %s lost %s %% of all updates, with %s %% of their energy",
        c->facts.half->name, ab_text_percent(most, count / nonzero), ab_text_percent(all, lost / energy));
    ab_verdict_point(&c->facts, verdict, "/probes/lost_updates");
    ab_verdict_add_evidence(verdict, "%s lost most: %s %% (and %s %% of its updates)",
                            ab_text_brief(ab_json_text(worst, "name", ""), 80),
                            ab_text_percent(most, worst_share),
                            ab_text_percent(all, ab_json_number(worst, "update.lost_share", 0)));
    ab_verdict_point(&c->facts, verdict, "/probes/lost_updates/%d/update/lost_energy_share", worst_place);
    return true;
}

/* A loop that updates its weights itself, and whose operations were looked at. */
static bool lost_increments(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_lost(c, "weight_increments_lost", c->facts.limits->increments_lost,
                         "the updates of half weights do not change them", verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return (c->behind && find(c, verdict)) || lost_increments(c, verdict);
}

/* Without an O0 to be behind of: nearly everything that the optimizer computed was lost; or most of it, and
 * the loss did not fall. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    const cJSON *param;
    double energy = 0, lost = 0;
    cJSON_ArrayForEach(param, ab_json_at(c->facts.cell, "probes.lost_updates")) {
        energy += ab_json_number(param, "update.energy", 0);
        lost += ab_json_number(param, "update.lost_energy", 0);
    }
    const double least = c->idle ? c->facts.limits->lost_energy_idle : c->facts.limits->lost_energy_alone;
    return (!c->facts.baseline && lost > least * energy && find(c, verdict)) || lost_increments(c, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    (void)ab_remedy_masters(&c->facts, remedy);
}

const ab_verdict_rule ab_verdict_rule_weight_update_lost = {
    .id = "weight_update_lost",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_STORE,
    .text = "weight updates are smaller than half an ulp of the half weights they are added to",
    .needs = {&ab_need_o0, &ab_need_ledger},
    .predicts = AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_wide_weights, &ab_refuted_o0_fails},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
