/* What a loop states of operations that were looked at: shares that a half format lost (increments of sums,
 * averages, counters, statistics; values of casts), by line of the source. */
#ifndef AB_REPORTS_DIAGNOSE_ATTRIBUTE_LOST_H
#define AB_REPORTS_DIAGNOSE_ATTRIBUTE_LOST_H

#include "reports/diagnose/attribute/verdict.h"

AB_BEGIN_DECLS

/* True if the loop states a share of at least `least` by this name: sets proof and layer, and adds "N % of
 * `what` are lost in `layer`" as evidence. */
bool ab_judge_lost(const ab_case *c, const char *name, double least, const char *what, ab_verdict *verdict);

/* Whether the loop states something by this name. */
bool ab_is_stated(const ab_case *c, const char *name);

AB_END_DECLS

#endif
