/* The census counts values (kernels/census/census.h); this file adds the censuses of a tensor to the history
 * of a run. */
#include "probes/range_counts.h"

#include "kernels/census/whatif.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static int64_t bin_index(uint32_t magnitude) {
    if (magnitude >= AB_WHATIF_NEVER) return (int64_t)AB_CENSUS_EXPONENTS * AB_CENSUS_CLASSES;
    ab_census_place place = ab_census_bin(magnitude);
    return (int64_t)place.row * AB_CENSUS_CLASSES + place.column;
}

/* The bin that starts at a limit. The limits of the half formats coincide with bin boundaries. */
static ab_status first_bin(const ab_format *half, uint32_t limit, int64_t *bin) {
    *bin = bin_index(limit);
    if (bin_index(limit - 1) != *bin) return AB_OK;
    return ab_fail(AB_CONFIG, "%s: a limit of its range lies inside a bin of the census", half->name);
}

ab_status ab_range_find_bins(const ab_format *half, ab_range_bins *bins) {
    ab_whatif_limits limits;
    AB_TRY(ab_whatif_find_limits(half, 1.0f, AB_FTZ_NONE, &limits));
    AB_TRY(first_bin(half, limits.kept, &bins->kept));
    AB_TRY(first_bin(half, limits.normal, &bins->normal));
    return first_bin(half, limits.overflow, &bins->overflow);
}

/* ---- counts ---------------------------------------------------------------------------------- */

static void take_row(const ab_range_bins *bins, const ab_census *census, int row, ab_range_counts *counts) {
    int64_t bin = (int64_t)row * AB_CENSUS_CLASSES;
    for (int c = 0; c < AB_CENSUS_CLASSES; c++, bin++) {
        int64_t count = census->bin[row][c];
        counts->exponent[row] += count;
        counts->nonzero += count;
        counts->flushed += bin < bins->kept ? count : 0;
        counts->subnormal += bin >= bins->kept && bin < bins->normal ? count : 0;
        counts->normal += bin >= bins->normal && bin < bins->overflow ? count : 0;
        counts->overflowed += bin >= bins->overflow ? count : 0;
    }
}

static uint32_t bits_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void widen_rows(ab_range_counts *counts, int low, int high) {
    if (counts->low == counts->high) {
        counts->low = low;
        counts->high = high;
    }
    counts->low = low < counts->low ? low : counts->low;
    counts->high = high > counts->high ? high : counts->high;
}

static void add_extremes(ab_range_counts *counts, float min_abs, float max_abs) {
    if (max_abs == 0) return;
    if (counts->min_abs == 0 || min_abs < counts->min_abs) counts->min_abs = min_abs;
    counts->max_abs = fmaxf(counts->max_abs, max_abs);
}

void ab_range_take(const ab_range_bins *bins, ab_census *census, ab_range_counts *counts) {
    if (census->count == 0) return;
    counts->count += census->count;
    counts->zero += census->zero;
    counts->nan += census->nan;
    counts->inf += census->pos_inf + census->neg_inf;
    counts->energy += census->sum_squares;
    if (census->max_abs > 0) {
        int low = ab_census_bin(bits_of(census->min_abs)).row;
        int high = ab_census_bin(bits_of(census->max_abs)).row;
        for (int row = low; row <= high; row++) take_row(bins, census, row, counts);
        memset(census->bin[low], 0, (size_t)(high - low + 1) * sizeof census->bin[0]);
        widen_rows(counts, low, high + 1);
        add_extremes(counts, census->min_abs, census->max_abs);
    }
    memset(census, 0, offsetof(ab_census, bin));
}

void ab_range_add(ab_range_counts *into, const ab_range_counts *from) {
    into->count += from->count;
    into->zero += from->zero;
    into->nan += from->nan;
    into->inf += from->inf;
    into->nonzero += from->nonzero;
    into->flushed += from->flushed;
    into->subnormal += from->subnormal;
    into->normal += from->normal;
    into->overflowed += from->overflowed;
    into->energy += from->energy;
    add_extremes(into, from->min_abs, from->max_abs);
    if (from->low < from->high) widen_rows(into, from->low, from->high);
    for (int row = from->low; row < from->high; row++) into->exponent[row] += from->exponent[row];
}

/* ---- history --------------------------------------------------------------------------------- */

void ab_range_step(ab_range_history *history, const ab_range_counts *step, int column) {
    ab_range_add(&history->total, step);
    history->nonzero[column] += step->nonzero;
    history->flushed[column] += step->flushed;
    history->overflowed[column] += step->overflowed;
    history->largest[column] = fmaxf(history->largest[column], step->max_abs);
    history->energy[column] += step->energy;
    ab_share_add(&history->flushed_share, step->flushed, step->nonzero);
}

void ab_range_step_periods(ab_range_periods *periods, const ab_range_counts *step, int column) {
    float *count = periods->count[column / AB_PERIOD_COLUMNS];
    for (int row = step->low; row < step->high; row++) count[row] += (float)step->exponent[row];
}

void ab_range_halve(ab_range_history *history, int halvings) {
    ab_columns_halve(history->nonzero, halvings);
    ab_columns_halve(history->flushed, halvings);
    ab_columns_halve(history->overflowed, halvings);
    ab_columns_halve_max(history->largest, halvings);
    ab_columns_halve_sum(history->energy, halvings);
}

static void halve_once(ab_range_periods *p) {
    for (int i = 0; i < AB_PERIODS / 2; i++)
        for (int row = 0; row < AB_CENSUS_EXPONENTS; row++)
            p->count[i][row] = p->count[2 * i][row] + p->count[2 * i + 1][row];
    memset(p->count[AB_PERIODS / 2], 0, sizeof p->count / 2);
}

void ab_range_halve_periods(ab_range_periods *periods, int halvings) {
    for (; halvings > 0; halvings--) halve_once(periods);
}

/* ---- report ---------------------------------------------------------------------------------- */

double ab_range_margin(const ab_format *half, float largest) {
    if (largest == 0) return (double)NAN;
    return floor(16 * log2(ab_format_overflow_limit(half) / (double)largest)) / 16;
}

static void report_exponents(const ab_range_counts *total, ab_probe_sink *sink) {
    int first = 0, last = AB_CENSUS_EXPONENTS - 1;
    while (first < last && total->exponent[first] == 0) first++;
    while (last > first && total->exponent[last] == 0) last--;
    sink->begin_object(sink, "exponents");
    sink->integer(sink, "first", AB_CENSUS_EMIN + first);
    sink->integers(sink, "counts", total->exponent + first, last - first + 1);
    sink->end(sink);
}

static void report_steps(const ab_range_history *history, const ab_format *half, const ab_columns *columns,
                         ab_probe_sink *sink) {
    sink->begin_object(sink, "steps");
    ab_columns_report(columns, sink);
    sink->integers(sink, "nonzero", history->nonzero, columns->count);
    sink->integers(sink, "flushed", history->flushed, columns->count);
    sink->integers(sink, "overflowed", history->overflowed, columns->count);
    sink->begin_array(sink, "margin_octaves");
    for (int i = 0; i < columns->count; i++)
        sink->number(sink, NULL, ab_range_margin(half, history->largest[i]));
    sink->end(sink);
    sink->begin_array(sink, "energy");
    for (int i = 0; i < columns->count; i++) sink->number(sink, NULL, history->energy[i]);
    sink->end(sink);
    sink->end(sink);
}

static void report_counts(const ab_range_counts *total, ab_probe_sink *sink) {
    sink->integer(sink, "count", total->count);
    sink->integer(sink, "zero", total->zero);
    sink->integer(sink, "nan", total->nan);
    sink->integer(sink, "inf", total->inf);
    sink->integer(sink, "nonzero", total->nonzero);
    sink->integer(sink, "flushed", total->flushed);
    sink->integer(sink, "subnormal", total->subnormal);
    sink->integer(sink, "normal", total->normal);
    sink->integer(sink, "overflowed", total->overflowed);
}

/* Confidence interval of the flushed share over all steps of the run. */
static void report_interval(const ab_range_history *history, int64_t probed, int64_t steps,
                            ab_probe_sink *sink) {
    ab_interval interval = ab_share_interval(&history->flushed_share, probed, steps);
    sink->begin_array(sink, "flushed_interval");
    sink->number(sink, NULL, interval.low);
    sink->number(sink, NULL, interval.high);
    sink->end(sink);
}

void ab_range_report(const ab_range_history *history, const ab_format *half, const ab_columns *columns,
                     int64_t probed, int64_t steps, ab_probe_sink *sink) {
    const ab_range_counts *total = &history->total;
    const bool any = total->nonzero > 0;
    report_counts(total, sink);
    sink->number(sink, "min_abs", any ? (double)total->min_abs : (double)NAN);
    sink->number(sink, "max_abs", any ? (double)total->max_abs : (double)NAN);
    sink->number(sink, "margin_octaves", ab_range_margin(half, total->max_abs));
    report_interval(history, probed, steps, sink);
    report_exponents(total, sink);
    report_steps(history, half, columns, sink);
}

static void report_period(const float *count, int first, int last, ab_probe_sink *sink) {
    int64_t whole[AB_CENSUS_EXPONENTS];
    while (last >= first && count[last] == 0) last--;
    for (int row = first; row <= last; row++) whole[row] = (int64_t)count[row];
    sink->integers(sink, NULL, whole + first, last - first + 1);
}

void ab_range_report_periods(const ab_range_history *history, const ab_range_periods *periods,
                             const ab_columns *columns, ab_probe_sink *sink) {
    const int count = (columns->count + AB_PERIOD_COLUMNS - 1) / AB_PERIOD_COLUMNS;
    int first = 0;
    while (first < AB_CENSUS_EXPONENTS - 1 && history->total.exponent[first] == 0) first++;
    sink->begin_object(sink, "periods");
    sink->integer(sink, "columns", AB_PERIOD_COLUMNS);
    sink->integer(sink, "first", AB_CENSUS_EMIN + first);
    sink->begin_array(sink, "counts");
    for (int i = 0; i < count; i++) report_period(periods->count[i], first, AB_CENSUS_EXPONENTS - 1, sink);
    sink->end(sink);
    sink->end(sink);
}
