/* Finds the symptoms of every cell, asks every cause, and orders what they say. Does not change the document.
 */
#include "reports/diagnose/diagnose.h"

#include "reports/diagnose/facts/loop.h"
#include "reports/diagnose/trend.h"
#include "reports/diagnose/without_cause.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *ab_diagnosis_state(const ab_diagnosis *d) {
    return d->found.sick ? "sick" : d->found.undecided ? "undecided" : "healthy";
}

const char *ab_diagnosis_first(const ab_diagnosis *d) {
    if (!d->found.sick) return ab_diagnosis_state(d);
    return d->verdicts > 0 ? d->verdict[0].rule->id : "unknown";
}

/* Asks one rule: `judge` for a sick cell, else `shows`. */
static void ask(ab_diagnosis *d, const ab_verdict_rule *rule, unsigned symptoms) {
    ab_verdict verdict = {.rule = rule, .since = AB_STEP_UNKNOWN, .unexplained = symptoms & ~rule->predicts};
    bool (*judge)(const ab_case *, ab_verdict *) = d->found.sick ? rule->judge : rule->shows;
    if (!judge || !judge(&d->found, &verdict)) return;
    const ab_refutation *by = ab_refutation_of(&d->found, &verdict);
    if (by) {
        d->not_cause[d->ruled_out].rule = rule;
        d->not_cause[d->ruled_out++].by = by;
    } else {
        d->verdict[d->verdicts++] = verdict;
    }
}

static void judge_all(ab_diagnosis *d) {
    const unsigned symptoms = ab_symptoms_of(&d->found);
    d->verdicts = d->ruled_out = 0;
    for (int i = 0; i < ab_verdict_rule_count(); i++) ask(d, ab_verdict_rule_at(i), symptoms);
    d->verdicts = ab_order_verdicts(d->verdict, d->verdicts);
    ab_add_remedies(&d->found, d->verdict, d->verdicts, &d->decision);
}

/* A gap that being a few steps late would explain does not make a cell sick by itself, but it does together
 * with a cause that the record shows. The same where only the accuracy shows that something is wrong. */
static void judge_suspect(ab_diagnosis *d) {
    ab_case *c = &d->found;
    if (c->facts.baseline == c->facts.cell || !(c->facts.gap > c->gap_chance)) return;
    const bool sick = c->sick;
    c->behind = c->sick = c->suspect = true;
    judge_all(d);
    if (d->verdicts > 0 && d->verdict[0].proof != AB_PROOF_CONSISTENT) return;
    c->behind = c->suspect = false;
    c->sick = sick;
    d->verdicts = d->ruled_out = 0;
    d->decision.count = 0;
}

/* It learns, though less than O0, and there is no noise floor to compare with: the gap may be noise. Two runs
 * of somebody's own loop may end anywhere: games between networks, rewards, loops without a seed. */
static bool may_be_chance(const ab_case *c) {
    const double learned = c->facts.baseline_loss.first - c->facts.baseline_loss.final;
    const bool small = c->facts.gap < c->facts.limits->chance_gap * learned;
    return c->behind && (ab_is_loop(&c->facts) || (small && !c->unlearned)) &&
           !ab_json_at(c->facts.document, "noise_floor.loss_gap");
}

/* The only symptom is that O0 has not learned (more steps may show why) or an unexplained gap.
 */
static bool is_undecided(const ab_diagnosis *d) {
    const ab_case *c = &d->found;
    if (d->verdicts > 0 || c->diverged || c->nonfinite || c->skipping || c->stuck || c->eval_degraded)
        return false;
    return c->behind ? may_be_chance(c) : c->unlearned || c->idle;
}

ab_status ab_diagnose(const cJSON *document, int index, ab_diagnosis *diagnosis) {
    ab_cells cells;
    ab_status status = ab_cells_create(document, &cells);
    if (status == AB_OK) status = ab_diagnose_by(&cells, index, &ab_thresholds_default, diagnosis);
    ab_cells_free(&cells);
    return status;
}

ab_status ab_diagnose_by(const ab_cells *cells, int index, const ab_thresholds *limits,
                         ab_diagnosis *diagnosis) {
    memset(diagnosis, 0, sizeof *diagnosis);
    AB_TRY(ab_case_of(cells, index, limits, &diagnosis->found));
    ab_case *c = &diagnosis->found;
    diagnosis->skips = ab_audit_skips(c);
    judge_all(diagnosis);
    c->misconfigured = !c->sick && !c->idle && diagnosis->verdicts > 0;
    if (diagnosis->verdicts == 0 && !c->behind) judge_suspect(diagnosis);
    c->sick = c->sick || c->misconfigured || c->idle;
    c->undecided = c->sick && is_undecided(diagnosis);
    if (c->undecided) c->sick = false;
    diagnosis->trend = ab_trend_of(c, diagnosis->verdicts > 0 ? diagnosis->verdict[0].rule->id : NULL);
    if (diagnosis->verdicts == 0 || !c->sick)
        ab_explain_without_cause(c, &diagnosis->skips, diagnosis->not_cause, diagnosis->ruled_out,
                                 &diagnosis->unnamed);
    return AB_OK;
}

ab_status ab_diagnose_each(const cJSON *document, ab_diagnosis_visitor visit, void *argument, int *sick) {
    return ab_diagnose_each_by(document, &ab_thresholds_default, visit, argument, sick);
}

ab_status ab_diagnose_each_by(const cJSON *document, const ab_thresholds *limits, ab_diagnosis_visitor visit,
                              void *argument, int *sick) {
    ab_status status = AB_OK;
    ab_cells cells = {.count = 0};
    ab_diagnosis *diagnosis = malloc(sizeof *diagnosis);
    if (sick) *sick = 0;
    if (!diagnosis) return ab_fail(AB_NO_MEMORY, "diagnose: out of memory");
    AB_TRY_GOTO(ab_cells_create(document, &cells));
    for (int i = 0; i < cells.count; i++) {
        const cJSON *cell = cells.cell[i];
        if (cJSON_IsString(ab_json_at(cell, "twin")) || ab_steps_of_cell(cell) == 0) continue;
        AB_TRY_GOTO(ab_diagnose_by(&cells, i, limits, diagnosis));
        if (sick) *sick += diagnosis->found.sick;
        AB_TRY_GOTO(visit(diagnosis, argument));
    }
out:
    ab_cells_free(&cells);
    free(diagnosis);
    return status;
}
