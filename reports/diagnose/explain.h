/* What a cause's descriptor says beside what the record shows: facts it needs, symptoms it predicts, what
 * would refute it; causes that were ruled out; the run that decides between two. */
#ifndef AB_REPORTS_DIAGNOSE_EXPLAIN_H
#define AB_REPORTS_DIAGNOSE_EXPLAIN_H

#include "reports/diagnose/diagnose.h"

AB_BEGIN_DECLS

/* Prints a verdict's needs, predictions and refutations. */
void ab_explain_print(const ab_case *c, const ab_verdict *verdict, FILE *out);
/* Adds "needs", "predicts" and "refuted_by" to a verdict's object; empty where it is no cause. */
void ab_explain_json(const ab_case *c, const ab_verdict *verdict, cJSON *object);

/* Prints the causes that were ruled out. */
void ab_explain_ruled_out(const ab_diagnosis *diagnosis, FILE *out);
/* Prints the run that decides; nothing if there is nothing to decide. */
void ab_explain_decision(const ab_decision *decision, FILE *out);
/* Adds "ruled_out" and "decide" to a cell's object. */
void ab_explain_cell_json(const ab_diagnosis *diagnosis, cJSON *object);

AB_END_DECLS

#endif
