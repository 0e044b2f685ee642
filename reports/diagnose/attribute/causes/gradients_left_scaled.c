/* Gradients that reach the optimizer with the loss scale, or a part of it, still in them: nobody unscaled
 * them, or by another number. In the record, the unscaled gradients of the first step are larger than its
 * scaled ones over the scale, of the same cell: no other cell is compared. Whether learning survives depends
 * on the rate. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>

/* Norm of the first step's gradients after unscaling over that before, times the scale: 1 if they were
 * unscaled, the scale if not; NAN if not recorded. */
static double times_too_large(const cJSON *cell) {
    const double scaled = ab_tensor_sums_of(cell, "tensors", "weight_gradient", false).energy,
                 given = ab_tensor_sums_of(cell, "unscaled_gradients", "", false).energy;
    return scaled > 0 ? sqrt(given / scaled) * ab_first_scale(cell) : (double)NAN;
}

/* The loop saw an optimizer step with gradients of a scaled loss that nobody had divided by that scale. */
static bool seen_by_loop(const ab_case *c, ab_verdict *verdict) {
    const ab_stated left = ab_stated_of(&c->facts, "gradients_left_scaled");
    char text[AB_TEXT_NUMBER];
    if (!left.known || !(left.largest > 1)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, left.first_step);
    ab_verdict_add_evidence(
        verdict,
        "%s makes steps with gradients of a scaled loss that nobody divided by the scale, "
        "%s times too large, first at step %d",
        ab_text_brief(left.place, 40), ab_text_scale(text, left.largest), left.first_step);
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", left.index);
    return true;
}

/* A penalty of a gradient (torch.autograd.grad with create_graph) that was taken of a scaled loss. */
static bool in_a_penalty(const ab_case *c, ab_verdict *verdict) {
    const ab_stated left = ab_stated_of(&c->facts, "penalty_left_scaled");
    char text[AB_TEXT_NUMBER];
    if (!left.known || !(left.largest > 1)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, left.first_step);
    ab_verdict_add_evidence(
        verdict,
        "the loss has a penalty of gradients that were taken of a scaled loss and are %s times "
        "too large: nothing between them and the loss divides by the scale",
        ab_text_scale(text, left.largest));
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", left.index);
    return true;
}

/* The loop multiplies the loss by a number in place of a scaler, and nobody divides the gradients. */
static bool by_hand(const ab_case *c, ab_verdict *verdict) {
    const ab_stated times = ab_stated_of(&c->facts, "loss_multiplied");
    const double size = ab_loop_step_size(&c->facts);
    if (!(c->diverged || c->nonfinite) || !ab_loop_left_multiplied(&c->facts)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_verdict_add_evidence(verdict,
                            "the loss is multiplied by %.5g before backward(), and the optimizer steps with "
                            "the gradients as they are then",
                            times.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", times.index);
    ab_verdict_add_evidence(verdict,
                            "a step is %.2g of the weights that it changes (root mean squares); divided by "
                            "that number it would be %.2g",
                            size, size / times.last);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/lost_updates");
    if (c->diverged) ab_say_baseline_fails(c, verdict);
    return true;
}

/* A line divides some gradients by the number that the loss was multiplied by, which says what it is for,
 * and leaves others of the same optimizer as the backward pass made them. */
static bool in_part(const ab_case *c, ab_verdict *verdict) {
    const ab_stated left = ab_stated_of(&c->facts, "loss_divided_in_part");
    if (!(left.largest > c->facts.limits->hand_scale)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, left.first_step);
    ab_text_clean(verdict->layer, sizeof verdict->layer, left.place);
    ab_verdict_add_evidence(verdict,
                            "the loss is multiplied by %.5g before backward(); other gradients are divided "
                            "by that again before the step, that of %s is not",
                            left.largest, ab_text_brief(left.place, 60));
    ab_verdict_point_document(verdict, "/probe/facts/%d/largest", left.index);
    return true;
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    if (seen_by_loop(c, verdict) || in_a_penalty(c, verdict) || in_part(c, verdict) || by_hand(c, verdict))
        return true;
    const double micro = fmax(1, ab_json_number(c->facts.document, "config.gradient_accumulation_steps", 1)),
                 scale = ab_first_scale(c->facts.cell), times = times_too_large(c->facts.cell);
    /* a sum over micro-batches has at most sqrt(micro) times the norm of all its terms */
    if (!(times > c->facts.limits->left_scaled * sqrt(micro))) return false;
    char text[AB_TEXT_NUMBER];
    ab_verdict_own(verdict, AB_PROOF_COMPARED, 0);
    ab_verdict_add_evidence(
        verdict,
        "at the first step gradients reach the optimizer %.4g times as large as they are without the "
        "loss scale %s",
        times, ab_text_scale(text, scale));
    ab_verdict_point(&c->facts, verdict, "/probes/unscaled_gradients");
    return true;
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    (void)verdict;
    if (!ab_remedy_checked_scale(&c->facts, remedy))
        ab_remedy_add_text(remedy, "let the optimizer divide by the scale that the loss was multiplied with");
}

static bool no_scale(const ab_case *c, const ab_verdict *verdict) {
    return !ab_stated_of(&c->facts, "gradients_left_scaled").known &&
           !ab_stated_of(&c->facts, "loss_multiplied").known &&
           !ab_stated_of(&c->facts, "loss_divided_in_part").known && ab_refuted_no_scale.holds(c, verdict);
}

static const ab_refutation refuted_no_scale = {"the loss is not scaled", no_scale};

const ab_verdict_rule ab_verdict_rule_gradients_left_scaled = {
    .id = "gradients_left_scaled",
    .family = AB_FAMILY_CONFIGURATION,
    .acts = AB_ACTS_GRADIENT,
    .text = "the optimizer gets gradients that still carry the loss scale",
    .needs = {&ab_need_gradients, &ab_need_unscaled},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_no_scale},
    .judge = shows,
    .shows = shows,
    .remedy = remedy,
};
