/* Outputs grow from layer to layer at the first step, in O0 too: initial weights are too large. In a loop's
 * record: outputs or gradients leave fp32's range, before any update or although updates are small. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/layers.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The first op whose output is more than `far` times as large as the first op's, if the last one is too; else
 * NULL. *growth: the largest ratio. */
static const cJSON *first_above(const cJSON *cell, double far, int *place, double *growth) {
    const cJSON *list = ab_json_at(cell, "probes.signals"), *op, *found = NULL;
    const double start = ab_json_number(cJSON_GetArrayItem(list, 0), "rms_first", 0);
    double last = 0;
    int i = 0;
    cJSON_ArrayForEach(op, list) {
        const double ratio = start > 0 ? ab_json_number(op, "rms_first", 0) / start : 0;
        if (!found && ratio > far) {
            found = op;
            *place = i;
        }
        *growth = fmax(*growth, ratio);
        if (ratio > 0) last = ratio;
        i++;
    }
    return last > far ? found : NULL;
}

/* An exponential that does so by itself is a formula (math_singularity). */
static bool leaves_fp32(const ab_case *c, ab_verdict *verdict) {
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.baseline, "fp32", false);
    const double size = ab_loop_step_size(&c->facts);
    if (!ab_is_loop(&c->facts) || c->facts.baseline_loss.nonfinite == 0 || !ab_first_is_beyond_fp32(&first) ||
        ab_first_traits(&c->facts, &first) & AB_TRAIT_exponential ||
        (first.step > 0 && !(size <= c->facts.limits->loop_step)))
        return false;
    ab_verdict_own(verdict, first.step == 0 ? AB_PROOF_SHOWN : AB_PROOF_COMPARED, first.step);
    ab_say_baseline_fails(c, verdict);
    ab_say_first_nonfinite(&c->facts, &first, verdict);
    ab_verdict_point_baseline(&c->facts, verdict, "%s", first.pointer);
    if (first.step == 0)
        ab_verdict_add_evidence(verdict, "in double it is %.3g, beyond fp32, before any weight has changed",
                                first.value);
    else
        ab_verdict_add_evidence(
            verdict, "in double it is %.3g, beyond fp32, though a step is only %.2g of the weights",
            first.value, size);
    return true;
}

static const cJSON *reference(const ab_case *c) {
    return c->facts.baseline ? c->facts.baseline : c->facts.cell;
}

static void say_first(const ab_stated *first, ab_verdict *verdict) {
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_verdict_add_evidence(verdict,
                            "the predictions of the first step at %s are %.3g times as large as their "
                            "targets, or cost that much more than constant ones",
                            ab_text_brief(first->place, 60), first->last);
    ab_verdict_point_document(verdict, "/probe/facts/%d", first->index);
}

/* Of a loop that has learned nothing: its first predictions are far from any that the targets could ask for.
 * What its layers show may be of later steps, which the rate has spoilt: the largest output says where, not
 * whether. */
static bool far_off(const ab_case *c, const ab_stated *first, ab_verdict *verdict) {
    int place = -1;
    if (!(c->unlearned || c->idle) || !(first->last > c->facts.limits->exploding)) return false;
    const double growth = ab_layers_growth(reference(c), &place);
    const cJSON *output = cJSON_GetArrayItem(ab_json_at(reference(c), "probes.activations"), place);
    say_first(first, verdict);
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(output, "layer", first->place));
    if (isfinite(growth))
        ab_verdict_add_evidence(
            verdict, "the largest output, that of %s, is %.3g times that of the layer that runs first",
            ab_text_brief(verdict->layer, 60), growth);
    return true;
}

/* Saturating functions bound what each layer hands on; the gradients that come back show what the weights do
 * (chaotic initialisation: Poole et al. 2016, Schoenholz et al. 2017). */
static bool grows_back(const ab_case *c, const ab_stated *first, ab_verdict *verdict) {
    const ab_back back = ab_layers_back(reference(c));
    if (!(first->last > c->facts.limits->far_above) || !(back.growth > c->facts.limits->back_growth))
        return false;
    say_first(first, verdict);
    ab_text_clean(verdict->layer, sizeof verdict->layer, back.early);
    ab_verdict_add_evidence(
        verdict,
        "the gradient of the output of %s, which runs first, is %.3g times that of the last "
        "two layers: it grows from layer to layer on its way back",
        ab_text_brief(verdict->layer, 60), back.growth);
    ab_verdict_point(&c->facts, verdict, "/probes/tensors");
    return true;
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    const ab_stated first = ab_stated_of(&c->facts, "first_prediction");
    return ab_is_loop(&c->facts) && (far_off(c, &first, verdict) || grows_back(c, &first, verdict));
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (leaves_fp32(c, verdict)) return true;
    if (ab_is_loop(&c->facts)) return shows(c, verdict);
    const double far = c->facts.limits->exploding;
    const double uniform = ab_loss_of_uniform(&c->facts), first_loss = c->facts.baseline_loss.first;
    int place = 0;
    double growth = 0;
    const cJSON *op = first_above(c->facts.baseline, far, &place, &growth);
    if (!ab_baseline_fails(c) || !op) return false;
    /* a norm may take growth back; with a first loss far above that of knowing nothing it did not */
    ab_verdict_own(verdict,
                   isfinite(uniform) && first_loss > far * uniform ? AB_PROOF_SHOWN : AB_PROOF_COMPARED, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, ab_json_text(op, "op", ""));
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(verdict,
                            "at the first step the output of %s is %.3g times as large as the first op's",
                            ab_text_brief(verdict->layer, 60), growth);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/signals/%d/rms_first", place);
    if (isfinite(uniform))
        ab_verdict_add_evidence(verdict, "the first loss is %.4g; that of knowing nothing is %.3g",
                                first_loss, uniform);
    return true;
}

static bool learns(const ab_case *c, const ab_verdict *verdict) {
    return !ab_is_loop(&c->facts) && ab_refuted_o0_learns.holds(c, verdict);
}

static const ab_refutation refuted_learns = {"O0 learns", learns};

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)c;
    (void)verdict;
    ab_remedy_add_text(
        remedy, "smaller initial weights (\"init\" in the network's file), or norms between the layers");
}

const ab_verdict_rule ab_verdict_rule_exploding_signal = {
    .id = "exploding_signal",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_WEIGHTS,
    .text = "the signal grows from layer to layer: initial weights are too large",
    .needs = {&ab_need_o0, &ab_need_signals},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_learns},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
