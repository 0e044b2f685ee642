/* A fused SGD with momentum whose first step is skipped by the loss scaler: the kernel makes the momentum
 * buffers in that step and does not write them, and the next step reads what was in that memory. Known of
 * PyTorch up to 2.11. A resumed run has its buffers from the checkpoint. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <string.h>

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const cJSON *group = cJSON_GetArrayItem(ab_json_at(ab_loop_document(&c->facts), "probe.groups"), 0);
    if (!ab_json_is_true(group, "fused") || strcmp(ab_json_text(group, "optimizer", ""), "sgd") != 0 ||
        !(ab_json_number(c->facts.document, "config.momentum", 0) > 0) ||
        ab_json_number(c->facts.cell, "first_skipped_step", AB_STEP_UNKNOWN) != 0)
        return false;
    ab_verdict_own(verdict, AB_PROOF_COMPARED, 0);
    ab_verdict_add_evidence(verdict, "the first step of a fused SGD with momentum %.3g was skipped",
                            ab_json_number(c->facts.document, "config.momentum", 0));
    ab_verdict_point(&c->facts, verdict, "/first_skipped_step");
    ab_verdict_add_evidence(verdict, "its momentum buffers are made in that step and not written");
    ab_verdict_point_document(verdict, "/probe/groups/0/fused");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(remedy,
                       "an optimizer that is not fused, or a first scale at which no step is skipped");
}

static bool resumed(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_stated_of(&c->facts, "resumed_steps").largest > 0;
}

static const ab_refutation refuted_resumed = {"the run was resumed: its momentum is from the checkpoint",
                                              resumed};

const ab_verdict_rule ab_verdict_rule_fused_first_skip = {
    .id = "fused_first_skip",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_STATE,
    .text = "a fused SGD reads momentum that its skipped first step left unset",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOM_NONFINITE | AB_SYMPTOM_BEHIND,
    .refuted_by = {&refuted_resumed},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
