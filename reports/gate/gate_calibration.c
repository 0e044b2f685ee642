/* Measures false alarms and power of the gate on arms with a known difference, with exact intervals. */
#include "kernels/core/show.h"
#include "kernels/core/text.h"
#include "reports/gate/gate_case.h"
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "reports/record/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 30, FIRST_LOOK = 12, TEXT = 300 };

static const double confidence = 0.95;

/* Outcomes over windows. */
typedef struct tally {
    int windows, outcome[3];
} tally;

static const cJSON *timed_cell(const cJSON *document) {
    const cJSON *cell;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        if (!cJSON_IsString(ab_json_at(cell, "twin"))) return cell;
    }
    return NULL;
}

/* Returns `length` rounds starting at `first`. */
static ab_gate_series slice(const ab_gate_series *s, int first, int length) {
    ab_gate_series part = {.rounds = length, .base = s->base + first, .other = s->other + first};
    if (s->unsteady) part.unsteady = s->unsteady + first;
    if (s->base_clock) part.base_clock = s->base_clock + first, part.other_clock = s->other_clock + first;
    if (s->base_load) part.base_load = s->base_load + first, part.other_load = s->other_load + first;
    if (s->base_wait) part.base_wait = s->base_wait + first, part.other_wait = s->other_wait + first;
    return part;
}

static ab_status judge_windows(const ab_gate_series *s, const ab_gate_rule *rule, int length, int stride,
                               tally *t) {
    for (int first = 0; first + length <= s->rounds; first += stride) {
        ab_gate_series part = slice(s, first, length);
        ab_gate_decision d;
        AB_TRY(ab_gate_decide(rule, &part, 1, &d));
        t->outcome[d.outcome]++;
        t->windows++;
    }
    return AB_OK;
}

static cJSON *tally_part(const tally *t, int length) {
    double low = 0, high = 1;
    cJSON *part = cJSON_CreateObject();
    if (t->windows > 0) ab_clopper_pearson(t->outcome[AB_GATE_FAIL], t->windows, confidence, &low, &high);
    cJSON_AddNumberToObject(part, "rounds_per_window", length);
    cJSON_AddNumberToObject(part, "windows", t->windows);
    cJSON_AddNumberToObject(part, "fail", t->outcome[AB_GATE_FAIL]);
    cJSON_AddNumberToObject(part, "pass", t->outcome[AB_GATE_PASS]);
    cJSON_AddNumberToObject(part, "inconclusive", t->outcome[AB_GATE_INCONCLUSIVE]);
    cJSON_AddNumberToObject(part, "fail_share_low", low);
    cJSON_AddNumberToObject(part, "fail_share_high", high);
    return part;
}

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* 99th percentile of |estimate| over all windows of 12 rounds of identical arms: a lower limit for the
 * guard. */
static ab_status largest_noise(const ab_gate_series *s, double *noise) {
    int n = 0, most = s->rounds - FIRST_LOOK + 1;
    *noise = 0;
    if (most < 1) return AB_OK;
    double *size = malloc((size_t)most * sizeof *size);
    if (!size) return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    ab_status status = AB_OK;
    for (int first = 0; status == AB_OK && first < most; first++) {
        ab_ratio r;
        status = ab_ratio_paired(s->base + first, s->other + first, FIRST_LOOK, 0.02, 0, &r);
        size[n++] = r.ratio > 1 ? r.ratio - 1 : 1 / r.ratio - 1;
    }
    if (status == AB_OK) {
        qsort(size, (size_t)n, sizeof *size, ascending);
        *noise = size[(99 * (n - 1) + 99) / 100];
    }
    free(size);
    return status;
}

/* The median of the rounds' ratios; NaN without rounds. */
static ab_status median_ratio(const ab_gate_series *s, double *median) {
    *median = (double)NAN;
    if (s->rounds == 0) return AB_OK;
    double *ratio = malloc((size_t)s->rounds * sizeof *ratio);
    if (!ratio) return ab_fail(AB_NO_MEMORY, "gate: out of memory");
    for (int i = 0; i < s->rounds; i++) ratio[i] = s->other[i] / s->base[i];
    *median = ab_stats_median(ratio, s->rounds);
    free(ratio);
    return AB_OK;
}

static ab_status add_row(cJSON *rows, const cJSON *base, const cJSON *other, double effect,
                         const ab_gate_options *options, double *noise) {
    ab_gate_track track;
    ab_gate_rule rule = ab_gate_rule_standard(0), first_look = ab_gate_rule_standard(0);
    tally full = {0, {0}}, sliding = {0, {0}}, early = {0, {0}};
    double all;
    ab_status status;
    int rounds = (int)ab_json_number(other, "design.session.rounds", 0);
    rule.tolerance = first_look.tolerance = options->time_tolerance;
    rule.guard = first_look.guard = options->guard;
    first_look.looks = 1;
    AB_TRY(ab_gate_track_create(timed_cell(base), timed_cell(other), rounds, &track));
    AB_TRY_GOTO(judge_windows(&track.series, &rule, WINDOW, WINDOW, &full));
    AB_TRY_GOTO(judge_windows(&track.series, &rule, WINDOW, 1, &sliding));
    AB_TRY_GOTO(judge_windows(&track.series, &first_look, FIRST_LOOK, FIRST_LOOK, &early));
    AB_TRY_GOTO(median_ratio(&track.series, &all));
    if (effect == 0) AB_TRY_GOTO(largest_noise(&track.series, noise));
    cJSON *row = cJSON_CreateObject();
    cJSON_AddItemToArray(rows, row);
    cJSON_AddNumberToObject(row, "effect_percent", 100 * effect);
    cJSON_AddItemToObject(row, "measured_percent",
                          isfinite(all) ? cJSON_CreateNumber(100 * (all - 1)) : cJSON_CreateNull());
    cJSON_AddItemToObject(row, "windows", tally_part(&full, WINDOW));
    cJSON_AddItemToObject(row, "first_look", tally_part(&early, FIRST_LOOK));
    cJSON_AddItemToObject(row, "overlapping", tally_part(&sliding, WINDOW));
out:
    ab_gate_track_free(&track);
    return status;
}

static void add_summary(cJSON *calibration, const cJSON *rows, double noise) {
    char text[TEXT];
    const cJSON *row;
    cJSON *summary = cJSON_AddObjectToObject(calibration, "summary");
    text[0] = '\0';
    cJSON_ArrayForEach(row, rows) {
        double effect = ab_json_number(row, "effect_percent", 0);
        double fail = ab_json_number(row, "windows.fail", 0),
               windows = ab_json_number(row, "windows.windows", 0);
        char name[32] = "identical builds";
        if (effect > 0) ab_text_show(name, sizeof name, "+%.3g %%", effect);
        ab_text_append(text, sizeof text, "%s%s: %.0f of %.0f failed", text[0] ? "; " : "", name, fail,
                       windows);
    }
    cJSON_AddStringToObject(summary, "text", text);
    cJSON_AddNumberToObject(summary, "noise_p99_percent", ab_gate_rounded(100 * noise, 4));
    cJSON_AddItemToObject(summary, "environment_cpu_model",
                          cJSON_Duplicate(ab_json_at(calibration, "environment.cpu_model"), 1));
}

ab_status ab_gate_calibrate(const cJSON *const *documents, const double *effects, int arms,
                            const ab_gate_options *options, cJSON **calibration) {
    static const char *const machine[] = {"os",    "kernel",   "cpu_model",    "isa",
                                          "cores", "affinity", "hostname_hash"};
    cJSON *document = cJSON_CreateObject(), *rows = cJSON_CreateArray(), *environment = cJSON_CreateObject();
    double noise = 0;
    ab_status status = AB_OK;
    for (int a = 1; a < arms && status == AB_OK; a++)
        status = add_row(rows, documents[0], documents[a], effects[a], options, &noise);
    for (size_t i = 0; i < AB_COUNT_OF(machine); i++) {
        const cJSON *value = ab_json_at(ab_json_at(documents[0], "environment"), machine[i]);
        cJSON_AddItemToObject(environment, machine[i],
                              value ? cJSON_Duplicate(value, 1) : cJSON_CreateNull());
    }
    cJSON_AddStringToObject(document, "schema", "ampbench-gate-calibration");
    cJSON_AddStringToObject(document, "schema_version", "1.0.0");
    cJSON_AddItemToObject(document, "environment", environment);
    cJSON_AddStringToObject(document, "cell", ab_json_text(timed_cell(documents[0]), "id", ""));
    cJSON_AddNumberToObject(document, "rounds", ab_json_number(documents[0], "design.session.rounds", 0));
    cJSON_AddNumberToObject(document, "time_tolerance_percent", 100 * options->time_tolerance);
    cJSON_AddNumberToObject(document, "guard_percent", 100 * options->guard);
    cJSON_AddNumberToObject(document, "confidence", confidence);
    cJSON_AddItemToObject(document, "rows", rows);
    add_summary(document, rows, noise);
    if (status == AB_OK)
        *calibration = document;
    else
        cJSON_Delete(document);
    return status;
}

ab_status ab_gate_load_calibration(const char *path, cJSON **calibration) {
    cJSON *document;
    AB_TRY(ab_json_load(path, &document));
    if (strcmp(ab_json_text(document, "schema", ""), "ampbench-gate-calibration") == 0 &&
        strncmp(ab_json_text(document, "schema_version", ""), "1.", 2) == 0) {
        *calibration = document;
        return AB_OK;
    }
    cJSON_Delete(document);
    return ab_fail(AB_INPUT, "%s: expected a calibration of `ampbench gate --selftest --json FILE`", path);
}

static void print_row(const cJSON *row, const char *part, FILE *out) {
    const cJSON *t = ab_json_at(row, part);
    fprintf(out, "  %+9.3g %% %+9.2f %% %8.0f %8.0f %6.0f %6.0f %13.0f   %5.1f to %5.1f %%\n",
            ab_json_number(row, "effect_percent", 0), ab_json_number(row, "measured_percent", 0),
            ab_json_number(t, "rounds_per_window", 0), ab_json_number(t, "windows", 0),
            ab_json_number(t, "fail", 0), ab_json_number(t, "pass", 0), ab_json_number(t, "inconclusive", 0),
            100 * ab_json_number(t, "fail_share_low", 0), 100 * ab_json_number(t, "fail_share_high", 0));
}

void ab_gate_calibration_print(const cJSON *calibration, FILE *out) {
    char text[TEXT];
    const cJSON *row;
    ab_print(out, "%s, %.0f rounds: how often the gate fires\n",
             ab_text_clean(text, sizeof text, ab_json_text(calibration, "cell", "")),
             ab_json_number(calibration, "rounds", 0));
    ab_print(out, "  %11s %11s %8s %8s %6s %6s %13s   %s\n", "added work", "measured", "rounds", "windows",
             "FAIL", "PASS", "INCONCLUSIVE", "FAIL rate, 95 % interval");
    cJSON_ArrayForEach(row, ab_json_at(calibration, "rows")) {
        print_row(row, "windows", out);
        print_row(row, "first_look", out);
    }
    fprintf(
        out,
        "noise of identical builds: 99 of 100 estimates over 12 rounds are within %.2f %% (guard: %.3g %%)\n",
        ab_json_number(calibration, "summary.noise_p99_percent", 0),
        ab_json_number(calibration, "guard_percent", 0));
}
