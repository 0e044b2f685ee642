/* What the lines of a log said, in bounded memory. */
#include "bench/ingest/log/format.h"
#include "kernels/core/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* RECENT: points among which one step's values of an event file may be spread. */
enum { RECENT = 64, FIRST_CAPACITY = 256, MOST = 2 * AB_LOG_POINTS };

/* ---- keeping ---------------------------------------------------------------------------------- */

/* Says nothing that its neighbours do not: no event, the same scale, finite values. */
static bool plain(const ab_log_point *point, const ab_log_point *before) {
    static const ab_log_field events[] = {AB_LOG_overflow, AB_LOG_scale_before, AB_LOG_scale_after,
                                          AB_LOG_at_floor};
    for (size_t i = 0; i < AB_COUNT_OF(events); i++)
        if (ab_log_said(point, events[i]) && !(events[i] == AB_LOG_overflow && point->value[events[i]] == 0))
            return false;
    if (ab_log_said(point, AB_LOG_skipped) && point->value[AB_LOG_skipped] != 0) return false;
    if (ab_log_said(point, AB_LOG_scale) &&
        !(ab_log_said(before, AB_LOG_scale) && point->value[AB_LOG_scale] == before->value[AB_LOG_scale]))
        return false;
    return !(ab_log_said(point, AB_LOG_loss) && !isfinite(point->value[AB_LOG_loss])) &&
           !(ab_log_said(point, AB_LOG_grad_norm) && !isfinite(point->value[AB_LOG_grad_norm]));
}

/* Drops every second plain point; those before one that is not stay: what it counts began there. */
static void thin(ab_log *log) {
    int kept = 0;
    bool drop = false;
    for (int i = 0; i < log->points; i++) {
        drop = i > 0 && i + 1 < log->points && !drop && plain(&log->point[i], &log->point[i - 1]) &&
               plain(&log->point[i + 1], &log->point[i]);
        if (!drop) log->point[kept++] = log->point[i];
    }
    log->left_out += log->points - kept;
    log->points = kept;
    log->stride *= 2;
}

static bool make_room(ab_log *log) {
    if (log->points < log->capacity) return true;
    const int capacity = log->capacity ? 2 * log->capacity : FIRST_CAPACITY;
    ab_log_point *grown = realloc(log->point, (size_t)capacity * sizeof *grown);
    if (!grown) return false;
    log->point = grown;
    log->capacity = capacity;
    return true;
}

static ab_status append(ab_log *log, const ab_log_point *point) {
    if (log->points >= AB_LOG_POINTS && (log->points % (AB_LOG_POINTS / 4)) == 0) thin(log);
    if (log->points >= MOST) {
        log->left_out++;
        return AB_OK;
    }
    if (!make_room(log)) return ab_fail(AB_NO_MEMORY, "log: out of memory for %d points", log->points);
    log->point[log->points++] = *point;
    return AB_OK;
}

/* The same line again, with newer values: a progress bar that is drawn again, or another process. */
static bool repeats(const ab_log_point *point, const ab_log_point *before) {
    return point->format == before->format && ab_log_said(point, AB_LOG_step) && point->has == before->has &&
           !ab_log_said(point, AB_LOG_scale_after) && point->value[AB_LOG_step] == before->value[AB_LOG_step];
}

/* Keeps the last point after all. */
static ab_status keep_waiting(ab_log *log) {
    if (!log->waiting) return AB_OK;
    log->waiting = false;
    log->left_out--;
    return append(log, &log->last);
}

/* Of plain points one in `stride` is kept, as many as are left of those before; the last one waits. */
ab_status ab_log_add(ab_log *log, const ab_log_point *point) {
    const bool first = log->points == 0;
    if (!first && repeats(point, &log->last)) {
        if (!log->waiting) log->point[log->points - 1] = *point;
    } else if (!first && plain(point, &log->last) && ++log->since_kept < log->stride) {
        log->waiting = true;
        log->left_out++;
    } else {
        if (first || !plain(point, &log->last)) AB_TRY(keep_waiting(log));
        log->waiting = false;
        log->since_kept = 0;
        AB_TRY(append(log, point));
    }
    log->last = *point;
    return AB_OK;
}

ab_status ab_log_add_value(ab_log *log, int64_t record, double step, ab_log_field field, double value) {
    for (int i = log->points - 1; i >= 0 && i >= log->points - RECENT; i--) {
        ab_log_point *point = &log->point[i];
        if (point->value[AB_LOG_step] != step || !ab_log_said(point, AB_LOG_step)) continue;
        if (!ab_log_said(point, field)) ab_log_set(point, field, value);
        return AB_OK;
    }
    ab_log_point point = {.line = record, .format = -1, .rank = -1};
    ab_log_set(&point, AB_LOG_step, step);
    ab_log_set(&point, field, value);
    return append(log, &point); /* its other values follow */
}

/* ---- lines that are not recognised ------------------------------------------------------------- */

/* How many of the words that such lines have it holds. */
static int likeness(const ab_log_line *line) {
    static const char *const words[] = {"loss",     "Loss", "scale", "overflow",
                                        "OVERFLOW", "step", "iter",  "grad"};
    int found = 0;
    for (size_t i = 0; i < AB_COUNT_OF(words); i++)
        found += ab_log_find(line->text, line->end, words[i]) != NULL;
    return found;
}

void ab_log_see_stranger(ab_log *log, int64_t number, const ab_log_line *line) {
    const int like = likeness(line);
    int at = log->nearest;
    while (at > 0 && log->near[at - 1].likeness < like) at--;
    if (at == AB_LOG_NEAREST) return;
    if (log->nearest < AB_LOG_NEAREST) log->nearest++;
    for (int i = log->nearest - 1; i > at; i--) log->near[i] = log->near[i - 1];
    size_t size = (size_t)(line->end - line->text);
    char text[AB_LOG_LINE_TEXT];
    if (size >= sizeof text) size = sizeof text - 1;
    for (size_t i = 0; i < size; i++) text[i] = line->text[i] ? line->text[i] : '?';
    text[size] = '\0';
    log->near[at].line = number;
    log->near[at].likeness = like;
    ab_text_show(log->near[at].text, sizeof log->near[at].text, "%s", text);
}

/* ---- processes that do not name themselves ------------------------------------------------------ */

/* A line that can only come again from another process, if it does so at once: it lowers the scale. */
static bool lowers(const ab_log_point *point) {
    return point->rank < 0 && point->format >= 0 && ab_log_said(point, AB_LOG_overflow) &&
           point->value[AB_LOG_overflow] == 1 && ab_log_said(point, AB_LOG_scale_after) &&
           !ab_log_said(point, AB_LOG_step);
}

static bool same_event(const ab_log_point *a, const ab_log_point *b) {
    return lowers(a) && lowers(b) && a->format == b->format && a->has == b->has &&
           a->value[AB_LOG_scale_after] == b->value[AB_LOG_scale_after];
}

static int common_divisor(int a, int b) {
    while (b) {
        const int rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int run_length(const ab_log *log, int from) {
    int to = from + 1;
    while (to < log->points && same_event(&log->point[from], &log->point[to])) to++;
    return to - from;
}

ab_status ab_log_settle(ab_log *log) {
    int copies = 0, runs = 0, kept = 0;
    AB_TRY(keep_waiting(log));
    for (int i = 0, length; i < log->points; i += length) {
        length = run_length(log, i);
        if (!lowers(&log->point[i])) continue;
        copies = common_divisor(length, copies);
        runs++;
    }
    log->copies = runs >= 2 && copies > 1 ? copies : 1;
    if (log->copies == 1) return AB_OK;
    for (int i = 0, length; i < log->points; i += length) {
        length = run_length(log, i);
        const int rest = lowers(&log->point[i]) ? length / log->copies : length;
        log->other_ranks += length - rest;
        memmove(&log->point[kept], &log->point[i], (size_t)rest * sizeof log->point[0]);
        kept += rest;
    }
    log->points = kept;
    return AB_OK;
}
