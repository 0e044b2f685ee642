/* Evidence for cells without a named cause. Reads what was found, decides nothing. */
#include "reports/diagnose/without_cause.h"

#include "kernels/core/text.h"
#include "reports/diagnose/facts/loop.h"
#include "reports/diagnose/nearest.h"
#include "reports/record/json.h"
#include "reports/record/observed.h"
#include "reports/record/text.h"

#include <math.h>

/* ---- healthy ----------------------------------------------------------------------------------------- */

static void say_skips(const ab_case *c, const ab_skip_audit *skips, ab_verdict *v) {
    if (!c->facts.skip.dynamic) return;
    ab_verdict_add_evidence(
        v,
        "%d of %d steps skipped; this scaler is expected to skip up to %.0f while it finds its "
        "scale and then one in %.0f",
        c->facts.skip.skipped, c->facts.loss.steps, skips->expected_warm_up + ceil(skips->expected_later),
        c->facts.skip.window + 1);
    ab_verdict_point(&c->facts, v, "/steps_skipped");
}

static void explain_healthy(const ab_case *c, const ab_skip_audit *skips, ab_verdict *v) {
    if (isfinite(c->facts.gap) && isfinite(c->gap_limit)) {
        ab_verdict_add_evidence(v, "loss gap to O0 %+.4g, within %.4g", c->facts.gap, c->gap_limit);
        ab_verdict_point(&c->facts, v, "/summary/loss_gap");
    } else {
        const char *level = ab_json_text(c->facts.cell, "level", "O2");
        ab_text_show(v->missing, sizeof v->missing,
                     "there is no O0 cell to compare with: run with --levels O0,%s",
                     ab_text_brief(level, 20));
        if (ab_observed_document(c->facts.document))
            ab_text_show(v->missing, sizeof v->missing, "there is no fp32 run to compare with: %s",
                         ab_observed_baseline_hint(c->facts.cell));
    }
    if (c->facts.loss.nonfinite > 0) {
        ab_verdict_add_evidence(
            v,
            "%d of %d losses are NaN or inf, each in a step that the loss scaler skipped: it changed nothing",
            c->facts.loss.nonfinite, c->facts.loss.steps);
        ab_verdict_point(&c->facts, v, "/loss/%d", c->facts.loss.first_nonfinite);
    }
    say_skips(c, skips, v);
}

/* ---- undecided --------------------------------------------------------------------------------------- */

static void explain_noise(const ab_case *c, ab_verdict *v) {
    const bool loop = ab_is_loop(&c->facts);
    ab_verdict_add_evidence(v, "loss gap to O0 %+.4g, %.4g is allowed, and nothing in the record explains it",
                            c->facts.gap, c->gap_limit);
    ab_verdict_point(&c->facts, v, "/summary/loss_gap");
    ab_text_show(
        v->missing, sizeof v->missing, "whether that is more than two runs of O0 differ by: %s",
        loop ? "train the loop again in fp32 with other seeds, and compare those losses"
             : "measure the noise floor (no --no-floor), or run with --seeds 5 and `ampbench compare`");
}

/* The step of a loop, and whether its size is one of a rate that is too high. */
static void say_step_size(const ab_case *c, ab_verdict *v) {
    const double size = c->facts.baseline ? ab_loop_step_size(&c->facts) : (double)NAN,
                 limit = c->facts.limits->loop_step;
    if (!ab_is_loop(&c->facts) || !isfinite(size)) return;
    ab_verdict_add_evidence(v, "a step is %.2g of the weights that it changes (root mean squares): %s", size,
                            size > limit ? "as large as of a rate that is too high"
                                         : "no sign of a rate that is too high");
    ab_verdict_point_baseline(&c->facts, v, "/probes/lost_updates");
}

/* Of ampbench's own networks. */
static void explain_unlearned(const ab_case *c, ab_verdict *v) {
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    const int steps = o0->steps > 0 ? o0->steps : 1;
    ab_verdict_add_evidence(v, "O0's loss was %.4g at step 0 and is %.4g at the end of %d steps", o0->first,
                            o0->final, o0->steps);
    ab_verdict_point_baseline(&c->facts, v, "/summary/loss_final");
    ab_text_show(
        v->missing, sizeof v->missing,
        "O0 has not learned yet, so a level cannot be told from it: run longer, e.g. with --steps %d",
        4 * steps);
    (void)ab_remedy_times_steps(&c->facts, 4, &v->remedy);
}

/* Of a loop of the user's own, in fp32 or with nothing beside it. */
static void explain_idle(const ab_case *c, const ab_skip_audit *skips, ab_verdict *v) {
    const ab_loss_facts *loss = c->facts.baseline ? &c->facts.baseline_loss : &c->facts.loss;
    const ab_constant_loss constant = ab_loop_constant(&c->facts);
    ab_verdict_add_evidence(v, "the loss was %.4g at step 0 and is %.4g at the end of %d steps", loss->first,
                            loss->final, loss->steps);
    if (c->facts.baseline)
        ab_verdict_point_baseline(&c->facts, v, "/loss");
    else
        ab_verdict_point(&c->facts, v, "/loss");
    if (constant.known) {
        ab_verdict_add_evidence(v,
                                "predictions of the last steps cost %.4g at %s, the best constant one %.4g",
                                constant.model, ab_text_brief(constant.place, 60), constant.constant);
        ab_verdict_point_document(v, "/probe/facts/%d", constant.index);
    }
    say_skips(c, skips, v);
    ab_say_nearest(c, v);
    ab_text_show(
        v->missing, sizeof v->missing,
        "whether this loss is one that should fall (a reward's, or that of networks that play against "
        "each other, need not): if it is, %s; train longer, or once with a tenth of the learning rate, and "
        "compare the losses",
        c->facts.baseline ? "the loop does not learn in fp32 either" : "the loop does not learn");
}

/* ---- unknown ----------------------------------------------------------------------------------------- */

static void say_symptoms(const ab_case *c, ab_verdict *v) {
    const int since = ab_first_symptom(c);
    if (c->nonfinite) {
        ab_verdict_add_evidence(v, "%d of %d losses are NaN or inf, the first at step %d",
                                c->facts.loss.nonfinite, c->facts.loss.steps, c->facts.loss.first_nonfinite);
        ab_verdict_point(&c->facts, v, "/loss/%d", c->facts.loss.first_nonfinite);
    }
    if (c->skipping) {
        ab_verdict_add_evidence(v, "%d of the last %d steps were skipped, %d of all %d with a finite loss",
                                c->facts.skip.late, c->facts.skip.late_steps, c->facts.skip.loss_finite,
                                c->facts.skip.skipped);
        ab_verdict_point(&c->facts, v, "/skipped_steps");
    }
    if (c->behind) {
        ab_verdict_add_evidence(v, "the loss ends %.4g above O0's, %.4g is allowed", c->facts.gap,
                                c->gap_limit);
        ab_verdict_point(&c->facts, v, "/summary/loss_gap");
    }
    v->since = since < 0 ? AB_STEP_UNKNOWN : since;
}

static void say_baseline(const ab_case *c, ab_verdict *v) {
    if (!c->facts.baseline || c->facts.baseline == c->facts.cell) return;
    if (ab_baseline_fails(c)) {
        ab_say_baseline_fails(c, v);
        return;
    }
    ab_verdict_add_evidence(v, "O0 learns: its loss was %.4g at step 0 and is %.4g at the end",
                            c->facts.baseline_loss.first, c->facts.baseline_loss.final);
    ab_verdict_point_baseline(&c->facts, v, "/summary/loss_final");
}

/* Up to `most` causes of these symptoms that the record contradicts, those first that a rule had found. */
static void say_ruled_out(const ab_case *c, const ab_ruled_out *not_cause, int ruled_out, int most,
                          ab_verdict *v) {
    const unsigned symptoms = ab_symptoms_of(c);
    for (int i = 0; i < ruled_out && most > 0; i++, most--)
        ab_verdict_add_evidence(v, "not %s: %s", not_cause[i].rule->id, not_cause[i].by->text);
    for (int i = 0; ruled_out == 0 && i < ab_verdict_rule_count() && most > 0; i++) {
        const ab_verdict verdict = {.rule = ab_verdict_rule_at(i), .since = AB_STEP_UNKNOWN};
        const ab_refutation *by = verdict.rule->predicts & symptoms ? ab_refutation_of(c, &verdict) : NULL;
        if (!by) continue;
        ab_verdict_add_evidence(v, "not %s: %s", verdict.rule->id, by->text);
        most--;
    }
}

static void explain_unknown(const ab_case *c, const ab_ruled_out *not_cause, int ruled_out, ab_verdict *v) {
    const ab_first_nonfinite first = ab_first_nonfinite_of(c->facts.cell, c->facts.half->name, false);
    say_symptoms(c, v);
    if (c->nonfinite && first.known) ab_say_first_nonfinite(&c->facts, &first, v);
    say_baseline(c, v);
    say_step_size(c, v);
    say_ruled_out(c, not_cause, ruled_out, AB_VERDICT_EVIDENCE - v->evidences, v);
    ab_missing_evidence(c, v->missing, sizeof v->missing);
}

void ab_explain_without_cause(const ab_case *c, const ab_skip_audit *skips, const ab_ruled_out *not_cause,
                              int ruled_out, ab_verdict *v) {
    *v = (ab_verdict){.since = AB_STEP_UNKNOWN};
    if (c->undecided && c->behind)
        explain_noise(c, v);
    else if (c->undecided && ab_is_loop(&c->facts))
        explain_idle(c, skips, v);
    else if (c->undecided)
        explain_unlearned(c, v);
    else if (!c->sick)
        explain_healthy(c, skips, v);
    else
        explain_unknown(c, not_cause, ruled_out, v);
}
