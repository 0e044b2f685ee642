/* O0 does not learn because its weights hardly change: all updates of the run together amount to less than a
 * few percent. */
#include "kernels/core/text.h"
#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

/* Of a loop few steps are probed, most of them early: the rate may have risen since. */
static double size_of_step(const ab_case *c) {
    return ab_is_loop(&c->facts) ? ab_loop_step_size(&c->facts) : ab_relative_update(c->facts.baseline);
}

static bool judge_steps(const ab_case *c, ab_verdict *verdict) {
    const double step = size_of_step(c);
    if (!(step < c->facts.limits->rate_step) || !ab_baseline_is_flat(c) ||
        !(step * c->facts.baseline_loss.steps < c->facts.limits->rate_moves))
        return false;
    verdict->proof = AB_PROOF_SHOWN;
    verdict->since = 0;
    ab_say_baseline_fails(c, verdict);
    ab_verdict_add_evidence(
        verdict,
        "an update is %.2g of the weights (norms, O0): %d of them cannot move the weights by more than "
        "%.2g %%",
        step, c->facts.baseline_loss.steps, 100 * step * c->facts.baseline_loss.steps);
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/lost_updates");
    return true;
}

/* The step after which no update changes any weight of O0, because the schedule lowered the rate; -1: some
 * weights still change. */
static int stopped_since(const cJSON *baseline, double *lr) {
    const cJSON *param;
    int since = -1;
    cJSON_ArrayForEach(param, ab_json_at(baseline, "probes.lost_updates")) {
        const double step = ab_json_number(param, "freeze.stopped_since_step", -1);
        if (step < 0) return -1;
        since = step > since ? (int)step : since;
        *lr = ab_json_number(param, "freeze.lr", 0);
    }
    return since;
}

/* More than half of the first loss is left, and no weight changed during the last 40 % of the run or more. */
static bool stopped(const ab_case *c, ab_verdict *verdict) {
    const double left = c->facts.limits->stopped_left, early = c->facts.limits->stopped_early;
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    double lr = 0;
    const int since = o0->nonfinite == 0 ? stopped_since(c->facts.baseline, &lr) : -1;
    if (since < 0 || since > early * o0->steps || !(o0->final > left * o0->first)) return false;
    verdict->proof = AB_PROOF_SHOWN;
    verdict->since = since;
    ab_verdict_add_evidence(
        verdict,
        "since step %d of %d no update changes a weight of O0: the rate in force is %.2g, the "
        "first one was %.3g",
        since, o0->steps, lr, ab_json_number(c->facts.document, "config.lr", 0));
    ab_verdict_point_baseline(&c->facts, verdict, "/probes/lost_updates/0/freeze");
    ab_verdict_add_evidence(verdict, "O0's loss was %.4g at step 0 and is %.4g at the end", o0->first,
                            o0->final);
    ab_verdict_point_baseline(&c->facts, verdict, "/loss");
    return true;
}

/* The rate of a loop of the user's own fell to nothing, long before its end, while it was still learning. */
static bool rate_ended(const ab_case *c, ab_verdict *verdict) {
    const ab_loss_facts *loss = &c->facts.loss;
    const ab_rate_end end = ab_loop_rate_end(&c->facts);
    if (end.since < 0 || ab_stated_of(&c->facts, "optimizer_replaced").known || loss->nonfinite > 0 ||
        end.since > c->facts.limits->rate_ended_early * loss->steps ||
        loss->steps - end.since < 2 * AB_SUMMARY_FINAL_LOSSES || !ab_loop_cut_short(&c->facts, &end))
        return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, end.since);
    ab_verdict_add_evidence(verdict,
                            "the learning rate was %.3g at the first step, %.3g at most, %.2g at step %d of "
                            "%d, and is %.2g at the end: from that step on all rates together are less than "
                            "%.2g %% of those before",
                            end.first, end.largest, end.then, end.since, loss->steps, end.last,
                            100 * c->facts.limits->rate_rest);
    ab_verdict_point_document(verdict, "/probe/learning_rate/mean");
    ab_verdict_add_evidence(verdict, "the loss was %.4g at first and is %.4g at the end", loss->first,
                            loss->final);
    ab_verdict_point(&c->facts, verdict, "/loss");
    return true;
}

/* A scheduler of a loop takes a falling loss for a number that should rise. */
static bool cut_against(const ab_case *c, ab_verdict *verdict) {
    const ab_stated against = ab_stated_of(&c->facts, "plateau_cuts_against");
    const double most = c->facts.limits->plateau_share;
    if (against.times < c->facts.limits->plateau_cuts || !(against.last > most) ||
        ab_loop_is_flat(&c->facts, &c->facts.loss))
        return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, against.first_step);
    ab_verdict_add_evidence(
        verdict,
        "ReduceLROnPlateau with mode=\"max\" cut the learning rate %d times, in %.3g %% of "
        "them while what it is told was falling, as the loss was",
        against.times, 100 * against.last);
    ab_verdict_point_document(verdict, "/probe/facts/%d/last", against.index);
    return true;
}

/* A loop ends long before its warm-up does, and has not learned what it could. */
static bool warms_up(const ab_case *c, ab_verdict *verdict) {
    const ab_loss_facts *loss = &c->facts.loss;
    const ab_warm_up warm = ab_loop_warm_up(&c->facts);
    if (!(warm.last < c->facts.limits->warm_up_rate * warm.base) || loss->nonfinite > 0 ||
        loss->steps < 2 * AB_SUMMARY_FINAL_LOSSES)
        return false;
    if (!c->unlearned && !c->idle && !ab_loop_unsettled(&c->facts, loss->steps)) return false;
    ab_verdict_own(verdict, AB_PROOF_SHOWN, 0);
    ab_verdict_add_evidence(
        verdict,
        "the learning rate rose from %.2g at the first step to %.2g at the last of %d, and was "
        "still rising: %.2g %% of the %.3g that the schedule warms up to",
        warm.first, warm.last, loss->steps, 100 * warm.last / warm.base, warm.base);
    ab_verdict_point_document(verdict, "/probe/learning_rate/mean");
    ab_verdict_add_evidence(verdict, "the loss was %.4g at first and is %.4g at the end", loss->first,
                            loss->final);
    ab_verdict_point(&c->facts, verdict, "/loss");
    return true;
}

static bool shows(const ab_case *c, ab_verdict *verdict) {
    return warms_up(c, verdict) || cut_against(c, verdict) || rate_ended(c, verdict) || stopped(c, verdict);
}

static bool judge(const ab_case *c, ab_verdict *verdict) {
    return warms_up(c, verdict) || judge_steps(c, verdict) || shows(c, verdict);
}

static void remedy(const ab_case *c, const ab_verdict *verdict, ab_remedy *remedy) {
    const double lr = ab_json_number(c->facts.document, "config.lr", 0),
                 moved = size_of_step(c) * c->facts.baseline_loss.steps;
    const double factor = fmin(1e6, 10 * fmax(1, round(0.5 / (moved + 1e-12) / 10)));
    ab_verdict ignored = *verdict;
    if (warms_up(c, &ignored)) {
        ab_remedy_add_text(remedy, "count the warm-up in steps, not in tokens, samples or micro-batches");
        return;
    }
    if (cut_against(c, &ignored)) {
        ab_remedy_add_text(remedy, "ReduceLROnPlateau(optimizer, mode=\"min\") for a loss");
        return;
    }
    if (rate_ended(c, &ignored)) {
        ab_remedy_add_text(remedy, "call scheduler.step() once an epoch, outside the loop over batches, or "
                                   "count its T_max, step_size or total_steps in batches");
        ab_remedy_add_text(remedy, "in a LambdaLR's function divide by / in place of //");
        return;
    }
    if (!judge_steps(c, &ignored)) {
        (void)ab_remedy_constant_rate(&c->facts, remedy);
        ab_remedy_add_text(remedy, "or a schedule that falls later");
        return;
    }
    if (ab_remedy_rate(&c->facts, lr * factor, remedy))
        ab_remedy_add_text(remedy, "now it is %.3g", lr);
    else
        ab_remedy_add_text(remedy, "a learning rate above 0");
}

const ab_verdict_rule ab_verdict_rule_learning_rate_too_low = {
    .id = "learning_rate_too_low",
    .family = AB_FAMILY_TRAINING,
    .acts = AB_ACTS_UPDATE,
    .text = "the weights hardly move: the learning rate is too low",
    .needs = {&ab_need_o0, &ab_need_ledger},
    .predicts = AB_SYMPTOM_BASELINE,
    .refuted_by = {&ab_refuted_o0_rises},
    .judge = judge,
    .shows = shows,
    .remedy = remedy,
};
