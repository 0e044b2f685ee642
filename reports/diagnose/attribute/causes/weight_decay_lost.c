/* Weight decay that is lost entirely when half weights are stored: lr x decay is below half an ulp of a
 * weight. The ledger, which also stores each term of an update alone, shows whether it matters: if most of
 * the lost energy is the decay's, the missing decay is the cause; if the gradients lose more,
 * weight_update_lost is the cause and this is a remark. A decay with lr x decay x steps below a tenth is
 * ignored: it would not have shrunk the weights by a tenth over the run. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

/* Over all parameters. */
typedef struct ledger {
    double decays, lost; /* nonzero terms, and those that changed no weight */
    double decay_lost;   /* energy of these */
    double rest_lost;    /* lost energy of gradient and momentum terms, each stored alone */
} ledger;

static ledger read_ledger(const cJSON *cell) {
    const cJSON *param;
    ledger sum = {0};
    cJSON_ArrayForEach(param, ab_json_at(cell, "probes.lost_updates")) {
        sum.decays += ab_json_number(param, "weight_decay.nonzero", 0);
        sum.lost += ab_json_number(param, "weight_decay.lost", 0);
        sum.decay_lost += ab_json_number(param, "weight_decay.lost_energy", 0);
        sum.rest_lost += ab_json_number(param, "gradient.lost_energy", 0) +
                         ab_json_number(param, "momentum.lost_energy", 0);
    }
    return sum;
}

/* A decay that is configured and acts on no weight is a mistake, with or without a gap. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    const double shrink = ab_json_number(c->facts.document, "config.lr", 0) *
                          ab_json_number(c->facts.document, "config.weight_decay", 0) * c->facts.loss.steps;
    if (!(shrink >= c->facts.limits->decay_shrink)) return false;
    const ledger l = read_ledger(c->facts.cell);
    if (l.decays <= 0 || l.lost < c->facts.limits->decay_lost * l.decays) return false;
    const bool matters = l.decay_lost > c->facts.limits->decay_rest * l.rest_lost;
    char share[AB_TEXT_NUMBER];
    ab_verdict_own(verdict, matters ? AB_PROOF_SHOWN : AB_PROOF_CONSISTENT, 0);
    verdict->remedy.with_others = true;
    ab_verdict_add_evidence(verdict, "%s %% of the weight-decay terms, taken alone, change no weight",
                            ab_text_percent(share, l.lost / l.decays));
    ab_verdict_point(&c->facts, verdict, "/probes/lost_updates");
    if (matters) {
        ab_verdict_add_evidence(
            verdict, "of the energy that terms lose alone %s %% is theirs; lr x decay x steps is %.2g",
            ab_text_percent(share, l.decay_lost / (l.decay_lost + l.rest_lost)), shrink);
        ab_verdict_point(&c->facts, verdict, "/probes/lost_updates");
    }
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) { return c->behind && shows(c, verdict); }

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    (void)ab_remedy_masters(&c->facts, remedy);
}

const ab_verdict_rule ab_verdict_rule_weight_decay_lost = {
    .id = "weight_decay_lost",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_UPDATE,
    .text = "weight decay never acts: lr x decay is below half an ulp of the half weights",
    .needs = {&ab_need_ledger},
    .predicts = AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_wide_weights, &ab_refuted_o0_fails},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
