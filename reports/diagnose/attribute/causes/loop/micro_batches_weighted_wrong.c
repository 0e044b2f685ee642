/* Micro-batches of a step that have different numbers of targets (tokens that are not padding), each with its
 * mean loss and the same weight: their mean is not the mean over all targets, and the loss depends on how the
 * batch is cut. The loop states the ratio of the numbers (targets_ratio). */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const ab_stated ratio = ab_stated_of(&c->facts, "targets_ratio");
    if (!ratio.known || !(ratio.largest >= c->facts.limits->unequal_targets)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, ratio.first_step);
    ab_verdict_add_evidence(
        verdict,
        "micro-batches of a step have different numbers of targets, up to %.3g times as many, and their mean "
        "losses the same weight: a target in the smallest counts %.3g times",
        ratio.largest, ratio.largest);
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", ratio.index);
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "divide the sum of each micro-batch's losses by the targets of the whole step");
}

const ab_verdict_rule ab_verdict_rule_micro_batches_weighted_wrong = {
    .id = "micro_batches_weighted_wrong",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_GRADIENT,
    .text = "micro-batches with different numbers of targets have the same weight",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_one_batch},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
