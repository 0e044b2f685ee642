/* What the summary and the reports both need to know of a run's cells. */
#ifndef AB_REPORTS_RECORD_SUMMARY_H
#define AB_REPORTS_RECORD_SUMMARY_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

enum {
    AB_SUMMARY_FINAL_LOSSES = 20
}; /* a final loss is the mean of that many last ones, or of all if there are fewer */

/* The loss gap to O0 that a certificate allows: the larger of 10 noise floors and 5 % of O0's final loss. */
double ab_summary_allowed_gap(double noise_floor, double baseline_loss);

/* The O0 cell that `cell` is compared with: of the same model, seed and device and no twin; of several one
 * with the same half format, of those the one with loss scale 1, else the first. NULL when there is none. */
const cJSON *ab_summary_baseline(const cJSON *document, const cJSON *cell);

AB_END_DECLS

#endif
