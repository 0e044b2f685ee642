/* A mean loss that is divided once more by the number of its targets or rows, or that is a mean over all
 * elements of which a mask made most 0: gradients are as many times too small. The loop states that number
 * (mean_divided_again, mean_over_masked). Adam's steps do not depend on the size of
 * gradients; those of SGD do, and a loss that still falls when the run ends, or never did, shows it. */
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"

#include <string.h>

/* Of the first optimizer: steps in proportion to the gradient. */
static bool steps_by_size(const ab_case *c) {
    const cJSON *group = cJSON_GetArrayItem(ab_json_at(ab_loop_document(&c->facts), "probe.groups"), 0);
    return strcmp(ab_json_text(group, "optimizer", ""), "sgd") == 0;
}

static bool say_number(const ab_case *c, ab_verdict *verdict) {
    const ab_stated divided = ab_stated_of(&c->facts, "mean_divided_again"),
                    masked = ab_stated_of(&c->facts, "mean_over_masked");
    if (divided.known) {
        ab_verdict_add_evidence(
            verdict,
            "the loss is a mean, and is divided by its %.0f targets or rows once more: gradients "
            "are %.0f times too small",
            divided.last, divided.last);
        ab_verdict_point_document(verdict, "/probe/facts/%d/last", divided.index);
        return true;
    }
    if (!(masked.least > c->facts.limits->masked_mean)) return false;
    ab_verdict_add_evidence(verdict,
                            "the loss is a mean over all elements, of which a mask makes most 0: gradients "
                            "are %.2g times too small",
                            masked.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", masked.index);
    return true;
}

static bool find(const ab_case *c, ab_verdict *verdict) {
    const ab_loss_facts *loss = &c->facts.loss;
    if (!steps_by_size(c) || loss->nonfinite > 0 ||
        !(ab_loop_is_flat(&c->facts, loss) || ab_loop_unsettled(&c->facts, loss->steps)) ||
        !say_number(c, verdict))
        return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_verdict_add_evidence(verdict, "the loss was %.4g at first and is %.4g at the end, where it %s",
                            loss->first, loss->final,
                            ab_loop_is_flat(&c->facts, loss) ? "has not fallen" : "still falls");
    ab_verdict_point(&c->facts, verdict, "/loss");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    const ab_stated divided = ab_stated_of(&c->facts, "mean_divided_again");
    if (divided.known)
        ab_remedy_add_text(
            remedy, "divide the mean by the number of micro-batches only, or take the sum: not by %.0f",
            divided.last);
    else
        ab_remedy_add_text(remedy, "divide the sum by the number of elements that the mask leaves");
}

const ab_verdict_rule ab_verdict_rule_mean_divided_again = {
    .id = "mean_divided_again",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_GRADIENT,
    .text = "a mean loss is divided by more than the number of its targets",
    .needs = {&ab_need_loop},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOM_BEHIND,
    .refuted_by = {&ab_refuted_first_loss},
    .judge = find,
    .shows = find,
    .remedy = remedy,
};
