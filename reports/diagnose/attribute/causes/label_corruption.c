/* Labels unrelated to the inputs, judged by the class means: nothing can be learned in any format. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The ratio is that of an analysis of variance: between class means over within, each by its degrees of
 * freedom. Labels of chance make it 1 with a variance of at most 2 / (classes - 1), that of one independent
 * input value and many samples. */
static double chance_limit(const ab_case *c, const cJSON *labels, double control) {
    const double free = fmax(1, ab_json_number(labels, "classes", 2) - 1);
    return fmax(1, control) * (1 + c->facts.limits->labels_deviations * sqrt(2 / free));
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const cJSON *labels = ab_json_at(c->facts.baseline, "vitals.labels");
    const double ratio = ab_json_number(labels, "between_class_ratio", (double)NAN),
                 control = ab_json_number(labels, "control_ratio", (double)NAN);
    if (!ab_baseline_is_flat(c)) return false;
    if (!(ratio < chance_limit(c, labels, control)) ||
        ab_json_number(labels, "samples", 0) < c->facts.limits->labels_samples)
        return false;
    verdict->proof = AB_PROOF_COMPARED;
    verdict->own = true;
    verdict->since = 0;
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(
        verdict,
        "class means of the inputs differ %.2g times as much as labels of chance make them; with labels "
        "of other samples it is %.2g, and chance allows %.2g (%.0f samples)",
        ratio, control, chance_limit(c, labels, control), ab_json_number(labels, "samples", 0));
    ab_verdict_point_baseline(&c->facts, verdict, "/vitals/labels/between_class_ratio");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (ab_remedy_no_fault(&c->facts, "shuffled_labels", remedy))
        (void)ab_remedy_more_steps(&c->facts, remedy);
    else
        ab_remedy_add_text(remedy, "look how samples and labels are paired: order, shuffling, file versions");
}

const ab_verdict_rule ab_verdict_rule_label_corruption = {
    .id = "label_corruption",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_DATA,
    .text = "labels have nothing to do with the inputs",
    .needs = {&ab_need_o0, &ab_need_vitals},
    .predicts = AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_o0_rises, &ab_refuted_o0_learns},
    .judge = judge,
    .remedy = remedy,
};
