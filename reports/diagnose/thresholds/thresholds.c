/* The rows of thresholds.def as a struct and as a list. */
#include "reports/diagnose/thresholds/thresholds.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const ab_thresholds ab_thresholds_default = {
#define AB_THRESHOLD(name, value, unit, kind, source) .name = (value),
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

static int row_named(const char *name, size_t length) {
    for (int i = 0; i < ab_threshold_count(); i++)
        if (strlen(rows[i].name) == length && strncmp(rows[i].name, name, length) == 0) return i;
    return -1;
}

ab_status ab_threshold_set(ab_thresholds *thresholds, const char *what, const char *assignment) {
    const char *equals = strchr(assignment, '=');
    char *end = NULL;
    if (!equals) return ab_fail(AB_USAGE, "%s: expected NAME=VALUE, found '%s'", what, assignment);
    const int row = row_named(assignment, (size_t)(equals - assignment));
    const double value = strtod(equals + 1, &end);
    if (row < 0)
        return ab_fail(AB_USAGE, "%s: no threshold is called '%.*s' (see `ampbench diagnose --thresholds`)",
                       what, (int)(equals - assignment), assignment);
    if (end == equals + 1 || *end || !isfinite(value))
        return ab_fail(AB_USAGE, "%s: expected a number after '%s=', found '%s'", what, rows[row].name,
                       equals + 1);
    *ab_threshold_of(thresholds, row) = value;
    return AB_OK;
}
