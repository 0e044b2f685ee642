/* Ranks that no longer have the same weights: each adds the mean gradient to weights of its own, and what is
 * evaluated or saved is one rank's. Checksums of every rank's copy show it; a loss does not at first. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

static void say_when(double steps, char *text, size_t size) {
    if (steps > 0)
        ab_text_show(text, size, "after %.0f steps", steps);
    else
        ab_text_show(text, size, "before the first step");
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const cJSON *parted = ab_json_at(c->facts.cell, "replicas.parted");
    const double ranks = ab_json_number(c->facts.cell, "replicas.ranks", 2),
                 tensors = ab_json_number(parted, "differing_tensors", 1);
    char tensor[96], when[40];
    if (!parted) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, (int)ab_json_number(parted, "agreed_steps", 0));
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(parted, "layer", ""));
    ab_text_clean(tensor, sizeof tensor, ab_json_text(parted, "tensor", ""));
    say_when(ab_json_number(parted, "steps", 0), when, sizeof when);
    ab_verdict_add_evidence(verdict,
                            "%s %s of rank %.0f is not, bit by bit, that of %s (%.0f of %.0f ranks and %.0f "
                            "tensor%s differ)",
                            when, ab_text_brief(tensor, 80), ab_json_number(parted, "rank", 0),
                            ranks > 2 ? "most ranks" : "the other rank",
                            ab_json_number(parted, "differing_ranks", 1), ranks, tensors,
                            tensors == 1 ? "" : "s");
    ab_verdict_point(&c->facts, verdict, "/replicas/parted/rank");
    if (verdict->since > 0) {
        ab_verdict_add_evidence(verdict, "after %d steps the weights of all ranks were the same",
                                verdict->since);
        ab_verdict_point(&c->facts, verdict, "/replicas/parted/agreed_steps");
    }
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    const bool started = ab_json_number(c->facts.cell, "replicas.parted.steps", 0) > 0;
    (void)verdict;
    ab_remedy_add_text(remedy, "%s",
                       started
                           ? "update all ranks by the reduced gradients alone, step or skip on all alike "
                             "(torch DDP: no optimizer step inside no_sync()); a rank that parts again on "
                             "the same machine has a faulty processor or memory"
                           : "start all ranks from the same weights: load checkpoints before torch's or "
                             "apex's DistributedDataParallel is made, which broadcasts those of rank 0; "
                             "with DeepSpeed or FSDP load them on every rank");
}

const ab_verdict_rule ab_verdict_rule_ranks_out_of_step = {
    .id = "ranks_out_of_step",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_STORE,
    .text = "ranks no longer have the same weights",
    .needs = {&ab_need_replicas},
    .predicts = AB_SYMPTOM_BEHIND | AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_one_replica},
    .judge = judge,
    .shows = judge,
    .remedy = remedy,
};
