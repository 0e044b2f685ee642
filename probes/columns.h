/* Bounded time axis for the counts of probes: at most AB_COLUMNS columns of `stride` training steps each.
 * When a step would lie beyond the last column, or leave an empty column, neighbours are merged and the
 * stride doubles. The size of a record does not depend on the length of the run, and every column has a
 * probed step.
 *
 * The first stride is `every` if known, so that strides are `every` times a power of two. If at least every
 * 2^k-th of those steps is probed, the stride grows to at most 2^k times `every`. */
#ifndef AB_PROBES_COLUMNS_H
#define AB_PROBES_COLUMNS_H

#include "probes/probe.h"

AB_BEGIN_DECLS

enum { AB_COLUMNS = 128 };

typedef struct ab_columns {
    int64_t first,
        stride;    /* of the first column, in training steps; the stride is 0 until the second probed step */
    int64_t every; /* set by the probe: probed steps are multiples of it; 0: not known */
    int count;
    bool started;
} ab_columns;

/* Returns the column of a probed step (steps must increase). The caller must halve per-column values
 * *halvings times before using it. */
int ab_columns_at(ab_columns *columns, int64_t step, int *halvings);

/* Merge neighbouring columns: sum, or maximum. */
void ab_columns_halve(int64_t value[AB_COLUMNS], int halvings);
void ab_columns_halve_sum(double value[AB_COLUMNS], int halvings);
void ab_columns_halve_max(float value[AB_COLUMNS], int halvings);

/* Writes the keys first, stride and count. */
void ab_columns_report(const ab_columns *columns, ab_probe_sink *sink);

AB_END_DECLS

#endif
