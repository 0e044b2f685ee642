/* The course of the loss scale in a log, as spans of steps. */
#include "bench/ingest/dialect/dialect.h"

#include <math.h>
#include <stdlib.h>

/* Points that count steps and tell the scale; all of one kind of line. */
static bool tells(const ab_log_point *p, int format) {
    return p->format == format && ab_log_said(p, AB_LOG_step) && ab_log_said(p, AB_LOG_scale);
}

static int first_that_tells(const ab_log *log) {
    for (int i = 0; i < log->points; i++)
        if (tells(&log->point[i], log->point[i].format)) return i;
    return -1;
}

static ab_scale_span span_between(const ab_log_point *from, const ab_log_point *to, ab_skips_of skips) {
    const ab_log_point *line = skips == AB_SKIPS_AFTER_SCALE ? from : to;
    const bool known = skips != AB_SKIPS_UNUSED && ab_log_said(line, AB_LOG_skipped);
    return (ab_scale_span){.steps = (int64_t)(to->value[AB_LOG_step] - from->value[AB_LOG_step]),
                           .skipped = known ? (int64_t)line->value[AB_LOG_skipped] : -1,
                           .scale = to->value[AB_LOG_scale],
                           .error = to->error};
}

/* Spans of the same scale whose skips are unknown or none are one. */
static bool joins(const ab_scale_span *a, const ab_scale_span *b) {
    return a->scale == b->scale && a->skipped == b->skipped && a->skipped <= 0;
}

static void add_span(ab_scale_course *course, const ab_scale_span *span) {
    ab_scale_span *last = course->spans > 1 ? &course->span[course->spans - 1] : NULL;
    if (last && joins(last, span) && course->span[course->spans - 2].scale == span->scale)
        last->steps += span->steps;
    else
        course->span[course->spans++] = *span;
}

/* Up to the first place where steps are counted again or missing points hide changes: a resume has another
 * scaler. */
ab_status ab_scale_course_of(const ab_log *log, ab_skips_of skips, ab_scale_course *course) {
    const int first = first_that_tells(log);
    *course = (ab_scale_course){.spans = 0};
    if (first < 0) return AB_OK;
    const int format = log->point[first].format;
    const ab_log_point *last = &log->point[first];
    course->span = calloc((size_t)log->points, sizeof *course->span);
    if (!course->span) return ab_fail(AB_NO_MEMORY, "log: out of memory");
    course->first = last->value[AB_LOG_scale];
    course->fresh =
        last->value[AB_LOG_step] == 0 || (last->value[AB_LOG_step] == 1 && skips == AB_SKIPS_AFTER_SCALE);
    for (int i = first + 1; i < log->points; i++) {
        const ab_log_point *p = &log->point[i];
        if (!tells(p, format)) continue;
        if (!(p->value[AB_LOG_step] > last->value[AB_LOG_step])) break;
        const ab_scale_span span = span_between(last, p, skips);
        add_span(course, &span);
        last = p;
    }
    return AB_OK;
}
