/* Computes cases and calls the rules. Does not change the document. */
#include "reports/diagnose/diagnose.h"

#include "reports/diagnose/diagnose_facts.h"

#include "kernels/core/text.h"
#include "reports/record/exponents.h"
#include "reports/record/graph.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define AB_VERDICT(id) extern const ab_verdict_rule ab_verdict_rule_##id;
#include "reports/diagnose/verdicts.def"
#undef AB_VERDICT

static const ab_verdict_rule *const rules[] = {
#define AB_VERDICT(id) &ab_verdict_rule_##id,
#include "reports/diagnose/verdicts.def"
#undef AB_VERDICT
};
_Static_assert(AB_COUNT_OF(rules) <= AB_VERDICT_RULES, "AB_VERDICT_RULES");

int ab_verdict_rule_count(void) { return (int)AB_COUNT_OF(rules); }
const ab_verdict_rule *ab_verdict_rule_at(int i) { return rules[i]; }

const char *ab_verdict_family_name(ab_verdict_family family) {
    static const char *const names[] = {"healthy", "precision", "configuration", "training"};
    return names[family];
}

/* ---- losses ---------------------------------------------------------------------------------- */

/* Mean of the last losses of the first `steps`. */
static double mean_of_last(const cJSON *losses, int steps) {
    const int used = steps < AB_SUMMARY_FINAL_LOSSES ? steps : AB_SUMMARY_FINAL_LOSSES;
    double sum = 0;
    int step = 0;
    const cJSON *loss;
    cJSON_ArrayForEach(loss, losses) {
        if (step++ < steps - used) continue;
        if (step > steps) break;
        if (!cJSON_IsNumber(loss)) return (double)NAN;
        sum += loss->valuedouble;
    }
    return used > 0 ? sum / used : (double)NAN;
}

static double highest_of(const cJSON *losses) {
    enum { ROW = 5 };
    double row[ROW] = {0}, highest = 0;
    const cJSON *loss;
    int step = 0;
    cJSON_ArrayForEach(loss, losses) {
        double sum = 0;
        row[step % ROW] = cJSON_IsNumber(loss) ? loss->valuedouble : (double)NAN;
        for (int i = 0; i < ROW; i++) sum += row[i];
        if (step++ >= ROW) highest = fmax(highest, sum / ROW); /* no window contains the first loss */
    }
    return highest;
}

static ab_loss_facts losses_of(const cJSON *cell) {
    const cJSON *losses = ab_json_at(cell, "loss"), *loss;
    ab_loss_facts facts = {.first_nonfinite = -1, .first = (double)NAN, .largest = (double)NAN};
    cJSON_ArrayForEach(loss, losses) {
        const int step = facts.steps++;
        if (!cJSON_IsNumber(loss)) {
            facts.nonfinite++;
            if (facts.first_nonfinite < 0) facts.first_nonfinite = step;
            continue;
        }
        if (step == 0) facts.first = loss->valuedouble;
        facts.largest = fmax(facts.largest, loss->valuedouble);
    }
    facts.final = mean_of_last(losses, facts.steps);
    facts.highest = highest_of(losses);
    return facts;
}

/* Standard error of the mean per-batch difference between the last losses of two cells; at most that of two
 * cells with O0's (`b`) variance, so unstable losses do not raise the limit. */
static double gap_error(const cJSON *a, const cJSON *b) {
    const int n = cJSON_GetArraySize(a), used = n < AB_SUMMARY_FINAL_LOSSES ? n : AB_SUMMARY_FINAL_LOSSES;
    double sum = 0, squares = 0, own = 0, own_squares = 0;
    if (used < 2 || cJSON_GetArraySize(b) != n) return 0;
    for (int i = n - used; i < n; i++) {
        const cJSON *x = cJSON_GetArrayItem(a, i), *y = cJSON_GetArrayItem(b, i);
        if (!cJSON_IsNumber(x) || !cJSON_IsNumber(y)) return 0;
        const double gap = x->valuedouble - y->valuedouble;
        sum += gap;
        squares += gap * gap;
        own += y->valuedouble;
        own_squares += y->valuedouble * y->valuedouble;
    }
    const double variance = (squares - sum * sum / used) / (used - 1),
                 most = 2 * (own_squares - own * own / used) / (used - 1);
    return sqrt(fmax(0, fmin(variance, most)) / used);
}

/* ---- skips ----------------------------------------------------------------------------------- */

/* cells[].scale is a run-length list of [scale, steps]. */
static void read_scales(const cJSON *cell, ab_skip_facts *skip) {
    const cJSON *run;
    bool first = true;
    cJSON_ArrayForEach(run, ab_json_at(cell, "scale")) {
        const cJSON *value = cJSON_GetArrayItem(run, 0);
        if (!cJSON_IsNumber(value)) continue;
        const double scale = value->valuedouble;
        if (first) skip->first_scale = skip->least_scale = skip->largest_scale = scale;
        first = false;
        skip->last_scale = scale;
        skip->least_scale = fmin(skip->least_scale, scale);
        skip->largest_scale = fmax(skip->largest_scale, scale);
    }
}

static bool loss_is_finite(const cJSON *losses, int step) {
    return cJSON_IsNumber(cJSON_GetArrayItem(losses, step));
}

static ab_skip_facts skips_of(const cJSON *document, const cJSON *cell, int steps) {
    const cJSON *losses = ab_json_at(cell, "loss"), *skipped;
    ab_skip_facts facts = {.skipped = (int)ab_json_number(cell, "steps_skipped", 0),
                           .late_steps = steps - steps / 4,
                           .window = ab_json_number(cell, "scale_window",
                                                    ab_json_number(document, "config.scale_window", 2000))};
    facts.dynamic = cJSON_IsString(ab_json_at(cell, "policy.loss_scale"));
    cJSON_ArrayForEach(skipped, ab_json_at(cell, "skipped_steps")) {
        facts.late += skipped->valuedouble >= steps / 4;
        facts.loss_finite += loss_is_finite(losses, (int)skipped->valuedouble);
    }
    read_scales(cell, &facts);
    return facts;
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* Most of the averaged weights no longer change, are far from the weights, and score worse. */
static bool average_is_stuck(const cJSON *cell) {
    static const double most = 0.5, far = 0.02, worse = 1.05;
    const double differing = ab_json_number(cell, "vitals.average.differing", 0);
    return differing > 0 && ab_json_number(cell, "vitals.average.stuck", 0) > most * differing &&
           ab_json_number(cell, "vitals.average.distance_rms_share", 0) > far &&
           ab_json_number(cell, "ema_test_loss", 0) >
               worse * ab_json_number(cell, "test_loss", (double)INFINITY);
}

const char *ab_case_statistics_format(const ab_case *facts) {
    const char *model = ab_json_text(facts->cell, "policy.cast_model_type", "fp32");
    const bool kept =
        ab_json_is_true(facts->cell, "policy.keep_batchnorm_fp32") || strcmp(model, facts->half->name) != 0;
    return ab_json_text(facts->cell, "policy.batch_norm_statistics", kept ? "fp32" : model);
}

/* Only if running statistics are kept in a half format: a test loss far above the training loss has other
 * causes too. So it must also be far above O0's, unless O0 was configured to keep them in half too. */
static bool is_eval_degraded(const ab_case *c) {
    static const double times = 2, more = 0.5;
    const double test = ab_json_number(c->cell, "test_loss", (double)NAN),
                 o0 = ab_json_number(c->baseline, "test_loss", 0);
    const bool asked = ab_json_at(c->cell, "policy.batch_norm_statistics") != NULL;
    if (strcmp(ab_case_statistics_format(c), "fp32") == 0 || !ab_json_at(c->cell, "test_loss")) return false;
    return !(test < times * c->loss.final + more) && (asked || !(test < times * o0 + more));
}

/* The op whose output the classification loss reads; "": the record has no edges. */
static const char *logits_op(const ab_graph *graph, const cJSON *loss) {
    const cJSON *first = cJSON_GetArrayItem(ab_json_at(loss, "inputs"), 0);
    return !graph->by_position && cJSON_IsString(first) ? first->valuestring : "";
}

const cJSON *ab_case_logits(const ab_case *c) {
    const ab_graph graph = ab_graph_of(c->document, ab_json_at(c->baseline, "implementations"));
    const cJSON *tensor, *loss = ab_graph_only(&graph, AB_TRAIT_class_loss);
    const char *op = logits_op(&graph, loss);
    if (!c->baseline || !loss) return NULL;
    cJSON_ArrayForEach(tensor, ab_json_at(c->baseline, "probes.tensors")) {
        if (strcmp(ab_json_text(tensor, "kind", ""), "activation_gradient") != 0) continue;
        /* without edges: the first gradient of the backward pass */
        if (!op[0] || strcmp(ab_json_text(tensor, "layer", ""), op) == 0) return tensor;
    }
    return NULL;
}

double ab_case_classes(const ab_case *c) {
    const double classes = ab_json_number(c->document, "data.classes", 0);
    const cJSON *op, *tensor = classes < 2 ? ab_case_logits(c) : NULL;
    if (!tensor) return classes >= 2 ? classes : 0;
    cJSON_ArrayForEach(op, ab_json_at(c->baseline, "probes.signals")) {
        if (strcmp(ab_json_text(op, "op", ""), ab_json_text(tensor, "layer", "-")) == 0)
            return ab_json_number(op, "units", 0);
    }
    return 0;
}

/* O0 counts as learning if its final loss is below this share of the first, or of log(classes) if that is
 * less: 0.99, or 0.95 if its weights grew several times. */
static double unlearned_share(const ab_case *c) {
    static const double far = 3;
    return ab_weight_growth(c->baseline) > far ? 0.95 : 0.99;
}

/* Updates a tenth as large as the weights, growing weights and a loss that was above its first; or a loss
 * that rose and stayed high. Each occurs in healthy runs too: small initial weights before a norm grow a
 * hundredfold, and a language model may jump at first and still end well at two thirds of its first loss. So
 * the stronger the sign, the more O0 may have learned and still count as unstable. */
static bool is_lr_unstable(const ab_case *c) {
    static const double large = 0.1, huge = 1, far = 2.5, higher = 1.05, above = 1.2, far_above = 3;
    const ab_loss_facts *o0 = &c->baseline_loss;
    if (!c->baseline || c->unlearned || o0->nonfinite > 0) return false;
    const double step = ab_relative_update(c->baseline), rest = o0->final / o0->first,
                 rise = o0->highest / o0->first;
    const bool grew = ab_weight_growth(c->baseline) > far;
    return (grew && step > huge && ((rise > far_above && rest > 0.1) || rest > 0.7)) ||
           (grew && step > large && rise > higher && rest > 0.22) || (rise > far_above && rest > 0.5) ||
           (rise > above && rest > 0.8);
}

static void find_symptoms(ab_case *c) {
    static const double skipping_share = 0.2, far_above = 3;
    c->nonfinite = c->loss.nonfinite > 0;
    c->skipping = c->skip.late_steps > 0 && c->skip.late > skipping_share * c->skip.late_steps;
    c->behind = c->gap > c->gap_limit;
    const ab_loss_facts *o0 = &c->baseline_loss;
    const double classes = ab_case_classes(c);
    const double chance = classes > 1 ? log(classes) : (double)INFINITY;
    c->unlearned = c->baseline && !(o0->final < unlearned_share(c) * fmin(o0->first, chance));
    c->diverged = c->baseline && (o0->nonfinite > 0 || o0->largest > far_above * o0->first);
    c->lr_unstable = is_lr_unstable(c);
    c->stuck = average_is_stuck(c->cell);
    c->eval_degraded = is_eval_degraded(c);
    c->sick = c->nonfinite || c->skipping || c->behind || c->unlearned || c->stuck || c->eval_degraded;
}

/* O0's loss `steps` before its end minus its final loss; at least 0. */
static double cost_of_steps(const ab_case *c, int steps) {
    const ab_loss_facts *o0 = &c->baseline_loss;
    return fmax(0, mean_of_last(ab_json_at(c->baseline, "loss"), o0->steps - steps) - o0->final);
}

/* The largest of: what a certificate allows; a hundredth of what O0 learned (99 % of the way to a loss near 0
 * is no gap); what O0 gained in the last twentieth of the steps (rounding decides when a net leaves a
 * plateau, and on the slope after it a few steps make a large difference). Plus the cost of skipped steps and
 * two standard errors of the gap. */
static double gap_limit(const ab_case *c) {
    static const double part_learned = 0.01;
    enum { LATER = 20 };
    const double floor = fabs(ab_json_number(c->document, "noise_floor.loss_gap", 0));
    const ab_loss_facts *o0 = &c->baseline_loss;
    const double certified = ab_summary_allowed_gap(floor, o0->final);
    const double tolerated =
        fmax(part_learned * (o0->first - o0->final), cost_of_steps(c, o0->steps / LATER));
    return fmax(certified, tolerated) + c->skip_cost +
           2 * gap_error(ab_json_at(c->cell, "loss"), ab_json_at(c->baseline, "loss"));
}

ab_status ab_case_of(const cJSON *document, int index, ab_case *facts) {
    const cJSON *cell = cJSON_GetArrayItem(ab_json_at(document, "cells"), index);
    *facts = (ab_case){.document = document, .cell = cell, .index = index};
    AB_TRY(ab_format_find(ab_json_text(cell, "half_format", ""), &facts->half));
    facts->baseline = ab_summary_baseline(document, cell);
    facts->loss = losses_of(cell);
    facts->skip = skips_of(document, cell, facts->loss.steps);
    facts->gap = ab_json_number(cell, "summary.loss_gap", (double)NAN);
    facts->gap_limit = (double)NAN;
    if (facts->baseline) {
        facts->baseline_loss = losses_of(facts->baseline);
        facts->skip_cost = cost_of_steps(facts, facts->skip.skipped);
        facts->gap_limit = gap_limit(facts);
    }
    find_symptoms(facts);
    return AB_OK;
}

bool ab_case_uses_half(const ab_case *facts) {
    const char *model = ab_json_text(facts->cell, "policy.cast_model_type", "fp32");
    return strcmp(model, "fp32") != 0 || ab_json_is_true(facts->cell, "policy.patch_torch_functions");
}

bool ab_case_half_weights(const ab_case *facts) {
    const char *model = ab_json_text(facts->cell, "policy.cast_model_type", "fp32");
    return strcmp(model, facts->half->name) == 0 && !ab_json_is_true(facts->cell, "policy.master_weights");
}

bool ab_case_sound_baseline(const ab_case *facts) {
    return facts->baseline && facts->baseline != facts->cell && !facts->unlearned;
}

double ab_case_flushed_energy(const ab_case *facts, const cJSON *tensor) {
    const ab_exponent_mass all = ab_exponents_all(tensor);
    return all.energy > 0 ? ab_exponents_flushed(tensor, facts->half, 0).energy / all.energy : (double)NAN;
}

/* ---- verdicts -------------------------------------------------------------------------------- */

static ab_evidence *next_evidence(ab_verdict *verdict) {
    if (verdict->evidences == AB_VERDICT_EVIDENCE) return NULL;
    ab_evidence *evidence = &verdict->evidence[verdict->evidences++];
    evidence->pointer[0] = '\0';
    return evidence;
}

void ab_verdict_say(ab_verdict *verdict, const char *format, ...) {
    char raw[AB_VERDICT_TEXT];
    ab_evidence *evidence = next_evidence(verdict);
    if (!evidence) return;
    va_list args;
    va_start(args, format);
    ab_text_show_args(raw, sizeof raw, format, args);
    va_end(args);
    ab_text_clean(evidence->text, sizeof evidence->text, raw);
}

static AB_PRINTF(3, 0) void point_into(int cell, ab_verdict *verdict, const char *format, va_list args) {
    if (verdict->evidences == 0) return;
    ab_evidence *evidence = &verdict->evidence[verdict->evidences - 1];
    const size_t used = strlen(ab_text_exact(evidence->pointer, sizeof evidence->pointer, "/cells/%d", cell));
    if (!ab_text_fits_args(evidence->pointer + used, sizeof evidence->pointer - used, format, args))
        evidence->pointer[0] = '\0'; /* no pointer instead of a truncated one */
}

void ab_verdict_point(const ab_case *facts, ab_verdict *verdict, const char *format, ...) {
    va_list args;
    va_start(args, format);
    point_into(facts->index, verdict, format, args);
    va_end(args);
}

void ab_verdict_point_baseline(const ab_case *facts, ab_verdict *verdict, const char *format, ...) {
    const cJSON *cell;
    int index = 0;
    va_list args;
    cJSON_ArrayForEach(cell, ab_json_at(facts->document, "cells")) {
        if (cell == facts->baseline) break;
        index++;
    }
    va_start(args, format);
    point_into(index, verdict, format, args);
    va_end(args);
}

void ab_verdict_option(ab_verdict *verdict, const char *name, const char *format, ...) {
    if (verdict->options + 2 > AB_VERDICT_OPTIONS) return;
    char(*option)[AB_VERDICT_TEXT] = &verdict->option[verdict->options];
    ab_text_exact(option[0], AB_VERDICT_TEXT, "%s", name);
    va_list args;
    va_start(args, format);
    if (ab_text_fits_args(option[1], AB_VERDICT_TEXT, format, args)) verdict->options += 2;
    va_end(args);
}

static void explain_healthy(const ab_case *c, const ab_skip_audit *skips, ab_verdict *v) {
    *v = (ab_verdict){.confidence = 1};
    if (isfinite(c->gap) && isfinite(c->gap_limit)) {
        ab_verdict_say(v, "loss gap to O0 %+.4g, within %.4g", c->gap, c->gap_limit);
        ab_verdict_point(c, v, "/summary/loss_gap");
    } else {
        ab_text_show(v->missing, sizeof v->missing,
                     "there is no O0 cell to compare with: run with --levels O0,%s",
                     ab_text_brief(ab_json_text(c->cell, "level", "O2"), 20));
    }
    if (!c->skip.dynamic) return;
    ab_verdict_say(v,
                   "%d of %d steps skipped; this scaler is expected to skip up to %.0f while it finds its "
                   "scale and then one in %.0f",
                   c->skip.skipped, c->loss.steps, skips->expected_warm_up + ceil(skips->expected_later),
                   c->skip.window + 1);
    ab_verdict_point(c, v, "/steps_skipped");
}

static void explain_noise(const ab_case *c, ab_verdict *v) {
    ab_verdict_say(v, "loss gap to O0 %+.4g, %.4g is allowed, and nothing in the record explains it", c->gap,
                   c->gap_limit);
    ab_verdict_point(c, v, "/summary/loss_gap");
    ab_text_show(
        v->missing, sizeof v->missing,
        "whether that is more than two runs of O0 differ by: measure the noise floor (no --no-floor), or run "
        "with --seeds 5 and `ampbench compare`");
}

static void explain_undecided(const ab_case *c, ab_verdict *v) {
    *v = (ab_verdict){.confidence = 0};
    if (c->behind) {
        explain_noise(c, v);
        return;
    }
    ab_verdict_say(v, "O0's loss was %.4g at step 0 and is %.4g at the end of %d steps",
                   c->baseline_loss.first, c->baseline_loss.final, c->baseline_loss.steps);
    ab_verdict_point_baseline(c, v, "/summary/loss_final");
    ab_text_show(
        v->missing, sizeof v->missing,
        "O0 has not learned yet, so a level cannot be told from it: run longer, e.g. with --steps %d",
        4 * (c->loss.steps > 0 ? c->loss.steps : 1));
    ab_verdict_option(v, "--steps", "%d", 4 * (c->loss.steps > 0 ? c->loss.steps : 1));
}

/* Calls `judge` of all rules for a sick cell, else `shows`. */
static void judge_all(ab_diagnosis *diagnosis) {
    for (size_t i = 0; i < AB_COUNT_OF(rules); i++) {
        ab_verdict verdict = {.rule = rules[i], .since = AB_SINCE_UNKNOWN};
        bool (*judge)(const ab_case *, ab_verdict *) =
            diagnosis->facts.sick ? rules[i]->judge : rules[i]->shows;
        if (judge && judge(&diagnosis->facts, &verdict)) diagnosis->verdict[diagnosis->verdicts++] = verdict;
    }
    ab_order_verdicts(diagnosis);
}

/* A gap above half of the limit and a tenth of O0's loss does not make a cell sick by itself, but it does
 * together with a verdict of sufficient confidence. */
static void judge_suspect(ab_diagnosis *d) {
    static const double half_of_limit = 0.5, tenth_of_loss = 0.1, sure = 0.65;
    ab_case *c = &d->facts;
    if (c->baseline == c->cell || !(c->gap > half_of_limit * c->gap_limit) ||
        !(c->gap > tenth_of_loss * fabs(c->baseline_loss.final)))
        return;
    c->behind = c->sick = c->suspect = true;
    judge_all(d);
    if (d->verdicts > 0 && d->verdict[0].confidence >= sure) return;
    c->behind = c->sick = c->suspect = false;
    d->verdicts = 0;
}

/* It learns, though less than O0, and there is no noise floor to compare with: the gap may be noise.
 */
static bool may_be_chance(const ab_case *c) {
    const double learned = c->baseline_loss.first - c->baseline_loss.final;
    return c->behind && !c->unlearned && c->gap < learned / 2 &&
           !ab_json_at(c->document, "noise_floor.loss_gap");
}

/* The only symptom is that O0 has not learned (more steps may show why) or an unexplained gap.
 */
static bool is_undecided(const ab_diagnosis *d) {
    const ab_case *c = &d->facts;
    if (d->verdicts > 0 || c->diverged || c->nonfinite || c->skipping || c->stuck || c->eval_degraded)
        return false;
    return c->behind ? may_be_chance(c) : c->unlearned;
}

ab_status ab_diagnose(const cJSON *document, int index, ab_diagnosis *diagnosis) {
    memset(diagnosis, 0, sizeof *diagnosis);
    AB_TRY(ab_case_of(document, index, &diagnosis->facts));
    ab_case *facts = &diagnosis->facts;
    diagnosis->skips = ab_audit_skips(facts);
    judge_all(diagnosis);
    facts->misconfigured = !facts->sick && diagnosis->verdicts > 0;
    if (!facts->sick && !facts->misconfigured) judge_suspect(diagnosis);
    facts->sick = facts->sick || facts->misconfigured;
    facts->undecided = facts->sick && is_undecided(diagnosis);
    if (facts->undecided) facts->sick = false;
    diagnosis->trend = ab_trend_of(diagnosis);
    if (facts->undecided)
        explain_undecided(facts, &diagnosis->healthy);
    else if (!facts->sick)
        explain_healthy(facts, &diagnosis->skips, &diagnosis->healthy);
    return AB_OK;
}

ab_status ab_diagnose_each(const cJSON *document, ab_diagnosis_visitor visit, void *argument, int *sick) {
    const cJSON *cell;
    int index = 0;
    ab_status status = AB_OK;
    ab_diagnosis *diagnosis = malloc(sizeof *diagnosis);
    if (sick) *sick = 0;
    if (!diagnosis) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        const int here = index++;
        if (cJSON_IsString(ab_json_at(cell, "twin")) || cJSON_GetArraySize(ab_json_at(cell, "loss")) == 0)
            continue;
        AB_TRY_GOTO(ab_diagnose(document, here, diagnosis));
        if (sick) *sick += diagnosis->facts.sick;
        AB_TRY_GOTO(visit(diagnosis, argument));
    }
out:
    free(diagnosis);
    return status;
}
