/* What the summary and the reports both need to know of a run's cells. */
#ifndef AB_REPORTS_SUMMARY_H
#define AB_REPORTS_SUMMARY_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* The O0 cell that `cell` is compared with: of the same model, seed and device and no twin; of several one with the same half
 * format, of those the one with loss scale 1, else the first. NULL when there is none. */
const cJSON *ab_summary_baseline(const cJSON *document, const cJSON *cell);

AB_END_DECLS

#endif
