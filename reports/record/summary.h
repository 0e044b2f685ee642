/* Functions shared by the summary and the reports. */
#ifndef AB_REPORTS_RECORD_SUMMARY_H
#define AB_REPORTS_RECORD_SUMMARY_H

#include "kernels/core/compiler.h"

#include <cjson/cJSON.h>
#include <stdbool.h>

AB_BEGIN_DECLS

enum {
    AB_SUMMARY_FINAL_LOSSES = 20
}; /* a final loss is the mean of this many last losses, or of all if there are fewer */

/* What chance does to O0's final loss: weights moved by one ulp; by as much as rounding to half moves them.
 * 0: not measured. */
typedef struct ab_floors {
    double noise, rounding;
} ab_floors;

/* Those of a summarised document. */
ab_floors ab_summary_floors(const cJSON *document);

/* Loss gap to O0 that a certificate allows: the largest of 10 noise floors, the rounding floor and 5 % of
 * O0's final loss. */
double ab_summary_allowed_gap(const ab_floors *floors, double baseline_loss);

/* Whether two cells were timed at least twice each and the ranges of their rounds overlap. */
bool ab_summary_times_overlap(const cJSON *cell, const cJSON *o0);

AB_END_DECLS

#endif
