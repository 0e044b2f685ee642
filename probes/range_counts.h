/* Distribution of one tensor over the range of a half format: the counts of some values, and the history of
 * such counts over a run, of a size that does not depend on the run's length. Shared by range.h (probes of
 * ampbench's own runs) and lib/ (libampprobe). Plain data: it may be copied and stored byte by byte. */
#ifndef AB_PROBES_RANGE_COUNTS_H
#define AB_PROBES_RANGE_COUNTS_H

#include "kernels/census/census.h"
#include "probes/columns.h"
#include "probes/interval.h"

AB_BEGIN_DECLS

/* First bins (row-major) of a census that are not flushed, normal and overflowed in a format. */
typedef struct ab_range_bins {
    int64_t kept, normal, overflow;
} ab_range_bins;

/* Counts of values, and what storing them in the format does to them. */
typedef struct ab_range_counts {
    int64_t count, zero, nan, inf;
    int64_t nonzero, flushed, subnormal, normal, overflowed;
    float min_abs, max_abs; /* finite, not zero; 0: none */
    double energy;          /* sum of squares of the finite values */
    int low, high;          /* rows that may have values: [low, high) */
    int64_t exponent[AB_CENSUS_EXPONENTS];
} ab_range_counts;

/* Periods of AB_PERIOD_COLUMNS columns. */
enum { AB_PERIODS = 16, AB_PERIOD_COLUMNS = AB_COLUMNS / AB_PERIODS };

/* Statistics of a tensor over the run. */
typedef struct ab_range_history {
    ab_range_counts total;
    ab_share_sums flushed_share;
    int64_t nonzero[AB_COLUMNS], flushed[AB_COLUMNS], overflowed[AB_COLUMNS];
    float largest[AB_COLUMNS];
    double energy[AB_COLUMNS];
} ab_range_history;

/* The exponents over time, which take twice the room of all else. */
typedef struct ab_range_periods {
    float count[AB_PERIODS][AB_CENSUS_EXPONENTS]; /* seven digits beyond 2^24 */
} ab_range_periods;

/* The bins at scale 1. AB_CONFIG for a format with a limit inside a bin (formats narrower than the halfs). */
AB_MUST_CHECK ab_status ab_range_find_bins(const ab_format *half, ab_range_bins *bins);

/* Moves a census to the counts, which are added to, and clears it. Rows without values are skipped. */
void ab_range_take(const ab_range_bins *bins, ab_census *census, ab_range_counts *counts);

/* into += from. Exact for counts. */
void ab_range_add(ab_range_counts *into, const ab_range_counts *from);

/* Adds the counts of one step to the history, in `column`; `halvings`: as ab_columns_at said, once a step. */
void ab_range_step(ab_range_history *history, const ab_range_counts *step, int column);
void ab_range_halve(ab_range_history *history, int halvings);

/* The same for the exponents over time. */
void ab_range_step_periods(ab_range_periods *periods, const ab_range_counts *step, int column);
void ab_range_halve_periods(ab_range_periods *periods, int halvings);

/* Octaves from the largest magnitude to the smallest that overflows; negative after an overflow. Rounded to
 * 1/16, enough for a plot. NAN for 0. */
double ab_range_margin(const ab_format *half, float largest);

/* Writes the keys count to steps of a tensor of the record into the open object. `probed` of `steps` (0: not
 * known) steps are in the history. */
void ab_range_report(const ab_range_history *history, const ab_format *half, const ab_columns *columns,
                     int64_t probed, int64_t steps, ab_probe_sink *sink);

/* Writes the key periods: the exponents over time; `history`: of the same tensor. */
void ab_range_report_periods(const ab_range_history *history, const ab_range_periods *periods,
                             const ab_columns *columns, ab_probe_sink *sink);

AB_END_DECLS

#endif
