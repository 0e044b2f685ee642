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

/* The gap to O0's final loss that chance alone exceeds in one run of 20 (reports/stats/chance.h): of runs
 * that differ from O0 as by one ulp of every weight; as by rounding every weight to half. 0: not measured. */
typedef struct ab_floors {
    double noise, rounding;
} ab_floors;

/* Those of a summarised document. An older one has the largest gap of one draw each, or of a few. */
ab_floors ab_summary_floors(const cJSON *document);

/* Loss gap to O0 that a certificate allows: the largest of both floors and 5 % of O0's final loss. */
double ab_summary_allowed_gap(const ab_floors *floors, double baseline_loss);

/* Whether two cells were timed at least twice each and the ranges of their rounds overlap. */
bool ab_summary_times_overlap(const cJSON *cell, const cJSON *o0);

AB_END_DECLS

#endif
