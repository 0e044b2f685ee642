/* A sweep of fixed loss scales in one picture: loss gap, flushed, overflowed and skipped against the scale, a
 * line for each level and half format. Scales that change by themselves are not in it. */
#include "kernels/core/text.h"
#include "reports/plot/plot.h"
#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "reports/record/summary.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PER_PAGE = 8, LEAST_SCALES = 3 };

/* ---- points ---------------------------------------------------------------------------------- */

/* A cell of a line; those with equal scales are the seeds of one point. */
typedef struct point {
    double scale;
    const cJSON *cell;
} point;

typedef struct line {
    const cJSON *first; /* cell that names the line */
    point *point;       /* [points], by scale; owned */
    int points, scales;
} line;

typedef struct sweep {
    line *line; /* [lines]; owned */
    int lines;
} sweep;

static bool is_swept(const cJSON *cell) {
    bool skips;
    return !ab_plot_is_perturbed_baseline(cell) && strcmp(ab_json_text(cell, "level", ""), "O0") != 0 &&
           cJSON_IsObject(ab_json_at(cell, "summary")) && isfinite(ab_plot_fixed_scale(cell, &skips));
}

/* Whether two cells differ in scale and seed at most. */
static bool same_line(const cJSON *a, const cJSON *b) {
    static const char *const keys[] = {"half_format", "device", "model", "of_run.label"};
    bool a_skips, b_skips;
    ab_plot_fixed_scale(a, &a_skips);
    ab_plot_fixed_scale(b, &b_skips);
    if (a_skips != b_skips || strcmp(ab_cell_label(a), ab_cell_label(b)) != 0) return false;
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++)
        if (strcmp(ab_json_text(a, keys[i], ""), ab_json_text(b, keys[i], "")) != 0) return false;
    return true;
}

static int compare_points(const void *x, const void *y) {
    const point *a = x, *b = y;
    return (a->scale > b->scale) - (a->scale < b->scale);
}

static ab_status add_to_line(line *l, const cJSON *cell) {
    bool skips;
    point *more = realloc(l->point, ((size_t)l->points + 1) * sizeof *more);
    if (!more) return ab_fail(AB_NO_MEMORY, "out of memory while writing plots");
    l->point = more;
    more[l->points++] = (point){ab_plot_fixed_scale(cell, &skips), cell};
    return AB_OK;
}

static ab_status add_cell(sweep *s, const cJSON *cell) {
    for (int i = 0; i < s->lines; i++)
        if (same_line(s->line[i].first, cell)) return add_to_line(&s->line[i], cell);
    line *more = realloc(s->line, ((size_t)s->lines + 1) * sizeof *more);
    if (!more) return ab_fail(AB_NO_MEMORY, "out of memory while writing plots");
    s->line = more;
    more[s->lines++] = (line){.first = cell};
    return add_to_line(&more[s->lines - 1], cell);
}

static void release(void *prepared) {
    sweep *s = prepared;
    for (int i = 0; s && i < s->lines; i++) free(s->line[i].point);
    if (s) free(s->line);
    free(s);
}

/* Cells of one scale from `at`. */
static int seeds_at(const line *l, int at) {
    int end = at;
    while (end < l->points && l->point[end].scale == l->point[at].scale) end++;
    return end - at;
}

/* Sorts the lines and keeps those of at least three scales. */
static void finish(sweep *s) {
    int kept = 0;
    for (int i = 0; i < s->lines; i++) {
        line *l = &s->line[i];
        qsort(l->point, (size_t)l->points, sizeof *l->point, compare_points);
        for (int at = 0; at < l->points; at += seeds_at(l, at)) l->scales++;
        if (l->scales >= LEAST_SCALES)
            s->line[kept++] = *l;
        else
            free(l->point);
    }
    s->lines = kept;
}

static ab_status prepare(ab_plot_input *in) {
    const cJSON *cell;
    sweep *s = in->prepared = calloc(1, sizeof *s);
    if (!s) return ab_fail(AB_NO_MEMORY, "out of memory while writing plots");
    cJSON_ArrayForEach(cell, ab_json_at(in->document, "cells")) {
        if (is_swept(cell)) AB_TRY(add_cell(s, cell));
    }
    finish(s);
    return AB_OK;
}

static int pages(ab_plot_input *in) {
    const sweep *s = in->prepared;
    return (s->lines + PER_PAGE - 1) / PER_PAGE;
}

/* ---- data ------------------------------------------------------------------------------------ */

static double mean_of(const point *p, int count, const char *key) {
    double sum = 0;
    int known = 0;
    for (int i = 0; i < count; i++) {
        const double value = ab_json_number(ab_json_at(p[i].cell, "summary"), key, (double)NAN);
        if (!isfinite(value)) continue;
        sum += value;
        known++;
    }
    return known > 0 ? sum / known : (double)NAN;
}

/* A share or a count: 0 has no place on a logarithmic axis. */
static double above_zero(double value) { return value > 0 ? value : (double)NAN; }

/* Extremes of the magnitude of the gap over the seeds; how many have none. */
static int gap_range(const point *p, int count, double *low, double *high) {
    int missing = 0;
    *low = (double)INFINITY;
    *high = (double)-INFINITY;
    for (int i = 0; i < count; i++) {
        const double gap = fabs(ab_json_number(p[i].cell, "summary.loss_gap", (double)NAN));
        missing += !isfinite(gap);
        if (!isfinite(gap)) continue;
        *low = fmin(*low, gap);
        *high = fmax(*high, gap);
    }
    return missing;
}

static void write_point(const point *p, int seeds, FILE *data) {
    double low, high;
    const int missing = gap_range(p, seeds, &low, &high);
    const double gap = mean_of(p, seeds, "loss_gap");
    const double rest[] = {above_zero(100 * mean_of(p, seeds, "flushed_share")),
                           above_zero(mean_of(p, seeds, "overflowed")),
                           100 * mean_of(p, seeds, "skipped_share")};
    fprintf(data, "%.9g", log2(p->scale));
    ab_plot_number(data, above_zero(fabs(gap)));
    ab_plot_number(data, above_zero(low));
    ab_plot_number(data, above_zero(high));
    fprintf(data, " %d %d", gap<0, missing> 0);
    for (size_t i = 0; i < AB_COUNT_OF(rest); i++) ab_plot_number(data, rest[i]);
    fputc('\n', data);
}

static void write_line(const line *l, const char *label, FILE *data) {
    fprintf(data,
            "# %s\n# log2_scale  |loss_gap|  lowest  highest  below_O0  no_gap  flushed_%%  overflowed  "
            "skipped_%%\n",
            label);
    for (int at = 0; at < l->points; at += seeds_at(l, at)) write_point(&l->point[at], seeds_at(l, at), data);
    fputs("\n\n", data);
}

/* ---- page ------------------------------------------------------------------------------------ */

/* "O2", "O2, skipping, bf16": what distinguishes the line from the others. */
static const char *label_of(const sweep *s, const line *l, char *label) {
    static const char *const keys[] = {"half_format", "device", "model", "of_run.label"};
    char text[48];
    bool skips;
    ab_plot_fixed_scale(l->first, &skips);
    ab_text_clean(label, AB_PLOT_LABEL - 160, ab_cell_label(l->first));
    ab_text_elide(label, 60);
    if (skips) ab_text_append(label, AB_PLOT_LABEL, ", skipping");
    for (size_t k = 0; k < AB_COUNT_OF(keys); k++) {
        bool varies = false;
        for (int i = 0; i < s->lines; i++)
            varies |= strcmp(ab_json_text(s->line[i].first, keys[k], ""),
                             ab_json_text(s->line[0].first, keys[k], "")) != 0;
        if (!varies) continue;
        ab_text_clean(text, sizeof text, ab_json_text(l->first, keys[k], "?"));
        ab_text_append(label, AB_PLOT_LABEL, ", %s", text);
    }
    return label;
}

/* Extremes of a page: of log2 of the scales, and of what is drawn on logarithmic axes. */
typedef struct extremes {
    double first, last, gap_low, gap_high, flushed_high, overflowed_high, skipped_high;
} extremes;

static void see_point(extremes *e, const point *p, int seeds) {
    double low, high;
    gap_range(p, seeds, &low, &high);
    e->first = fmin(e->first, log2(p->scale));
    e->last = fmax(e->last, log2(p->scale));
    e->gap_low = fmin(e->gap_low, low > 0 ? low : (double)INFINITY);
    e->gap_high = fmax(e->gap_high, high);
    e->flushed_high = fmax(e->flushed_high, 100 * mean_of(p, seeds, "flushed_share"));
    e->overflowed_high = fmax(e->overflowed_high, mean_of(p, seeds, "overflowed"));
    e->skipped_high = fmax(e->skipped_high, 100 * mean_of(p, seeds, "skipped_share"));
}

static void write_extremes(ab_plot_input *in, const extremes *e, FILE *script) {
    const ab_floors floors = ab_summary_floors(in->document);
    const double chance = fmax(floors.noise, floors.rounding);
    const bool gaps = e->gap_low <= e->gap_high;
    ab_plot_set_number(script, "first", e->first);
    ab_plot_set_number(script, "last", e->last);
    ab_plot_set_number(script, "any_gap", gaps);
    ab_plot_set_number(script, "chance", chance);
    ab_plot_set_number(script, "gap_low", gaps ? fmin(e->gap_low, chance > 0 ? chance : e->gap_low) / 2 : 1);
    ab_plot_set_number(script, "gap_high", gaps ? fmax(e->gap_high, chance) * 4 : 10);
    ab_plot_set_number(script, "flushed_high", e->flushed_high);
    ab_plot_set_number(script, "overflowed_high", e->overflowed_high);
    ab_plot_set_number(script, "skipped_high", e->skipped_high);
}

static void write_variables(ab_plot_input *in, const sweep *s, const line *l, int count, FILE *script) {
    char text[AB_PLOT_LABEL];
    extremes e = {(double)INFINITY, (double)-INFINITY, (double)INFINITY, (double)-INFINITY, 0, 0, 0};
    ab_plot_set_text(script, "subject", ab_plot_subject(in->document, text));
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "lines", count);
    int longest = 0;
    fprintf(script, "array label_of[%d]\narray color_of[%d]\narray dash_of[%d]\n", count, count, count);
    for (int i = 0; i < count; i++) {
        int dash = 1;
        for (int k = 0; k < i; k++) dash += strcmp(ab_cell_label(l[k].first), ab_cell_label(l[i].first)) == 0;
        fprintf(script, "label_of[%d] = ", i + 1);
        ab_plot_quote(script, label_of(s, &l[i], text));
        longest = ab_text_width(text) > longest ? ab_text_width(text) : longest;
        fprintf(script, "; dash_of[%d] = %d; ", i + 1, dash);
        ab_plot_set_color(script, i + 1, in, l[i].first);
        for (int at = 0; at < l[i].points; at += seeds_at(&l[i], at))
            see_point(&e, &l[i].point[at], seeds_at(&l[i], at));
    }
    const int rows = ab_plot_key_rows(longest, count);
    ab_plot_set_number(script, "key_rows", rows);
    ab_plot_set_number(script, "height", 864 + 18 * rows);
    write_extremes(in, &e, script);
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    char label[AB_PLOT_LABEL];
    const sweep *s = in->prepared;
    const line *l = s->line + (ptrdiff_t)page * PER_PAGE;
    const int left = s->lines - page * PER_PAGE, count = left < PER_PAGE ? left : PER_PAGE;
    for (int i = 0; i < count; i++) write_line(&l[i], label_of(s, &l[i], label), data);
    write_variables(in, s, l, count, script);
    return AB_OK;
}

extern const char ab_embedded_gp_sweep[];
extern const ab_plot ab_plot_sweep;
const ab_plot ab_plot_sweep = {"sweep", ab_embedded_gp_sweep, pages, write_plot, true, prepare, release};
