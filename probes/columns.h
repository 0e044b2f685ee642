/* A time axis of bounded length for what probes count: at most AB_COLUMNS columns of `stride` training steps
 * each. When a step would lie beyond the last column, or leave an empty one between, neighbours are merged
 * and the stride doubles. So a run of a million steps makes no larger a record than one of a thousand, and
 * every column has a probed step.
 *
 * The first stride is `every` where that is known, so that strides are `every` times a power of two. Where at
 * least every 2^k-th of those steps is probed, the stride grows to 2^k times `every` and no further. */
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

/* The column of a probed step (steps only rise). Before it is used, values by column must be halved *halvings
 * times. */
int ab_columns_at(ab_columns *columns, int64_t step, int *halvings);

/* Merges neighbours: sums, or the larger of two. */
void ab_columns_halve(int64_t value[AB_COLUMNS], int halvings);
void ab_columns_halve_sum(double value[AB_COLUMNS], int halvings);
void ab_columns_halve_max(float value[AB_COLUMNS], int halvings);

/* Keys first, stride and count. */
void ab_columns_report(const ab_columns *columns, ab_probe_sink *sink);

AB_END_DECLS

#endif
