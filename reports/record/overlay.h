/* Several runs in one document, for a report that shows them together. Such a document is not written: its
 * settings are the first run's. */
#ifndef AB_REPORTS_RECORD_OVERLAY_H
#define AB_REPORTS_RECORD_OVERLAY_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

AB_BEGIN_DECLS

/* Whether the documents of a list are records of ranks, which are added up (ranks.h), not runs. */
bool ab_result_is_rank(const cJSON *document);

/* Lays run `index` (1, 2, ...) over *document: takes the cells of `other` but for the perturbed baselines
 * into it. Both are summarised, and stay so. Every cell then says in of_run which run it is of: the run's
 * label, or its file. A warning says which settings differ. AB_INPUT: the same run twice. */
AB_MUST_CHECK ab_status ab_result_lay_over(cJSON *document, const char *path, int index, cJSON *other,
                                           const char *other_path);

AB_END_DECLS

#endif
