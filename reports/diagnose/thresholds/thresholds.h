/* The numbers that rules compare with, one row each in thresholds.def: value, unit, kind and source. */
#ifndef AB_REPORTS_DIAGNOSE_THRESHOLDS_THRESHOLDS_H
#define AB_REPORTS_DIAGNOSE_THRESHOLDS_THRESHOLDS_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

typedef enum ab_threshold_kind {
    AB_THRESHOLD_derived, /* follows from a formula or a format */
    AB_THRESHOLD_policy,  /* a choice, stated */
    AB_THRESHOLD_quantile /* of healthy runs of the fault corpus, at a stated false-alarm rate */
} ab_threshold_kind;

typedef struct ab_thresholds {
#define AB_THRESHOLD(name, value, unit, kind, source) double name;
#include "reports/diagnose/thresholds/thresholds.def"
#undef AB_THRESHOLD
} ab_thresholds;

extern const ab_thresholds ab_thresholds_default;

typedef struct ab_threshold_row {
    const char *name, *unit, *source;
    double value; /* the default */
    ab_threshold_kind kind;
} ab_threshold_row;

/* The rows of thresholds.def, in order: i in [0, count). */
int ab_threshold_count(void);
const ab_threshold_row *ab_threshold_at(int i);
const char *ab_threshold_kind_name(ab_threshold_kind kind);

/* Where row i is stored. */
double *ab_threshold_of(ab_thresholds *thresholds, int i);

/* Sets one from "NAME=VALUE". AB_USAGE if there is no such row or the value is no finite number; `what` is
 * the option that is blamed. */
AB_MUST_CHECK ab_status ab_threshold_set(ab_thresholds *thresholds, const char *what, const char *assignment);

AB_END_DECLS

#endif
