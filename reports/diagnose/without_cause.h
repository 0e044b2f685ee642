/* What is said of a cell for which no cause is named: healthy, undecided, or sick and unknown. Decides
 * nothing. */
#ifndef AB_REPORTS_DIAGNOSE_WITHOUT_CAUSE_H
#define AB_REPORTS_DIAGNOSE_WITHOUT_CAUSE_H

#include "reports/diagnose/attribute/verdict.h"
#include "reports/diagnose/detect/steps.h"

AB_BEGIN_DECLS

/* Fills `v` for a cell without a verdict: why it is healthy; what is not known of an undecided one and what
 * decides it; or what is wrong with a sick one, since when, with which numbers, and which causes of such
 * symptoms the record contradicts. not_cause[ruled_out]: those that a rule had found. */
void ab_explain_without_cause(const ab_case *c, const ab_skip_audit *skips, const ab_ruled_out *not_cause,
                              int ruled_out, ab_verdict *v);

AB_END_DECLS

#endif
