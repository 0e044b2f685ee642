/* Facts of a log: runs of skipped steps, floors, resumes, rates, spikes, bounds of the largest gradient. */
#include "bench/ingest/log/facts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* BEFORE: losses whose median a spike is compared with. */
enum { BEFORE = 16 };

static double value(const ab_log_point *p, ab_log_field field) {
    return ab_log_said(p, field) ? p->value[field] : (double)NAN;
}

/* The scale after the line; NAN: it does not say. */
static double scale_after(const ab_log_point *p) {
    return ab_log_said(p, AB_LOG_scale_after) ? p->value[AB_LOG_scale_after] : value(p, AB_LOG_scale);
}

static bool overflowed(const ab_log_point *p) {
    return (ab_log_said(p, AB_LOG_overflow) && p->value[AB_LOG_overflow] == 1) ||
           ab_log_said(p, AB_LOG_at_floor);
}

/* ---- skips at the end --------------------------------------------------------------------------- */

/* Steps since the last line that counts them; 0: not known. */
static double interval_of(const ab_log *log, int at) {
    const ab_log_point *p = &log->point[at];
    for (int i = at - 1; i >= 0 && ab_log_said(p, AB_LOG_step); i--)
        if (ab_log_said(&log->point[i], AB_LOG_step) && log->point[i].format == p->format)
            return p->value[AB_LOG_step] - log->point[i].value[AB_LOG_step];
    return 0;
}

/* Every step since the line before was skipped. */
static bool all_skipped(const ab_log *log, int at) {
    const double steps = interval_of(log, at);
    return ab_log_said(&log->point[at], AB_LOG_skipped) && steps > 0 &&
           log->point[at].value[AB_LOG_skipped] >= steps;
}

/* A sign that a step was taken: the log counts fewer skips than steps, says that none overflowed, or the
 * scale rose. Lines that count nothing are none. */
static bool taken(const ab_log *log, int at) {
    const ab_log_point *p = &log->point[at];
    if (overflowed(p)) return false;
    if (ab_log_said(p, AB_LOG_overflow)) return true;
    return ab_log_said(p, AB_LOG_skipped) && !all_skipped(log, at) && interval_of(log, at) > 0;
}

static bool rose(const ab_log_point *p, double last) { return scale_after(p) > last; }

/* Runs of skips, the longest and the last. */
static void find_skips(const ab_log *log, ab_log_facts *f) {
    double run = 0, floor = 0, last = (double)NAN;
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        const double scale = scale_after(p);
        if (taken(log, i) || rose(p, last)) run = floor = 0;
        if (overflowed(p) || all_skipped(log, i)) {
            if (run == 0) f->skips_line = p->line;
            run += overflowed(p) ? 1 : p->value[AB_LOG_skipped];
            floor = ab_log_said(p, AB_LOG_at_floor) || scale >= last ? floor + 1 : 0;
        }
        if (!isnan(scale)) last = scale;
        f->skips_in_a_row = fmax(f->skips_in_a_row, run);
    }
    f->skips_at_end = run;
    f->floor_skips = floor;
}

/* ---- the scale ---------------------------------------------------------------------------------- */

static void find_runaway(const ab_log *log, ab_log_facts *f) {
    double last = (double)NAN;
    f->runaway_from = f->runaway_scale = (double)NAN;
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        const double scale = scale_after(p);
        if (isnan(scale)) continue;
        const bool fell =
            overflowed(p) || scale < last || (ab_log_said(p, AB_LOG_skipped) && p->value[AB_LOG_skipped] > 0);
        if (isnan(last) || fell) f->runaway_from = scale;
        if (scale > last) f->runaway_line = p->line;
        last = scale;
    }
    if (last > f->runaway_from) f->runaway_scale = last;
}

/* A resume: steps are counted from an earlier or the same number again. */
static void find_resets(const ab_log *log, ab_log_facts *f) {
    double step = (double)NAN, scale = (double)NAN, first = (double)NAN;
    f->reset_from = f->reset_to = f->reset_step = (double)NAN;
    bool resumed = false;
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        if (ab_log_said(p, AB_LOG_step) && p->format == log->point[0].format) {
            resumed = resumed || p->value[AB_LOG_step] < step;
            step = p->value[AB_LOG_step];
        }
        const double here =
            ab_log_said(p, AB_LOG_scale_before) ? p->value[AB_LOG_scale_before] : value(p, AB_LOG_scale);
        if (isnan(here)) continue;
        if (isnan(first)) first = here;
        if (resumed && here > 2 * scale && here == first && ++f->resets == 1) {
            f->reset_from = scale;
            f->reset_to = here;
            f->reset_step = step;
            f->reset_line = p->line;
        }
        resumed = false;
        scale = isnan(scale_after(p)) ? here : scale_after(p);
    }
}

/* ---- losses and rates --------------------------------------------------------------------------- */

static void find_nans(const ab_log *log, ab_log_facts *f) {
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        const double nan = ab_log_said(p, AB_LOG_nan) ? p->value[AB_LOG_nan] : 0;
        if (value(p, AB_LOG_loss) == 0 && ab_log_said(p, AB_LOG_grad_norm) &&
            isnan(p->value[AB_LOG_grad_norm])) {
            if (f->hidden_nans++ == 0) f->hidden_line = p->line;
        }
        const double here = nan > 0 ? nan : ab_log_said(p, AB_LOG_loss) && !isfinite(p->value[AB_LOG_loss]);
        if (here > 0 && f->nonfinite_losses == 0) f->nonfinite_line = p->line;
        f->nonfinite_losses += here;
    }
}

/* The rate of a line whose steps were all skipped, beside that of the line before. */
static void find_rates(const ab_log *log, ab_log_facts *f) {
    double rate = (double)NAN;
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        if (!ab_log_said(p, AB_LOG_lr)) continue;
        const bool skipped = all_skipped(log, i) || (overflowed(p) && interval_of(log, i) == 1);
        if (skipped && !isnan(rate)) {
            f->skipped_intervals++;
            if (p->value[AB_LOG_lr] != rate && f->rate_moved++ == 0) f->rate_line = p->line;
        }
        rate = p->value[AB_LOG_lr];
    }
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *list) {
    double sorted[BEFORE];
    memcpy(sorted, list, sizeof sorted);
    qsort(sorted, BEFORE, sizeof *sorted, by_size);
    return (sorted[BEFORE / 2 - 1] + sorted[BEFORE / 2]) / 2;
}

/* The largest finite loss over the median of the 16 before it, and whether the scale fell since the loss
 * before. */
static void find_spike(const ab_log *log, ab_log_facts *f) {
    double ring[BEFORE], last = (double)NAN;
    int losses = 0;
    bool fell = false;
    f->spike = f->spike_before = (double)NAN;
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        const double scale = scale_after(p), loss = value(p, AB_LOG_loss);
        fell = fell || scale < last;
        if (!isnan(scale)) last = scale;
        if (!isfinite(loss)) continue;
        const double times = losses >= BEFORE ? loss / median(ring) : (double)NAN;
        if (times > 0 && !(times <= f->spike)) {
            f->spike = times;
            f->spike_line = p->line;
            f->spike_before = fell;
        }
        ring[losses++ % BEFORE] = loss;
        fell = false;
    }
}

/* Whether some line counts skips or tells of overflows. */
static bool counts_skips(const ab_log *log) {
    for (int i = 0; i < log->points; i++)
        if (ab_log_said(&log->point[i], AB_LOG_skipped) || ab_log_said(&log->point[i], AB_LOG_overflow) ||
            ab_log_said(&log->point[i], AB_LOG_at_floor))
            return true;
    return false;
}

static double halvings(double from, double to) {
    return to > 0 && to < from ? fmax(round(log2(from / to)), 1) : 0;
}

/* Skips that a line tells of. Where no line counts them, the falls of the scale do, one for each halving. */
static double skips_of(const ab_log_point *p, bool counted, double last) {
    if (!counted) return halvings(last, scale_after(p));
    if (overflowed(p)) return 1;
    return ab_log_said(p, AB_LOG_skipped) ? fmax(p->value[AB_LOG_skipped], 0) : 0;
}

/* Steps and skips from where the scale first rises, which is when it is found, up to a resume. */
static void find_later(const ab_log *log, ab_log_facts *f) {
    double skips = 0, last = (double)NAN, step = (double)NAN, found = (double)NAN;
    const bool counted = counts_skips(log);
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        if (ab_log_said(p, AB_LOG_step) && p->value[AB_LOG_step] < step) break;
        if (ab_log_said(p, AB_LOG_step)) step = p->value[AB_LOG_step];
        if (isnan(found) && rose(p, last)) found = step;
        const double here = skips_of(p, counted, last);
        skips += here;
        if (!isnan(found)) f->skips_later += here;
        if (!isnan(scale_after(p))) last = scale_after(p);
    }
    f->steps_later = isnan(found) ? 0 : step - found;
    if (!counted) f->skipped = skips;
}

ab_log_facts ab_log_facts_of(const ab_log *log) {
    ab_log_facts f = {.resets = 0};
    const ab_log_totals t = ab_log_total(log);
    f.skipped = t.skipped;
    f.steps = t.last_step - t.first_step + 1;
    find_later(log, &f);
    find_skips(log, &f);
    find_runaway(log, &f);
    find_resets(log, &f);
    find_nans(log, &f);
    find_rates(log, &f);
    find_spike(log, &f);
    return f;
}

/* ---- the largest gradient ------------------------------------------------------------------------ */

/* Whether the step after point `at` was taken at the scale that it announces: the next overflow is not at
 * that scale, or something says that a step was taken. Overflows alone show it where the scale rose later. */
static bool taken_after(const ab_log *log, int at) {
    const double scale = scale_after(&log->point[at]);
    for (int i = at + 1; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        if (taken(log, i) || scale_after(p) > scale) return true;
        if (overflowed(p)) return false;
    }
    return false;
}

int ab_log_brackets(const ab_log *log, double limit, ab_log_bracket *bracket, int most) {
    int count = 0;
    double step = (double)NAN, last = (double)NAN;
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        if (ab_log_said(p, AB_LOG_step)) step = p->value[AB_LOG_step];
        const double after = scale_after(p);
        double at = value(p, AB_LOG_scale_before);
        if (isnan(at) && overflowed(p))
            at = ab_log_said(p, AB_LOG_scale) ? p->value[AB_LOG_scale] : 2 * after;
        if (isnan(at) && after < last) at = last;
        if (!isnan(after)) last = after;
        if (isnan(at) || !(at > 0) || (ab_log_said(p, AB_LOG_overflow) && p->value[AB_LOG_overflow] == 0))
            continue;
        const bool fell = after > 0 && after <= at;
        if (count < most)
            bracket[count] = (ab_log_bracket){p->line, step, limit / at,
                                              fell && taken_after(log, i) ? limit / after : (double)INFINITY};
        count++;
    }
    return count;
}
