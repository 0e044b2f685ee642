/* Sums rounded to the half format after every addition: long sums lose their small addends. Of products, as
 * configured; or a sum or product of a loop's own, of which operations that were looked at show what was
 * lost. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"

#include <string.h>

/* The first non-finite value is a partial sum; the result itself would fit. */
static bool overflowed(const ab_case *c, ab_first_nonfinite *first) {
    *first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    return first->known && strcmp(first->cause, "accumulator_overflow") == 0;
}

/* The first loss, of the same weights and batch, differs from O0's by more than rounding of the products. */
static bool first_loss_differs(const ab_case *c) {
    return ab_facts_first_shift(&c->facts) > c->facts.limits->first_shift;
}

/* The ops of which the network's file asks it; without any it was asked of all. */
static void say_sums(const ab_case *c, ab_verdict *verdict) {
    char names[128] = "";
    const cJSON *op;
    cJSON_ArrayForEach(op, ab_json_at(c->facts.document, "graph.ops")) {
        if (strcmp(ab_json_text(op, "accumulate", "fp32"), "half") == 0)
            ab_text_append(names, sizeof names, "%s%s", names[0] ? ", " : " of ",
                           ab_json_text(op, "op", "?"));
    }
    ab_verdict_add_evidence(verdict, "sums of products%s are kept in %s", names, c->facts.half->name);
}

static bool lost_increments(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_lost(c, "sum_increments_lost", c->facts.limits->increments_lost,
                         "what is added to a sum that is kept in half does not change it", verdict);
}

static bool lost_products(const ab_case *c, ab_verdict *verdict) {
    return ab_judge_lost(c, "product_lost", c->facts.limits->increments_lost,
                         "what its factors make of a running product is lost, as they or it are in half",
                         verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (lost_increments(c, verdict) || lost_products(c, verdict)) return true;
    ab_first_nonfinite first;
    if (!ab_facts_accumulates_in_half(&c->facts) || !ab_case_fails_alone(c)) return false;
    const bool proved = overflowed(c, &first);
    ab_verdict_own(verdict,
                   proved                  ? AB_PROOF_SHOWN
                   : first_loss_differs(c) ? AB_PROOF_COMPARED
                                           : AB_PROOF_CONSISTENT,
                   0);
    verdict->remedy.with_others = true;
    say_sums(c, verdict);
    ab_verdict_point(&c->facts, verdict, "/accumulate");
    if (proved) ab_say_first_nonfinite(&c->facts, &first, verdict);
    if (c->behind) {
        ab_verdict_add_evidence(verdict, "loss gap to O0 %+.4g, allowed %.4g", c->facts.gap, c->gap_limit);
        ab_verdict_point(&c->facts, verdict, "/summary/loss_gap");
    }
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_wide_sums(&c->facts, remedy)) ab_remedy_add_text(remedy, "keep the sum in fp32");
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return lost_increments(c, verdict) || lost_products(c, verdict);
}

const ab_verdict_rule ab_verdict_rule_accumulator_in_half = {
    .id = "accumulator_in_half",
    .family = AB_FAMILY_PRECISION,
    .acts = AB_ACTS_FORWARD,
    .text = "sums are rounded to the half format after every addition",
    .needs = {&ab_need_o0, &ab_need_origin},
    .predicts = AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&ab_refuted_o0_fails},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
