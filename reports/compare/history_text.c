/* Prints the history: changed series in full, the others in one line each. */
#include "reports/compare/history.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

static const char *value_text(const char *metric, double value, char *text) {
    if (strcmp(metric, "step_time_ns") == 0)
        ab_text_show(text, AB_TEXT_NUMBER, "%.4g ms", value * 1e-6);
    else if (strcmp(metric, "peak_bytes") == 0)
        ab_text_show(text, AB_TEXT_NUMBER, "%.4f MiB", value / (1024 * 1024));
    else
        ab_text_show(text, AB_TEXT_NUMBER, "%.7g", value);
    return text;
}

static void print_change(const cJSON *change, const char *metric, FILE *out) {
    char before[AB_TEXT_NUMBER], after[AB_TEXT_NUMBER], percent[AB_TEXT_NUMBER] = "";
    double share = ab_json_number(change, "percent", (double)NAN);
    if (isfinite(share)) ab_text_show(percent, sizeof percent, " (%+.3g %%)", share);
    ab_print(out, "      %s  run %s: %s -> %s%s, %s\n", ab_json_text(change, "started_utc", "?"),
             ab_json_text(change, "run", "?"),
             value_text(metric, ab_json_number(change, "before", 0), before),
             value_text(metric, ab_json_number(change, "after", 0), after), percent,
             ab_json_is_true(change, "better") ? "better" : "worse");
}

static void print_series(const cJSON *series, FILE *out) {
    char latest[AB_TEXT_NUMBER];
    const char *metric = ab_json_text(series, "metric", "?");
    const cJSON *segments = ab_json_at(series, "segments"), *change, *changes = ab_json_at(series, "changes");
    const cJSON *last = cJSON_GetArrayItem(segments, cJSON_GetArraySize(segments) - 1);
    int points = cJSON_GetArraySize(ab_json_at(series, "points")), count = cJSON_GetArraySize(changes);
    ab_print(out, "    %-14s %s", metric,
             value_text(metric, ab_json_number(last, "median", (double)NAN), latest));
    if (count == 0)
        fprintf(out, " in all %d runs\n", points);
    else
        ab_print(out, " in the last %.0f of %d runs; %d change%s:\n", ab_json_number(last, "count", 0),
                 points, count, count == 1 ? "" : "s");
    cJSON_ArrayForEach(change, changes) print_change(change, metric, out);
}

static bool begins_group(const cJSON *series, const cJSON *last, const char *key) {
    return !last || strcmp(ab_json_text(series, key, ""), ab_json_text(last, key, "")) != 0;
}

void ab_history_print(const cJSON *json, FILE *out) {
    const cJSON *series, *last = NULL;
    fprintf(out, "%.0f runs\n", ab_json_number(json, "runs", 0));
    cJSON_ArrayForEach(series, ab_json_at(json, "series")) {
        bool group =
            begins_group(series, last, "comparability_key") || begins_group(series, last, "settings");
        if (group)
            ab_print(out, "\n%s (machine and build %s)\n", ab_json_text(series, "settings", "?"),
                     ab_json_text(series, "comparability_key", "?"));
        if (group || begins_group(series, last, "cell"))
            ab_print(out, "  %s\n", ab_json_text(series, "cell", "?"));
        print_series(series, out);
        last = series;
    }
}
