/* Of a training loop that does not learn and of which no cause shows: the causes whose numbers are nearest to
 * what their rules ask for. Decides nothing. */
#ifndef AB_REPORTS_DIAGNOSE_NEAREST_H
#define AB_REPORTS_DIAGNOSE_NEAREST_H

#include "reports/diagnose/attribute/verdict.h"

AB_BEGIN_DECLS

/* Adds two of them to the evidence, the nearest first, each with its number and the limit, or that its number
 * is not recorded. */
void ab_say_nearest(const ab_case *c, ab_verdict *verdict);

AB_END_DECLS

#endif
