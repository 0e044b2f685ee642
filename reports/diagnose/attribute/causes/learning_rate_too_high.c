/* O0 itself diverges: its losses become non-finite or rise above a finite first one; or it does not learn
 * while its weights grow several times. Or it learns little and is unstable because its updates are large
 * relative to its weights. Or a loop's schedule ends high, and the loss with it. The half format is not the
 * cause. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* The learning rate at which O0's first update would be a hundredth of its weights (norms), or a thousandth
 * with momentum, which amplifies updates tenfold. Updates of Adam-like optimizers have the size of the rate
 * itself. If not recorded: a hundredth of the current rate. */
static double better_rate(const ab_case *c, double lr, double *share) {
    static const double least = 1e-12;
    const char *optimizer = ab_json_text(c->facts.document, "config.optimizer", "");
    const bool own_size = strstr(optimizer, "adam") || strstr(optimizer, "lamb");
    const bool buffered = ab_json_number(c->facts.document, "config.momentum", 0) > 0;
    const bool alone =
        own_size || strcmp(optimizer, "sgd") == 0 || (strcmp(optimizer, "fusedsgd") == 0 && !buffered);
    const double wanted = alone ? c->facts.limits->rate_wanted : c->facts.limits->rate_wanted_momentum;
    const double rms = ab_json_number(c->facts.baseline, "vitals.initial_weights.rms", 0);
    *share = own_size && rms > 0 ? lr / rms : lr * ab_relative_gradient(c->facts.baseline);
    return *share > least ? fmin(lr / 10, lr * wanted / *share) : lr / 100;
}

static void say_losses(const ab_case *c, ab_verdict *verdict) {
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    if (!c->lr_unstable) {
        ab_say_baseline_fails(c, verdict);
    } else {
        ab_verdict_add_evidence(verdict,
                                "O0 learns little: its loss was %.4g at step 0 and is %.4g at the end",
                                o0->first, o0->final);
        ab_verdict_point_baseline(&c->facts, verdict, "/loss");
    }
    if (!(o0->largest > c->facts.limits->unstable_above * o0->first)) return;
    ab_verdict_add_evidence(verdict, "O0's loss was %.4g at step 0 and reached %.4g", o0->first, o0->largest);
    ab_verdict_point_baseline(&c->facts, verdict, "/loss");
}

static void say_weights(const ab_case *c, ab_verdict *verdict) {
    const double step = ab_relative_update(c->facts.baseline);
    ab_verdict_add_evidence(verdict, "O0's weights became %.3g times as large (root mean squares)",
                            ab_weight_growth(c->facts.baseline));
    ab_verdict_point_baseline(&c->facts, verdict, "/vitals/final_weights/rms");
    if (!isfinite(step)) return;
    ab_verdict_add_evidence(verdict, "a step of O0 was %.2g of the norm of its first weights", step);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/lost_updates");
}

/* A relu of which most units were active at first: large updates made them inactive. */
static bool became_inactive(const ab_case *c, ab_verdict *verdict) {
    const double dead = c->facts.limits->dead_units, alive = c->facts.limits->alive_units;
    int place = 0;
    const cJSON *relu = c->unlearned ? ab_silent_relu(&c->facts, dead, &place) : NULL;
    const double first = ab_json_number(relu, "silent_first", 1),
                 last = ab_json_number(relu, "silent_last", 0);
    if (!relu || first > alive) return false;
    char now[AB_TEXT_NUMBER], then[AB_TEXT_NUMBER];
    ab_verdict_add_evidence(
        verdict, "%s %% of the units of %s are 0 for a whole batch at the end of O0, %s %% at the first step",
        ab_text_percent(now, last), ab_text_brief(ab_json_text(relu, "op", ""), 60),
        ab_text_percent(then, first));
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/signals/%d/silent_last", place);
    return true;
}

static void say_rate(const ab_case *c, ab_verdict *verdict) {
    const double lr = ab_json_number(c->facts.document, "config.lr", 0);
    double share;
    (void)better_rate(c, lr, &share);
    if (share > 0)
        ab_verdict_add_evidence(
            verdict, "the learning rate is %.3g: the first step is %.2g of the weights (norms)", lr, share);
    else
        ab_verdict_add_evidence(verdict, "the learning rate is %.3g", lr);
    ab_text_show(verdict->missing, sizeof verdict->missing,
                 "whether the rate or the data is at fault: run O0 with --lr %.3g, and look at --normalize",
                 lr / 10);
}

/* Of a loop whose loss compares predictions with targets: these cost no less than a constant one. */
static void say_constant(const ab_case *c, ab_verdict *verdict) {
    const ab_constant_loss loss = ab_loop_constant(&c->facts);
    ab_verdict_add_evidence(
        verdict,
        "after all steps predictions cost %.4g at %s, the best constant one %.4g: nothing is "
        "known of any sample",
        loss.model, ab_text_brief(loss.place, 60), loss.constant);
    ab_verdict_point_document(verdict, "/probe/facts");
}

/* Of a loop of the user's own the loss proves nothing by itself (it may be a reward, or a game's): what does
 * are steps so large that they replace the weights, with a loss that rose or is not finite, or that compares
 * predictions with targets and is none lower than a constant's. */
static bool judge_loop(const ab_case *c, ab_verdict *verdict) {
    const double size = ab_loop_step_size(&c->facts);
    const bool nothing = (c->unlearned || c->idle) && ab_loop_knows_nothing(&c->facts);
    if (!(c->diverged && isfinite(c->facts.baseline_loss.first)) && !nothing) return false;
    if (!(size > c->facts.limits->loop_step)) return false;
    verdict->proof = nothing || ab_loop_rises(&c->facts) ? AB_PROOF_SHOWN : AB_PROOF_COMPARED;
    verdict->since = 0;
    if (nothing)
        say_constant(c, verdict);
    else
        say_losses(c, verdict);
    ab_verdict_add_evidence(verdict,
                            "a step is %.2g of the weights that it changes (root mean squares), so that a "
                            "hundred of them, whatever their directions, leave nothing of these",
                            size);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/lost_updates");
    say_rate(c, verdict);
    return true;
}

/* The schedule of a loop turns: it ends at a rate that it had come down from, and the loss has risen with it.
 */
static bool rises_again(const ab_case *c, ab_verdict *verdict) {
    ab_rate_rise rise;
    if (!ab_is_loop(&c->facts) || c->facts.loss.nonfinite > 0 || !ab_loop_rate_rises_again(&c->facts, &rise))
        return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, rise.since);
    ab_verdict_add_evidence(verdict,
                            "the learning rate was %.3g, came down to %.2g at step %d of %d, and rose again "
                            "until the end, to %.3g",
                            rise.before, rise.least, rise.since, c->facts.loss.steps, rise.last);
    ab_verdict_point_document(verdict, "/probe/learning_rate/mean");
    ab_verdict_add_evidence(verdict, "the loss was %.4g where the rate was low, and is %.4g at the end",
                            rise.loss, c->facts.loss.final);
    ab_verdict_point(&c->facts, verdict, "/loss");
    return true;
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    if (ab_is_loop(&c->facts)) return judge_loop(c, verdict) || rises_again(c, verdict);
    const double far = c->facts.limits->far_above, above = c->facts.limits->unstable_above;
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    const bool grew = ab_weight_growth(c->facts.baseline) > c->facts.limits->grown && o0->nonfinite == 0;
    const bool risen = o0->highest > above * o0->first;
    const bool silenced = became_inactive(c, verdict);
    const bool fails = c->unlearned && (c->diverged || grew || risen || silenced);
    if (!(fails || c->lr_unstable) || !isfinite(o0->first)) return false;
    const bool lost = o0->nonfinite > 0 && o0->largest > far * o0->first;
    verdict->proof = lost || grew || silenced || c->lr_unstable ? AB_PROOF_SHOWN
                     : c->diverged                              ? AB_PROOF_COMPARED
                                                                : AB_PROOF_CONSISTENT;
    verdict->since = 0; /* its update; what it does is seen from step 1 on */
    say_losses(c, verdict);
    if (grew) say_weights(c, verdict);
    say_rate(c, verdict);
    return true;
}

/* No run that trains well takes such steps, though it may learn something. */
static bool shows(const ab_case *c, ab_verdict *verdict) {
    return (c->lr_unstable || ab_is_loop(&c->facts)) && judge(c, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    double share;
    ab_verdict ignored = *verdict;
    if (rises_again(c, &ignored)) {
        ab_remedy_add_text(remedy, "end the schedule where the run ends: count its T_max, or the steps of "
                                   "its last cycle, as the optimizer's steps are counted");
        return;
    }
    (void)ab_remedy_rate(&c->facts, better_rate(c, ab_json_number(c->facts.document, "config.lr", 0), &share),
                         remedy);
    (void)ab_remedy_masters(&c->facts, remedy); /* half weights lose the smaller updates */
    (void)ab_remedy_more_steps(&c->facts, remedy);
    ab_remedy_add_text(remedy, "or a lower one, or a schedule with warm-up");
}

static bool start(const ab_case *c, const ab_verdict *verdict) {
    const double rise = c->facts.baseline_loss.sustained / c->facts.baseline_loss.first;
    return ab_refuted_bad_start.holds(c, verdict) && !(rise > c->facts.limits->far_above);
}

static const ab_refutation refuted_start = {
    "inputs or initial weights are not finite, and no loss had risen before", start};

static bool no_value(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.baseline, "fp32", false);
    const bool none = strcmp(first.cause, "mathematics") == 0 || strcmp(first.cause, "poisoned_input") == 0;
    return c->facts.baseline_loss.nonfinite > 0 && none && !ab_baseline_jumps(c);
}

/* Of a loop: what it did to its weights is known, and it was little. */
static bool small_steps(const ab_case *c, const ab_verdict *verdict) {
    ab_verdict ignored = *verdict;
    return ab_is_loop(&c->facts) && ab_loop_step_size(&c->facts) <= c->facts.limits->loop_step &&
           !rises_again(c, &ignored);
}

/* Of a loop: its steps are along the sum of all gradients, and that sum grows at any rate. */
static bool sums(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_stated_of(&c->facts, "gradients_not_cleared").last > c->facts.limits->skipping_share;
}

static const ab_refutation refuted_sums = {"gradients are added to those of all steps before", sums};

static bool multiplied(const ab_case *c, const ab_verdict *verdict) {
    (void)verdict;
    return ab_loop_left_multiplied(&c->facts);
}

static const ab_refutation refuted_multiplied = {
    "the loss is multiplied by a number as large as a loss scale, and nobody divides the gradients",
    multiplied};

static const ab_refutation refuted_small_steps = {
    "a step is less than a tenth of the weights that it changes", small_steps};

static const ab_refutation refuted_no_value = {
    "O0's first value that is not finite is an input, or that of a formula which has none, and no loss had "
    "risen before",
    no_value};

const ab_verdict_rule ab_verdict_rule_learning_rate_too_high = {
    .id = "learning_rate_too_high",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_UPDATE,
    .text = "training diverges, or is unstable, in fp32 too: the steps are too large",
    .needs = {&ab_need_o0, &ab_need_ledger},
    .predicts = AB_SYMPTOM_BASELINE | AB_SYMPTOMS_OF_CELL,
    .refuted_by = {&refuted_start, &refuted_no_value, &refuted_small_steps, &refuted_sums,
                   &refuted_multiplied},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
