/* Functions shared by the summary and the reports. */
#ifndef AB_REPORTS_RECORD_SUMMARY_H
#define AB_REPORTS_RECORD_SUMMARY_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

enum {
    AB_SUMMARY_FINAL_LOSSES = 20
}; /* a final loss is the mean of this many last losses, or of all if there are fewer */

/* Loss gap to O0 that a certificate allows: the larger of 10 noise floors and 5 % of O0's final loss. */
double ab_summary_allowed_gap(double noise_floor, double baseline_loss);

AB_END_DECLS

#endif
