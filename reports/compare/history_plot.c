/* Series over runs, one panel each: points, the medians between changes, and the changes. */
#include "reports/compare/history.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { PER_PAGE = 8, PANEL_HEIGHT = 168, MARGINS = 110, TICKS = 9, SHORT_COMMIT = 7 };

/* Series with at least two runs that are noisy or have changed. */
static bool is_shown(const cJSON *series) {
    bool scatters = !ab_json_is_true(series, "exact");
    return cJSON_GetArraySize(ab_json_at(series, "points")) > 1 &&
           (scatters || cJSON_GetArraySize(ab_json_at(series, "changes")) > 0);
}

static int pages(ab_plot_input *in) { return ab_plot_item_pages(in, "series", is_shown, PER_PAGE); }

static double unit_of(const cJSON *series) {
    const char *metric = ab_json_text(series, "metric", "");
    return strcmp(metric, "step_time_ns") == 0 ? 1e-6
           : strcmp(metric, "peak_bytes") == 0 ? 1.0 / (1024 * 1024)
                                               : 1;
}

static const char *unit_name(const cJSON *series) {
    const char *metric = ab_json_text(series, "metric", "");
    return strcmp(metric, "step_time_ns") == 0 ? "step time, ms"
           : strcmp(metric, "peak_bytes") == 0 ? "peak, MiB"
                                               : metric;
}

static void write_blocks(const cJSON *series, FILE *data) {
    double unit = unit_of(series);
    int i = 0;
    const cJSON *point, *segment;
    fputs("# run  value\n", data);
    cJSON_ArrayForEach(point, ab_json_at(series, "points")) {
        fprintf(data, "%d", ++i);
        ab_plot_number(data, unit * ab_json_number(point, "value", (double)NAN));
        fputc('\n', data);
    }
    fputs("\n\n# first run, last run, median\n", data);
    cJSON_ArrayForEach(segment, ab_json_at(series, "segments")) {
        double first = ab_json_number(segment, "first", 0), count = ab_json_number(segment, "count", 0);
        fprintf(data, "%g %g", first + 0.5, first + count + 0.5);
        ab_plot_number(data, unit * ab_json_number(segment, "median", (double)NAN));
        fputc('\n', data);
    }
    fputs("\n\n", data);
}

/* The distance of ticks: 1, 2 or 5 times a power of ten, at most a third of the range; whole for counts. */
static double tick_step(double range, bool whole) {
    const double rough = range / 3, power = pow(10, floor(log10(rough))), lead = rough / power;
    const double step = power * (lead < 2 ? 1 : lead < 5 ? 2 : 5);
    return whole ? fmax(1, round(step)) : step;
}

static void write_range(const cJSON *series, int panel, FILE *script) {
    const bool whole = strcmp(ab_json_text(series, "metric", ""), "steps_skipped") == 0;
    double low = (double)INFINITY, high = (double)-INFINITY;
    const cJSON *point;
    cJSON_ArrayForEach(point, ab_json_at(series, "points")) {
        double value = unit_of(series) * ab_json_number(point, "value", 0);
        low = fmin(low, value);
        high = fmax(high, value);
    }
    double margin = high > low ? 0.15 * (high - low) : fmax(fabs(high) * 0.1, 1e-9);
    low -= margin;
    high += margin;
    const double step = tick_step(high - low, whole), most = fmax(fabs(low), fabs(high));
    const int digits = (int)fmin(17, fmax(1, floor(log10(most)) - floor(log10(step)) + 1));
    fprintf(script, "low[%d] = %.17g; high[%d] = %.17g; step[%d] = %.17g; digits[%d] = %d\n", panel, low,
            panel, high, panel, step, panel, digits);
}

/* "2026-03-01", or "03-01 14:05" where two runs are of one day. */
static void date_text(const cJSON *point, bool time, char *text, size_t size) {
    const char *started = ab_json_text(point, "started_utc", "?");
    ab_text_clean(text, size, started);
    if (strlen(text) < 16 || text[10] != 'T') return;
    text[time ? 16 : 10] = '\0';
    if (!time) return;
    text[10] = ' ';
    memmove(text, text + 5, strlen(text + 5) + 1);
}

static bool shares_a_day(const cJSON *points) {
    const cJSON *point;
    cJSON_ArrayForEach(point, points) {
        if (point->next && strncmp(ab_json_text(point, "started_utc", "?"),
                                   ab_json_text(point->next, "started_utc", "?"), 10) == 0)
            return true;
    }
    return false;
}

/* Under every n-th run: its date, and its label or the beginning of its commit. */
static void write_ticks(const cJSON *series, int panel, int *count, FILE *script) {
    const cJSON *points = ab_json_at(series, "points"), *point;
    const int runs = cJSON_GetArraySize(points), every = (runs + TICKS - 1) / TICKS;
    const bool time = shares_a_day(points);
    char text[40];
    int i = 0;
    fprintf(script, "first_tick[%d] = %d\n", panel, *count + 1);
    cJSON_ArrayForEach(point, points) {
        if (i++ % every != 0) continue;
        date_text(point, time, text, sizeof text);
        ++*count;
        fprintf(script, "tick_at[%d] = %d; tick_date[%d] = ", *count, i, *count);
        ab_plot_quote(script, text);
        ab_text_clean(text, sizeof text, ab_json_text(point, "label", ab_json_text(point, "git_sha", "")));
        if (!cJSON_IsString(ab_json_at(point, "label")) && strlen(text) > SHORT_COMMIT)
            text[SHORT_COMMIT] = '\0';
        ab_text_elide(text, 14);
        fprintf(script, "; tick_name[%d] = ", *count);
        ab_plot_quote(script, text);
        fputc('\n', script);
    }
    fprintf(script, "last_tick[%d] = %d\n", panel, *count);
}

static void write_title(const cJSON *series, int panel, FILE *script) {
    char text[AB_PLOT_LABEL];
    ab_text_clean(text, sizeof text, ab_json_text(series, "cell", "?"));
    ab_text_elide(text, 80);
    fprintf(script, "title[%d] = ", panel);
    ab_plot_quote(script, text);
    int changes = cJSON_GetArraySize(ab_json_at(series, "changes"));
    ab_text_show(text, sizeof text, "%s; %d change%s", unit_name(series), changes, changes == 1 ? "" : "s");
    fprintf(script, "; note[%d] = ", panel);
    ab_plot_quote(script, text);
    fputc('\n', script);
}

static void write_array(const char *name, int size, FILE *script) {
    fputs("array ", script);
    fputs(name, script);
    fprintf(script, "[%d]\n", size);
}

static ab_status write_plot(ab_plot_input *in, int page, FILE *data, FILE *script) {
    const cJSON *list[PER_PAGE];
    int panels = ab_plot_items(in, "series", is_shown, page, PER_PAGE, list);
    ab_plot_set_number(script, "panels", panels);
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "height", PANEL_HEIGHT * panels + MARGINS);
    int ticks = 0;
    static const char *const arrays[] = {"title", "note",   "low",        "high",     "runs",
                                         "step",  "digits", "first_tick", "last_tick"};
    static const char *const of_ticks[] = {"tick_at", "tick_date", "tick_name"};
    for (size_t i = 0; i < AB_COUNT_OF(arrays); i++) write_array(arrays[i], panels, script);
    for (size_t i = 0; i < AB_COUNT_OF(of_ticks); i++) write_array(of_ticks[i], panels * TICKS, script);
    for (int i = 0; i < panels; i++) {
        write_title(list[i], i + 1, script);
        write_range(list[i], i + 1, script);
        write_ticks(list[i], i + 1, &ticks, script);
        fprintf(script, "runs[%d] = %d\n", i + 1, cJSON_GetArraySize(ab_json_at(list[i], "points")));
        write_blocks(list[i], data);
    }
    return AB_OK;
}

extern const char ab_embedded_gp_history[];
const ab_plot ab_plot_history = {"history", ab_embedded_gp_history, pages, write_plot, false, NULL, NULL};
