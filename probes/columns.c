/* Bounded time axis. */
#include "probes/columns.h"

#include <math.h>

int ab_columns_at(ab_columns *columns, int64_t step, int *halvings) {
    *halvings = 0;
    if (!columns->started) {
        *columns = (ab_columns){.first = step, .count = 1, .every = columns->every, .started = true};
        return 0;
    }
    if (columns->stride == 0) columns->stride = columns->every > 0 ? columns->every : step - columns->first;
    int64_t column = (step - columns->first) / columns->stride;
    while (column >= AB_COLUMNS || column > columns->count) {
        columns->stride *= 2;
        columns->count = (columns->count + 1) / 2;
        column = (step - columns->first) / columns->stride;
        ++*halvings;
    }
    if (column == columns->count) columns->count++;
    return (int)column;
}

void ab_columns_halve(int64_t value[AB_COLUMNS], int halvings) {
    for (; halvings > 0; halvings--) {
        for (int i = 0; i < AB_COLUMNS / 2; i++) value[i] = value[2 * i] + value[2 * i + 1];
        for (int i = AB_COLUMNS / 2; i < AB_COLUMNS; i++) value[i] = 0;
    }
}

void ab_columns_halve_max(float value[AB_COLUMNS], int halvings) {
    for (; halvings > 0; halvings--) {
        for (int i = 0; i < AB_COLUMNS / 2; i++) value[i] = fmaxf(value[2 * i], value[2 * i + 1]);
        for (int i = AB_COLUMNS / 2; i < AB_COLUMNS; i++) value[i] = 0;
    }
}

void ab_columns_halve_sum(double value[AB_COLUMNS], int halvings) {
    for (; halvings > 0; halvings--) {
        for (int i = 0; i < AB_COLUMNS / 2; i++) value[i] = value[2 * i] + value[2 * i + 1];
        for (int i = AB_COLUMNS / 2; i < AB_COLUMNS; i++) value[i] = 0;
    }
}

void ab_columns_report(const ab_columns *columns, ab_probe_sink *sink) {
    sink->integer(sink, "first", columns->first);
    sink->integer(sink, "stride", columns->stride ? columns->stride : 1);
    sink->integer(sink, "count", columns->count);
}
