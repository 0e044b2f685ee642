/* Series over runs, one panel each: points, the medians between changes, and the changes. */
#include "reports/compare/history.h"

#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <string.h>

enum { PER_PAGE = 8, PANEL_HEIGHT = 146, MARGINS = 110 };

/* Series with at least two runs that are noisy or have changed. */
static bool is_shown(const cJSON *series) {
    bool scatters = !ab_json_is_true(series, "exact");
    return cJSON_GetArraySize(ab_json_at(series, "points")) > 1 &&
           (scatters || cJSON_GetArraySize(ab_json_at(series, "changes")) > 0);
}

static int shown(const cJSON *json, int page, const cJSON **list) {
    int seen = 0, count = 0;
    const cJSON *series;
    cJSON_ArrayForEach(series, ab_json_at(json, "series")) {
        if (!is_shown(series)) continue;
        if (seen++ / PER_PAGE == page && list) list[count++] = series;
    }
    return list ? count : seen;
}

static int pages(const cJSON *json) { return (shown(json, 0, NULL) + PER_PAGE - 1) / PER_PAGE; }

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

static void write_range(const cJSON *series, int panel, FILE *script) {
    double low = (double)INFINITY, high = (double)-INFINITY;
    const cJSON *point;
    cJSON_ArrayForEach(point, ab_json_at(series, "points")) {
        double value = unit_of(series) * ab_json_number(point, "value", 0);
        low = fmin(low, value);
        high = fmax(high, value);
    }
    double margin = high > low ? 0.15 * (high - low) : fmax(fabs(high) * 0.1, 1e-9);
    fprintf(script, "low[%d] = %.10g; high[%d] = %.10g\n", panel, low - margin, panel, high + margin);
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

static ab_status write_plot(const cJSON *json, int page, FILE *data, FILE *script) {
    const cJSON *list[PER_PAGE];
    int panels = shown(json, page, list);
    ab_plot_set_number(script, "panels", panels);
    ab_plot_set_number(script, "width", 1100);
    ab_plot_set_number(script, "height", PANEL_HEIGHT * panels + MARGINS);
    fprintf(script, "array title[%d]\narray note[%d]\narray low[%d]\narray high[%d]\narray runs[%d]\n",
            panels, panels, panels, panels, panels);
    for (int i = 0; i < panels; i++) {
        write_title(list[i], i + 1, script);
        write_range(list[i], i + 1, script);
        fprintf(script, "runs[%d] = %d\n", i + 1, cJSON_GetArraySize(ab_json_at(list[i], "points")));
        write_blocks(list[i], data);
    }
    return AB_OK;
}

extern const char ab_embedded_gp_history[];
const ab_plot ab_plot_history = {"history", ab_embedded_gp_history, pages, write_plot, false};
