/* Why a cell does not train as O0 does: verdicts from the record alone. Nothing here trains.
 *
 * facts/ says what the record holds, detect/ whether the cell is sick, attribute/ why, remedy/ what to
 * change. */
#ifndef AB_REPORTS_DIAGNOSE_DIAGNOSE_H
#define AB_REPORTS_DIAGNOSE_DIAGNOSE_H

#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/detect/steps.h"
#include "reports/diagnose/trend.h"

#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_diagnosis {
    ab_case found;
    int verdicts; /* causes before consequences; 0: healthy, or sick with no known cause */
    ab_verdict verdict[AB_VERDICT_RULES];
    int ruled_out; /* causes that a rule found and that something else of the record contradicts */
    ab_ruled_out not_cause[AB_VERDICT_RULES];
    ab_decision decision;
    ab_verdict unnamed; /* without a cause: evidence that it is healthy, what to run to decide, or what is
                         * wrong with it */
    ab_trend trend;
    ab_skip_audit skips;
} ab_diagnosis;

/* Diagnoses cells[index] of a summarised document. */
AB_MUST_CHECK ab_status ab_diagnose(const cJSON *document, int index, ab_diagnosis *diagnosis);

/* The same by other thresholds, which must outlive the diagnosis. */
AB_MUST_CHECK ab_status ab_diagnose_by(const ab_cells *cells, int index, const ab_thresholds *limits,
                                       ab_diagnosis *diagnosis);

/* Diagnoses the trained cells of a summarised document in order, except perturbed baselines, and calls
 * `visit` for each; stops at the visitor's first failure. *sick (may be NULL): number of sick cells. */
typedef ab_status (*ab_diagnosis_visitor)(const ab_diagnosis *diagnosis, void *argument);
AB_MUST_CHECK ab_status ab_diagnose_each(const cJSON *document, ab_diagnosis_visitor visit, void *argument,
                                         int *sick);

/* The same by other thresholds. */
AB_MUST_CHECK ab_status ab_diagnose_each_by(const cJSON *document, const ab_thresholds *limits,
                                            ab_diagnosis_visitor visit, void *argument, int *sick);

typedef enum ab_diagnose_detail {
    AB_DIAGNOSE_BRIEF,    /* cells that are not sick, and those with the causes and remedies of an earlier
                             one, have a line each; what holds for several of them is said once */
    AB_DIAGNOSE_WHOLE,    /* everything of every cell */
    AB_DIAGNOSE_EXPLAINED /* with what each cause needs, predicts and is refuted by, too */
} ab_diagnose_detail;

/* The diagnoses of all cells except perturbed baselines, as text and as JSON (owned by the caller). *sick:
 * number of sick cells. */
AB_MUST_CHECK ab_status ab_diagnose_print(const cJSON *document, const ab_thresholds *limits,
                                          ab_diagnose_detail detail, FILE *out, int *sick);
AB_MUST_CHECK ab_status ab_diagnose_json(const cJSON *document, const ab_thresholds *limits, cJSON **json,
                                         int *sick);

/* "sick", "healthy" or "undecided". */
const char *ab_diagnosis_state(const ab_diagnosis *diagnosis);
/* What is said first: the first verdict's cause; "unknown" if a sick cell has none; else the state. */
const char *ab_diagnosis_first(const ab_diagnosis *diagnosis);

/* The facts of the same cells (facts.def), as text and as a JSON array (owned by the caller). */
AB_MUST_CHECK ab_status ab_diagnose_print_facts(const cJSON *document, FILE *out);
AB_MUST_CHECK ab_status ab_diagnose_facts_json(const cJSON *document, cJSON **json);

AB_END_DECLS

#endif
