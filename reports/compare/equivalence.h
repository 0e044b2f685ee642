/* Tests whether a level is equivalent to O0, or one result to another, over several seeds by two one-sided
 * tests (TOST): not "no difference was seen" but "a difference beyond the margin is ruled out". A pure
 * function of summarised documents. */
#ifndef AB_REPORTS_COMPARE_EQUIVALENCE_H
#define AB_REPORTS_COMPARE_EQUIVALENCE_H

#include "reports/stats/stats.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

typedef struct ab_equivalence_options {
    double loss_margin;     /* fraction of the mean final loss of the base */
    double accuracy_margin; /* of the test accuracy, absolute: 0.01 is one point */
    double alpha;
} ab_equivalence_options;

/* The defaults of `ampbench compare`. */
ab_equivalence_options ab_equivalence_options_standard(void);

/* If other is NULL: compares every cell of `base` with the O0 cell of the same seed. Else: every cell of
 * `other` with the cell of `base` with the same id. Series with fewer than two seeds are marked. *result:
 * array of objects {metric, series, n, seeds, mean, sd, low, high, margin, p, power, n_needed, verdict,
 * text}, owned by the caller. verdict: equivalent, different (the interval is beyond the margin), unclear
 * or failed (for some seed the base has a final loss and the candidate has none). */
AB_MUST_CHECK ab_status ab_equivalence(const cJSON *base, const cJSON *other,
                                       const ab_equivalence_options *options, cJSON **result);

/* Prints one paragraph per series. */
void ab_equivalence_print(const cJSON *result, FILE *out);

AB_END_DECLS

#endif
