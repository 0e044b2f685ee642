/* Averaged weights in the half format: the increment per step, (1 - decay) times the difference, is below
 * half an ulp. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The cell's own format, or that of older documents' configuration. */
static bool averages_in_half(const ab_facts *facts) {
    const char *own = ab_json_text(facts->cell, "policy.ema_format", NULL);
    if (own) return strcmp(own, facts->half->name) == 0;
    return strcmp(ab_json_text(facts->document, "config.ema_format", ""), "half") == 0;
}

/* Of a loop of the user's own, whose operations were looked at. */
static bool lost_increments(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_lost(c, "average_increments_lost", c->facts.limits->increments_lost,
                         "the increments of averaged weights that are kept in half do not change them",
                         verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (lost_increments(c, verdict)) return true;
    const cJSON *average = ab_json_at(c->facts.cell, "vitals.average");
    if (!c->stuck) return false;
    const double differing = ab_json_number(average, "differing", 0),
                 stuck = ab_json_number(average, "stuck", 0);
    char share[AB_TEXT_NUMBER];
    verdict->proof = AB_PROOF_SHOWN;
    ab_verdict_add_evidence(
        verdict,
        "%s %% of the averages that differ from their weights would not move at the next step: (1 - %.6g) "
        "of the difference is lost in %s",
        ab_text_percent(share, stuck / differing), ab_json_number(c->facts.document, "config.ema", 0),
        c->facts.half->name);
    ab_verdict_point(&c->facts, verdict, "/vitals/average/stuck");
    ab_verdict_add_evidence(verdict, "test loss with the averages %.4g, with the weights %.4g",
                            ab_json_number(c->facts.cell, "ema_test_loss", 0),
                            ab_json_number(c->facts.cell, "test_loss", 0));
    ab_verdict_point(&c->facts, verdict, "/ema_test_loss");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_wide_average(&c->facts, remedy)) ab_remedy_add_text(remedy, "keep the averages in fp32");
}

static bool wide_average(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return !averages_in_half(&c->facts) && !ab_is_stated(c, "average_increments_lost");
}

static const ab_refutation refuted_wide_average = {"averages are kept in fp32", wide_average};

const ab_verdict_rule ab_verdict_rule_ema_in_half = {
    .id = "ema_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_ASIDE,
    .text = "averaged weights in the half format do not move",
    .needs = {&ab_need_vitals},
    .predicts = AB_SYMPTOM_AVERAGE,
    .refuted_by = {&refuted_wide_average},
    .judge = judge,
    .shows = lost_increments,
    .remedy = remedy,
};
