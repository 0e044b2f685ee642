/* Bounds of the largest gradient from a log: a step that overflowed at scale S was at least limit / S, one
 * that was taken was below. Lines count steps and tell scales; where a line is about several steps, each is
 * bounded by what holds for all of them. */
#include "bench/replay/gradients.h"

#include <math.h>
#include <stdlib.h>

static const double just_above = 1 + 1e-12, just_below = 1 - 1e-12;

/* EVENTS: overflows between two lines that count steps. */
enum { EVENTS = 256 };

typedef struct walk {
    ab_recorded *to;
    double limit;
    double step;      /* counted last; NAN: none yet */
    double scale;     /* in use after it */
    double total;     /* skipped_total of the last line that tells it */
    bool before_step; /* a line tells the scale of its last step, not the one after it */
    bool falling;     /* the next line may show a fall of the scale that belongs to the last one */
    double event[EVENTS];
    int events;
} walk;

static double value(const ab_log_point *p, ab_log_field field) {
    return ab_log_said(p, field) ? p->value[field] : (double)NAN;
}

static bool overflowed(const ab_log_point *p) {
    return value(p, AB_LOG_overflow) == 1 || ab_log_said(p, AB_LOG_at_floor) ||
           ab_log_said(p, AB_LOG_scale_before);
}

/* The scale that overflowed: told, or the last one, or what falls to the new one by halves. */
static double overflowed_at(const walk *w, const ab_log_point *p) {
    const double after = value(p, AB_LOG_scale_after);
    if (ab_log_said(p, AB_LOG_scale_before)) return p->value[AB_LOG_scale_before];
    if (ab_log_said(p, AB_LOG_scale)) return p->value[AB_LOG_scale];
    return isnan(w->scale) || w->scale < after ? 2 * after : w->scale;
}

static double scale_after(const walk *w, const ab_log_point *p) {
    if (ab_log_said(p, AB_LOG_scale_after)) return p->value[AB_LOG_scale_after];
    return ab_log_said(p, AB_LOG_scale) && !overflowed(p) ? p->value[AB_LOG_scale] : w->scale;
}

/* ---- steps ------------------------------------------------------------------------------------ */

static ab_status add_taken(const walk *w, double scale, double count) {
    const ab_recorded_step s = {.high = scale > 0 ? w->limit / scale * just_below : (double)INFINITY,
                                .scale = scale};
    return count >= 1 ? ab_recorded_add(w->to, &s, (int64_t)count) : AB_OK;
}

static ab_status add_skipped(const walk *w, double scale) {
    const ab_recorded_step s = {.low = scale > 0 ? w->limit / scale * just_above : 0,
                                .high = (double)INFINITY,
                                .scale = scale,
                                .skipped = true};
    return ab_recorded_add(w->to, &s, 1);
}

/* How often a scale must have fallen by half, at least. */
static double falls(double from, double to) {
    double times = 0;
    for (; to > 0 && from > to && times < EVENTS; from /= 2) times++;
    return times;
}

/* Overflows that the line counts, or that the scale's fall proves, and no other line told. The scale fell at
 * the first of them; where lines tell the scale of their last step, another one's fall is in the next line.
 */
static void add_counted(walk *w, const ab_log_point *p) {
    const double total = value(p, AB_LOG_skipped_total), after = value(p, AB_LOG_scale);
    double counted = ab_log_said(p, AB_LOG_skipped) ? p->value[AB_LOG_skipped] : 0, scale = w->scale;
    if (!isnan(total) && !isnan(w->total)) counted = fmax(counted, total - w->total);
    if (!isnan(total)) w->total = total;
    for (int i = 0; i < w->events; i++) scale = fmin(scale, w->event[i] / 2);
    const double fell = w->events == 0 ? falls(scale, after) : 0;
    for (double i = 0; w->events < EVENTS && w->events < fmax(counted, fell); i++) {
        w->event[w->events++] = scale;
        scale = i < fell ? scale / 2 : scale;
        w->falling = w->before_step && i >= fell && !isnan(after);
    }
}

/* The steps since the last line that counted them: those taken, then those that overflowed. */
static ab_status close_span(walk *w, const ab_log_point *p, double step) {
    const double steps = step - w->step, after = value(p, AB_LOG_scale);
    double least = w->scale;
    add_counted(w, p);
    if (w->events > steps) w->events = (int)steps;
    for (int i = 0; i < w->events; i++) least = fmin(least, w->event[i]);
    if (after > 0) least = fmin(least, after); /* in force before or after the step: lines differ */
    AB_TRY(add_taken(w, least, steps - w->events));
    for (int i = 0; i < w->events; i++) AB_TRY(add_skipped(w, w->event[i]));
    w->events = 0;
    return AB_OK;
}

/* One line. *ended: steps are counted again from an earlier one. */
static ab_status take(walk *w, const ab_log_point *p, bool *ended) {
    const double step = value(p, AB_LOG_step);
    if (isfinite(step) && step < w->step) {
        *ended = true;
        return AB_OK;
    }
    if (overflowed(p) && w->events < EVENTS) w->event[w->events++] = overflowed_at(w, p);
    if (isfinite(step) && step > w->step && step - w->step <= AB_RECORDED_STEPS)
        AB_TRY(close_span(w, p, step));
    if (isfinite(step) && isnan(w->step)) w->events = 0; /* before the first step that is counted */
    if (isfinite(step)) w->step = step;
    w->scale = w->falling ? scale_after(w, p) / 2 : scale_after(w, p);
    w->falling = false;
    return AB_OK;
}

/* ---- the whole -------------------------------------------------------------------------------- */

/* The scale of the next line that tells one; NAN: there is none. */
static double next_scale(const ab_log *log, int at) {
    for (int i = at + 1; i < log->points; i++)
        if (ab_log_said(&log->point[i], AB_LOG_scale)) return log->point[i].value[AB_LOG_scale];
    return (double)NAN;
}

static double scale_before(const ab_log *log, int at) {
    for (int i = at - 1; i >= 0; i--)
        if (ab_log_said(&log->point[i], AB_LOG_scale)) return log->point[i].value[AB_LOG_scale];
    return (double)NAN;
}

/* Whether lines that count skips tell the scale of the step: then the next line's is lower, else their own.
 */
static bool tells_before_step(const ab_log *log) {
    int here = 0, next = 0;
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        if (!ab_log_said(p, AB_LOG_scale) || !(value(p, AB_LOG_skipped) > 0)) continue;
        const double scale = p->value[AB_LOG_scale];
        const bool fell = scale < scale_before(log, i), falls_next = next_scale(log, i) < scale;
        here += fell && !falls_next;
        next += falls_next && !fell;
    }
    return next > here;
}

/* The scale before the first line that tells one. A line that counts skips and tells the scale after them may
 * have seen it fall as often; that it did not (hysteresis) is seen by the next fall. */
static double first_scale(const ab_log *log, bool before_step) {
    for (int i = 0; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        if (ab_log_said(p, AB_LOG_scale_before)) return p->value[AB_LOG_scale_before];
        if (ab_log_said(p, AB_LOG_scale_after)) return 2 * p->value[AB_LOG_scale_after];
        if (!ab_log_said(p, AB_LOG_scale)) continue;
        const double scale = p->value[AB_LOG_scale], skipped = value(p, AB_LOG_skipped);
        return !before_step && skipped > 0 && skipped < EVENTS && !(next_scale(log, i) < scale)
                   ? ldexp(scale, (int)skipped)
                   : scale;
    }
    return (double)NAN;
}

/* The step before those of the first line that counts them, if it is the first of the run: it spans as many
 * as the next one. NAN: the log begins in the middle. */
static double step_before(const ab_log *log) {
    double first = (double)NAN, next = (double)NAN;
    for (int i = 0; i < log->points && isnan(next); i++) {
        const double step = value(&log->point[i], AB_LOG_step);
        if (isnan(first))
            first = step;
        else if (step > first)
            next = step;
    }
    if (first == 0) return -1;
    return first <= 1 || first <= next - first ? 0 : (double)NAN;
}

/* After an overflow the next step that was taken bounds the largest gradient: the weights are the same. */
static void bound_overflows(ab_recorded *to) {
    double next = (double)INFINITY;
    for (int64_t t = to->steps - 1; t >= 0; t--) {
        ab_recorded_step *s = &to->step[t];
        if (s->skipped)
            s->high = fmax(s->low, next);
        else
            next = s->high;
    }
}

static void describe(const walk *w, double first) {
    ab_replay_source *s = &w->to->source;
    s->kind = "log";
    s->stride = 1;
    s->first_scale = first;
    s->final_scale = w->scale;
}

ab_status ab_recorded_of_log(const ab_log *log, const ab_format *half, ab_recorded *recorded) {
    *recorded = (ab_recorded){.half = half ? half : &ab_format_fp16};
    const bool before_step = tells_before_step(log);
    const double first = first_scale(log, before_step);
    walk w = {.to = recorded,
              .limit = ab_format_overflow_limit(&ab_format_fp16), /* of the recorded run */
              .step = step_before(log),
              .scale = first,
              .before_step = before_step,
              .total = (double)NAN};
    bool ended = false;
    if (!(first > 0)) return ab_fail(AB_INPUT, "scaler: the log tells no loss scale");
    for (int i = 0; i < log->points && !ended; i++) AB_TRY(take(&w, &log->point[i], &ended));
    if (recorded->steps == 0)
        return ab_fail(AB_INPUT, "scaler: the log counts no steps, so how many were taken is not known");
    bound_overflows(recorded);
    describe(&w, first);
    return AB_OK;
}
