/* Labels unrelated to the inputs, judged by the class means: nothing can be learned in any format. In a
 * loop's record: a target that is random numbers from which the input was not made, rows of another sample's,
 * or the same sample for all. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
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

static bool is_fresh_noise(const ab_case *c, ab_verdict *verdict) {
    const ab_stated noise = ab_stated_of(&c->facts, "target_is_fresh_noise");
    if (!noise.known) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, noise.place);
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(verdict,
                            "the target of %s is random numbers from which what is compared with it was not "
                            "made, %.0f times of %.0f",
                            ab_text_brief(noise.place, 60), noise.largest, noise.largest);
    ab_verdict_point_document(verdict, "/probe/facts/%d", noise.index);
    return true;
}

static bool is_stated(const ab_case *c, const char *name, const char *what, ab_verdict *verdict) {
    const ab_stated stated = ab_stated_of(&c->facts, name);
    if (!stated.known) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, stated.place);
    ab_verdict_add_evidence(verdict, "%s: %s, in all %.0f batches that were looked at",
                            ab_text_brief(stated.place, 60), what, stated.largest);
    ab_verdict_point_document(verdict, "/probe/facts/%d", stated.index);
    return true;
}

/* It may fit by chance, or learn what all samples have in common: its loss proves nothing. */
static bool is_in_another_order(const ab_case *c, ab_verdict *verdict) {
    return is_stated(
        c, "rows_in_another_order",
        "the rows of the inputs were put into the order of a torch.randperm, those of the targets "
        "were not",
        verdict);
}

/* Of a contrastive loss: each row is to be nearest to the same other sample, whichever it is itself. */
static bool is_one_for_all(const ab_case *c, ab_verdict *verdict) {
    return is_stated(c, "one_target_for_all",
                     "each sample of a batch is compared with all of another, and all have the same one as "
                     "their target",
                     verdict);
}

/* Whatever the loss does. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    return is_in_another_order(c, verdict) || is_one_for_all(c, verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    const cJSON *labels = ab_json_at(c->facts.baseline, "vitals.labels");
    const double ratio = ab_json_number(labels, "between_class_ratio", (double)NAN),
                 control = ab_json_number(labels, "control_ratio", (double)NAN);
    if (shows(c, verdict) || is_fresh_noise(c, verdict)) return true;
    if (!ab_baseline_is_flat(c)) return false;
    if (!(ratio < chance_limit(c, labels, control)) ||
        ab_json_number(labels, "samples", 0) < c->facts.limits->labels_samples)
        return false;
    ab_verdict_own(verdict, AB_PROOF_COMPARED, 0);
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(
        verdict,
        "class means of the inputs differ %.2g times as much as labels of chance make them; with labels "
        "of other samples it is %.2g, and chance allows %.2g (%.0f samples)",
        ratio, control, chance_limit(c, labels, control), ab_json_number(labels, "samples", 0));
    ab_verdict_point_baseline(&c->facts, verdict, "/vitals/labels/between_class_ratio");
    return true;
}

static bool o0_learns(const ab_case *c, const ab_verdict *verdict) {
    ab_verdict ignored = *verdict;
    return !shows(c, &ignored) && ab_refuted_o0_learns.holds(c, verdict);
}

static const ab_refutation refuted_o0_learns = {"O0 learns", o0_learns};

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
    .refuted_by = {&ab_refuted_o0_rises, &refuted_o0_learns},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
