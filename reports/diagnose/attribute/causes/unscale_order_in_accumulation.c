/* Gradients unscaled after every micro-batch: what was accumulated first is divided more than once, so only
 * the last micro-batch remains. In the record, gradients are unscaled more than once per step, or the first
 * gradient is smaller than O0's of the same batch. Or the scale changes between the micro-batches of a step.
 * Or a line of a loop divides gradients by the scale before the scaler does. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/lost.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The largest change of the scale from one step to the next, as a factor above 1; *rose: upwards. */
static double largest_change(const ab_case *c, bool *rose) {
    const cJSON *run;
    double before = 0, most = 1;
    cJSON_ArrayForEach(run, ab_json_at(c->facts.cell, "scale")) {
        const double here = cJSON_GetNumberValue(cJSON_GetArrayItem(run, 0));
        const double change = before > 0 && here > 0 ? fmax(here / before, before / here) : 1;
        if (change > most) {
            most = change;
            *rose = here > before;
        }
        before = here;
    }
    return most;
}

/* In a loop's record with one optimizer: the scale changed between two steps by more than one update of the
 * scaler can, so the micro-batches of a step were scaled by several scales. */
static bool seen_by_loop(const ab_case *c, ab_verdict *verdict) {
    const cJSON *scaler = ab_json_at(ab_loop_document(&c->facts), "probe.about.scaler");
    const double growth = ab_json_number(scaler, "growth_factor", 0),
                 backoff = ab_json_number(scaler, "backoff_factor", 0);
    bool rose = false;
    const double change = largest_change(c, &rose);
    if (!(growth > 1 && backoff > 0 && backoff < 1) ||
        cJSON_GetArraySize(ab_json_at(ab_loop_document(&c->facts), "probe.groups")) != 1)
        return false;
    const double once = rose ? growth : 1 / backoff;
    if (!(change > once * c->facts.limits->unscaled_times)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_verdict_add_evidence(
        verdict,
        "from one step to the next the scale %s by a factor of %.4g, which one update of the "
        "scaler does by %.4g: it is updated between the micro-batches of a step",
        rose ? "rose" : "fell", change, once);
    ab_verdict_point(&c->facts, verdict, "/scale");
    return true;
}

/* A line of the loop divides gradients in place by the scale, and the scaler divides them again. */
static bool by_hand(const ab_case *c, ab_verdict *verdict) {
    const ab_stated divided = ab_stated_of(&c->facts, "unscaled_by_hand");
    char scale[AB_TEXT_NUMBER];
    if (!divided.known) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_text_clean(verdict->layer, sizeof verdict->layer, divided.place);
    ab_verdict_add_evidence(
        verdict, "%s divides gradients in place by the loss scale, %s, and the scaler does so again",
        ab_text_brief(divided.place, 60), ab_text_scale(scale, divided.largest));
    ab_verdict_point_document(verdict, "/probe/facts/%d", divided.index);
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (by_hand(c, verdict) || seen_by_loop(c, verdict)) return true;
    const double micro = ab_json_number(c->facts.document, "config.gradient_accumulation_steps", 1);
    if (!ab_case_sound_baseline(c)) return false;
    const ab_tensor_sums first = ab_tensor_sums_of(c->facts.cell, "unscaled_gradients", "", false),
                         reference = ab_tensor_sums_of(c->facts.baseline, "unscaled_gradients", "", false);
    const double times = ab_times_unscaled(&c->facts), share = sqrt(first.energy / reference.energy);
    if (!(times > c->facts.limits->unscaled_times) &&
        !(share < c->facts.limits->unscaled_share && share > 0.5 / micro))
        return false;
    char scale[AB_TEXT_NUMBER];
    ab_verdict_own(verdict, times > c->facts.limits->unscaled_times ? AB_PROOF_SHOWN : AB_PROOF_COMPARED, 0);
    if (times > c->facts.limits->unscaled_times) {
        ab_verdict_add_evidence(
            verdict, "gradients are divided by the loss scale %s %.2g times a step, of %.0f micro-batches",
            ab_text_scale(scale, c->facts.skip.last_scale), times, micro);
        ab_verdict_point(&c->facts, verdict, "/probes/unscaled_gradients");
    }
    if (share < c->facts.limits->unscaled_share) {
        ab_verdict_add_evidence(
            verdict,
            "the first gradient's norm is %.2g of O0's over the same %.0f micro-batches: the last one is "
            "all that is left",
            share, micro);
        ab_verdict_point(&c->facts, verdict, "/probes/unscaled_gradients");
    }
    return true;
}

/* Gradients were written more than once per step, which has no other cause. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    return judge(c, verdict) && verdict->proof == AB_PROOF_SHOWN;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_no_fault(&c->facts, "unscale_each_micro_batch", remedy))
        ab_remedy_add_text(remedy, "unscale the gradients once, before the step");
}

static bool one_batch(const ab_case *c, const ab_verdict *verdict) {
    return !ab_is_stated(c, "unscaled_by_hand") && ab_refuted_one_batch.holds(c, verdict);
}

static const ab_refutation refuted_one_batch = {"a step has one micro-batch", one_batch};

const ab_verdict_rule ab_verdict_rule_unscale_order_in_accumulation = {
    .id = "unscale_order_in_accumulation",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_GRADIENT,
    .text = "accumulated gradients have more than one scale, or are unscaled more than once",
    .needs = {&ab_need_gradients, &ab_need_unscaled},
    .predicts = AB_SYMPTOM_BEHIND | AB_SYMPTOM_SKIPPING,
    .refuted_by = {&refuted_one_batch, &ab_refuted_no_scale},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
