/* The rows of thresholds.def as a struct and as a list. */
#include "reports/diagnose/thresholds/thresholds.h"

#include <stddef.h>

const ab_thresholds ab_thresholds_default = {
#define AB_THRESHOLD(name, value, unit, kind, source) .name = value,
#include "reports/diagnose/thresholds/thresholds.def"
#undef AB_THRESHOLD
};

static const ab_threshold_row rows[] = {
#define AB_THRESHOLD(name, value, unit, kind, source) {#name, unit, source, value, AB_THRESHOLD_##kind},
#include "reports/diagnose/thresholds/thresholds.def"
#undef AB_THRESHOLD
};
_Static_assert(sizeof(ab_thresholds) == AB_COUNT_OF(rows) * sizeof(double), "one double a row");

int ab_threshold_count(void) { return (int)AB_COUNT_OF(rows); }
const ab_threshold_row *ab_threshold_at(int i) { return &rows[i]; }

const char *ab_threshold_kind_name(ab_threshold_kind kind) {
    static const char *const names[] = {"derived", "policy", "quantile"};
    return names[kind];
}

double *ab_threshold_of(ab_thresholds *thresholds, int i) { return (double *)thresholds + i; }
