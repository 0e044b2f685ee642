/* Whether a cell trains as O0 does. */
#include "reports/diagnose/detect/case.h"

#include "reports/diagnose/facts/loop.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"

#include <math.h>
#include <string.h>

/* A gap this small is chance: the noise floor or the rounding floor, if they were measured, or a share of
 * what O0 learned that healthy runs do not exceed (gap_learned), whichever is largest; and standard errors of
 * the gap. Every term is a loss difference of this record, so the units of the loss do not matter. */
static double chance_of_gap(const ab_case *c) {
    const ab_thresholds *t = c->facts.limits;
    const ab_floors floors = ab_summary_floors(c->facts.document);
    return fmax(fmax(floors.noise, floors.rounding), t->gap_learned * ab_facts_learned(&c->facts)) +
           t->gap_errors * ab_facts_gap_error(&c->facts);
}

/* Most of the averaged weights no longer change, are far from the weights, and score worse. */
static bool average_is_stuck(const ab_case *c) {
    const ab_thresholds *t = c->facts.limits;
    const cJSON *cell = c->facts.cell;
    const double differing = ab_json_number(cell, "vitals.average.differing", 0);
    return differing > 0 && ab_json_number(cell, "vitals.average.stuck", 0) > t->average_stuck * differing &&
           ab_json_number(cell, "vitals.average.distance_rms_share", 0) > t->average_distance &&
           ab_json_number(cell, "ema_test_loss", 0) >
               t->average_worse * ab_json_number(cell, "test_loss", (double)INFINITY);
}

/* Only if running statistics are kept in a half format: a test loss far above the training loss has other
 * causes too. So it must also be far above O0's, unless O0 was configured to keep them in half too. */
static bool is_eval_degraded(const ab_case *c) {
    const ab_thresholds *t = c->facts.limits;
    const double more = t->eval_more * fmax(0, ab_facts_learned(&c->facts));
    const double test = ab_facts_test_loss(&c->facts, c->facts.cell),
                 o0 = ab_json_at(c->facts.baseline, "test_loss")
                          ? ab_facts_test_loss(&c->facts, c->facts.baseline)
                          : 0;
    const bool asked = ab_json_at(c->facts.cell, "policy.batch_norm_statistics") != NULL;
    if (strcmp(ab_facts_statistics_format(&c->facts), "fp32") == 0 || !ab_json_at(c->facts.cell, "test_loss"))
        return false;
    return !(test < t->eval_times * c->facts.loss.final + more) &&
           (asked || !(test < t->eval_times * o0 + more));
}

/* O0 counts as learning if its final loss is below this share of the first, or of that of the best constant
 * prediction if that is less. */
static double unlearned_share(const ab_case *c) {
    const ab_thresholds *t = c->facts.limits;
    return ab_weight_growth(c->facts.baseline) > t->grown ? t->learned_share_grown : t->learned_share;
}

/* A loss that fell and is lower with the targets of the samples than with those of others has learned even if
 * the best constant would be better still, as of language models at first. Traces of knowledge do not count:
 * it must be worth as much as the fall of a loss that learned. */
static bool knows_targets(const ab_case *c) {
    const cJSON *o0 = c->facts.baseline;
    const double worth = ab_json_number(o0, "test_loss_shuffled.shuffled", (double)NAN) -
                         ab_json_number(o0, "test_loss_shuffled.matched", (double)NAN);
    return ab_facts_knows_targets(&c->facts) > c->facts.limits->knows_targets &&
           worth > (1 - unlearned_share(c)) * c->facts.baseline_loss.first;
}

/* What the best constant prediction costs is not known of losses that are written by hand; there the loss
 * must depend on which target belongs to which sample, where that was recorded. Of a loop it is known of the
 * cell itself, where its operations were looked at: an O0 that it is level with costs no less. */
static bool has_learned(const ab_case *c) {
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    if (ab_is_loop(&c->facts))
        return !ab_loop_is_flat(&c->facts, o0) &&
               (c->facts.gap > c->gap_limit || !ab_loop_knows_nothing(&c->facts));
    const double constant = ab_loss_of_constant(&c->facts), share = unlearned_share(c);
    if (!(o0->final < share * o0->first)) return false;
    return knows_targets(c) ||
           (isfinite(constant) ? o0->final < share * constant : isnan(ab_facts_knows_targets(&c->facts)));
}

/* Updates a tenth as large as the weights, growing weights and a loss that was above its first; or a loss
 * that rose and stayed high. Each occurs in healthy runs too: small initial weights before a norm grow a
 * hundredfold, and a language model may jump at first and still end well at two thirds of its first loss. So
 * the stronger the sign, the more O0 may have learned and still count as unstable. */
static bool is_lr_unstable(const ab_case *c) {
    const ab_thresholds *t = c->facts.limits;
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    if (!c->facts.baseline || c->unlearned || o0->nonfinite > 0 || ab_is_loop(&c->facts)) return false;
    const double step = ab_relative_update(c->facts.baseline), rest = o0->final / o0->first,
                 rise = o0->highest / o0->first;
    const bool grew = ab_weight_growth(c->facts.baseline) > t->unstable_growth, far = rise > t->far_above;
    return (grew && step > t->unstable_huge_step &&
            ((far && rest > t->unstable_rest_huge_risen) || rest > t->unstable_rest_huge)) ||
           (grew && step > t->unstable_step && rise > t->unstable_rise && rest > t->unstable_rest_step) ||
           (far && rest > t->unstable_rest_far) ||
           (rise > t->unstable_above && rest > t->unstable_rest_above);
}

/* Fewer test samples right than O0 has, by several standard errors of a difference of two shares (binomial).
 * A cell that is late, by skipped steps for example, is behind in accuracy as it is in its loss: there the
 * loss decides. */
static bool is_inaccurate(const ab_case *c) {
    const ab_thresholds *t = c->facts.limits;
    if (c->facts.gap > t->gap_learned * ab_facts_learned(&c->facts)) return false;
    const double n = ab_json_number(c->facts.cell, "test_count", 0),
                 own = ab_json_number(c->facts.cell, "test_accuracy", (double)NAN),
                 o0 = ab_json_number(c->facts.baseline, "test_accuracy", (double)NAN), mean = (own + o0) / 2;
    return n > 0 && o0 - own > t->accuracy_errors * sqrt(2 * fmax(mean * (1 - mean), 1 / n) / n);
}

/* O0's losses became NaN or inf, or rose far above the first. Those of a loop of the user's own may rise in a
 * sound run, as a reward's or a game's between networks: there only together with steps that are large. */
static bool has_diverged(const ab_case *c) {
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    if (!c->facts.baseline) return false;
    if (o0->nonfinite > 0 || !ab_is_loop(&c->facts))
        return o0->nonfinite > 0 || o0->sustained > c->facts.limits->far_above * o0->first;
    return ab_loop_rises(&c->facts) && ab_loop_step_size(&c->facts) > c->facts.limits->loop_step;
}

/* Losses that are NaN or inf, though few, and each in a step that the loss scaler skipped: they changed
 * nothing, and are no more than its skips that are taken for chance. Of ampbench's own networks every one
 * counts: their data are known to be sound. */
static bool are_harmless(const ab_case *c) {
    const ab_loss_facts *loss = &c->facts.loss;
    const int skipped = c->facts.skip.skipped - c->facts.skip.loss_finite;
    return ab_is_loop(&c->facts) && isfinite(loss->final) && loss->nonfinite == skipped &&
           loss->nonfinite <= c->facts.limits->spare_skips;
}

/* Where O0 has not learned, a gap below the fall of the loss that counts as learning is none either. */
static void widen_gap(ab_case *c) {
    const double least = (1 - c->facts.limits->learned_share) * fabs(c->facts.baseline_loss.first);
    c->gap_chance = fmax(c->gap_chance, least);
    c->gap_limit = fmax(c->gap_limit, least);
}

/* O0's loss fell, though not below the best constant, and the cell lacks most of that: O0 learned what the
 * cell did not, and is fit to be compared with. */
static bool lacks_what_o0_learned(const ab_case *c) {
    const ab_thresholds *t = c->facts.limits;
    const ab_loss_facts *o0 = &c->facts.baseline_loss;
    const double learned = ab_facts_learned(&c->facts);
    return c->behind && o0->final < t->learned_share * o0->first && learned > 0 &&
           c->facts.gap > t->chance_gap * learned;
}

/* A loop without an O0 beside it has not shown that it learns: its own loss did not fall, or no further than
 * to that of a constant prediction. */
static bool is_idle(const ab_case *c) {
    const ab_loss_facts *own = &c->facts.loss;
    return ab_is_loop(&c->facts) && !c->facts.baseline && own->nonfinite == 0 && isfinite(own->final) &&
           (ab_loop_is_flat(&c->facts, own) || ab_loop_knows_nothing(&c->facts));
}

static void find_symptoms(ab_case *c) {
    const ab_thresholds *t = c->facts.limits;
    c->nonfinite = c->facts.loss.nonfinite > 0 && !are_harmless(c);
    c->skipping =
        c->facts.skip.late_steps > 0 && c->facts.skip.late > t->skipping_share * c->facts.skip.late_steps;
    c->unlearned = c->facts.baseline && !has_learned(c);
    if (c->unlearned && !ab_is_loop(&c->facts)) widen_gap(c);
    c->behind = c->facts.gap > c->gap_limit;
    if (c->unlearned && lacks_what_o0_learned(c)) c->unlearned = false;
    c->idle = is_idle(c);
    c->diverged = has_diverged(c);
    c->lr_unstable = is_lr_unstable(c);
    c->stuck = average_is_stuck(c);
    c->eval_degraded = is_eval_degraded(c);
    c->inaccurate = is_inaccurate(c);
    c->sick = c->nonfinite || c->skipping || c->behind || c->unlearned || c->inaccurate || c->stuck ||
              c->eval_degraded;
}

ab_status ab_case_of(const ab_cells *cells, int index, const ab_thresholds *limits, ab_case *c) {
    *c = (ab_case){.gap_limit = (double)NAN, .gap_chance = (double)NAN};
    AB_TRY(ab_facts_of(cells, index, limits, &c->facts));
    if (c->facts.baseline) {
        c->gap_chance = chance_of_gap(c);
        c->gap_limit = c->gap_chance + ab_facts_gap_lateness(&c->facts);
    }
    find_symptoms(c);
    return AB_OK;
}

bool ab_case_sound_baseline(const ab_case *c) {
    return c->facts.baseline && c->facts.baseline != c->facts.cell && !c->unlearned;
}

bool ab_case_fails_alone(const ab_case *c) { return c->nonfinite || c->behind || c->skipping; }

bool ab_case_far_behind(const ab_case *c) {
    return c->facts.gap > c->facts.limits->far_behind * c->gap_limit;
}

bool ab_baseline_fails(const ab_case *c) { return c->facts.baseline && (c->unlearned || c->diverged); }

bool ab_baseline_is_flat(const ab_case *c) {
    const bool own = c->nonfinite || c->skipping; /* not explained by a flat O0 */
    return c->unlearned && c->facts.baseline_loss.nonfinite == 0 && !own;
}
