/* How much a diagnosis depends on the numbers of thresholds.def: every cell is judged again with one of them
 * lower or higher. */
#ifndef AB_REPORTS_DIAGNOSE_JITTER_H
#define AB_REPORTS_DIAGNOSE_JITTER_H

#include "reports/diagnose/diagnose.h"

AB_BEGIN_DECLS

/* Moves every policy and quantile among `limits`, one at a time, down and up by `share` (0.25: a quarter) of
 * its value; of its distance from 1 where it is a ratio between a half and two. Where that changes what is
 * said first (cause, layer, options of the remedy but for their numbers) it adds {"cell", "threshold",
 * "value", "id", "layer"} to `list` (may be NULL) and prints a line to `out` (NULL: none). */
AB_MUST_CHECK ab_status ab_diagnose_jitter(const cJSON *document, const ab_thresholds *limits, double share,
                                           FILE *out, cJSON *list);

AB_END_DECLS

#endif
