/* Prints the history: changed series in full, the others in one line each. */
#include "reports/compare/history.h"

#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/record/json.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { RUN_TEXT = 240 };

static const char *value_text(const char *metric, double value, char *text) {
    if (strcmp(metric, "step_time_ns") == 0)
        ab_text_show(text, AB_TEXT_NUMBER, "%.4g ms", value * 1e-6);
    else if (strcmp(metric, "peak_bytes") == 0)
        ab_text_show(text, AB_TEXT_NUMBER, "%.4f MiB", value / (1024 * 1024));
    else
        ab_text_show(text, AB_TEXT_NUMBER, "%.7g", value);
    return text;
}

/* "label", "commit 0123456" or "run 01234567": which run the change began with. */
static void name_run(const cJSON *series, const cJSON *change, char *text) {
    const cJSON *point =
        cJSON_GetArrayItem(ab_json_at(series, "points"), (int)ab_json_number(change, "index", 0));
    const char *label = ab_json_text(point, "label", ""), *sha = ab_json_text(point, "git_sha", "");
    ab_text_show(text, RUN_TEXT, "run %s", ab_json_text(change, "run", "?"));
    if (sha[0]) ab_text_append(text, RUN_TEXT, ", commit %s", sha);
    if (label[0]) ab_text_append(text, RUN_TEXT, ", %s", label);
}

static void print_change(const cJSON *series, const cJSON *change, const char *metric, FILE *out) {
    char before[AB_TEXT_NUMBER], after[AB_TEXT_NUMBER], percent[AB_TEXT_NUMBER] = "", run[RUN_TEXT];
    double share = ab_json_number(change, "percent", (double)NAN);
    if (isfinite(share)) ab_text_show(percent, sizeof percent, " (%+.3g %%)", share);
    name_run(series, change, run);
    ab_print(out, "      %s  %s: %s -> %s%s, %s\n", ab_json_text(change, "started_utc", "?"), run,
             value_text(metric, ab_json_number(change, "before", 0), before),
             value_text(metric, ab_json_number(change, "after", 0), after), percent,
             ab_json_is_true(change, "better") ? "better" : "worse");
}

static void print_series(const cJSON *series, FILE *out) {
    char latest[AB_TEXT_NUMBER], chance[80] = "";
    const char *metric = ab_json_text(series, "metric", "?");
    const cJSON *segments = ab_json_at(series, "segments"), *change, *changes = ab_json_at(series, "changes");
    const cJSON *last = cJSON_GetArrayItem(segments, cJSON_GetArraySize(segments) - 1);
    int points = cJSON_GetArraySize(ab_json_at(series, "points")), count = cJSON_GetArraySize(changes);
    ab_print(out, "    %-14s %s", metric,
             value_text(metric, ab_json_number(last, "median", (double)NAN), latest));
    const double within = ab_json_number(series, "within_noise", 0);
    if (within > 0)
        ab_text_show(chance, sizeof chance, "; %.0f difference%s within the noise floor of %.2g", within,
                     within == 1 ? "" : "s", ab_json_number(series, "noise_floor", 0));
    if (count == 0)
        ab_print(out, " in all %d runs%s\n", points, chance);
    else
        ab_print(out, " in the last %.0f of %d runs%s; %d change%s:\n", ab_json_number(last, "count", 0),
                 points, chance, count, count == 1 ? "" : "s");
    cJSON_ArrayForEach(change, changes) print_change(series, change, metric, out);
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
