/* Change points against an exhaustive search that shares no code with the program, and the history of made-up
 * runs. */
#define _POSIX_C_SOURCE 200809L
#include "reports/compare/history.h"
#include "reports/stats/changes.h"
#include "support/report_text.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* ---- changes --------------------------------------------------------------------------------- */

static double noise(unsigned *state) { /* in (-1, 1), sum of four uniforms */
    double sum = 0;
    for (int i = 0; i < 4; i++) {
        *state = *state * 1664525u + 1013904223u;
        sum += (double)(*state >> 8) / 16777216.0;
    }
    return sum / 2 - 1;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *value, int n) {
    double copy[64];
    memcpy(copy, value, (size_t)n * sizeof *copy);
    qsort(copy, (size_t)n, sizeof *copy, compare);
    return n % 2 ? copy[n / 2] : (copy[n / 2 - 1] + copy[n / 2]) / 2;
}

static double segment_cost(const double *y, int n) {
    double middle = median(y, n), sum = 0;
    for (int i = 0; i < n; i++) sum += fabs(y[i] - middle);
    return sum;
}

/* Least cost of y[0..n) over all ways to cut it, by recursion; cut[] of the best. */
static double exhaust(const double *y, int n, double sigma, double penalty, int from, int *cut, int *cuts) {
    double best = segment_cost(y + from, n - from) / sigma;
    *cuts = 0;
    for (int at = from + AB_CHANGES_LEAST; at <= n - AB_CHANGES_LEAST; at++) {
        int rest[32], count;
        double cost = segment_cost(y + from, at - from) / sigma + penalty +
                      exhaust(y, n, sigma, penalty, at, rest, &count);
        if (cost >= best) continue;
        best = cost;
        cut[0] = at;
        memcpy(cut + 1, rest, (size_t)count * sizeof *cut);
        *cuts = count + 1;
    }
    return best;
}

static void test_the_best_cut_of_all_is_found(void **state) {
    (void)state;
    unsigned seed = 7;
    for (int trial = 0; trial < 60; trial++) {
        double value[18], y[18], difference[17];
        int n = 6 + trial % 13, cut[32], cuts, count;
        for (int i = 0; i < n; i++) {
            double level = i < n / 3 ? 0 : i < 2 * n / 3 ? 0.1 * (trial % 4) : 0.06 * (trial % 3);
            value[i] = exp(level + 0.03 * noise(&seed));
            y[i] = log(value[i]);
        }
        for (int i = 0; i + 1 < n; i++) difference[i] = fabs(y[i + 1] - y[i]);
        double sigma = median(difference, n - 1) / (0.6745 * sqrt(2.0));
        exhaust(y, n, sigma, AB_CHANGES_PENALTY * log(n), 0, cut, &cuts);
        ab_segment segment[18];
        assert_int_equal(ab_changes_find(value, n, 0, segment, &count), AB_OK);
        assert_int_equal(count, cuts + 1);
        for (int i = 0; i < cuts; i++) assert_int_equal(segment[i + 1].first, cut[i]);
    }
}

static void make_step(double *value, int n, int at, double size) {
    unsigned seed = 3;
    for (int i = 0; i < n; i++) value[i] = 1e6 * (i < at ? 1 : 1 + size) * exp(0.01 * noise(&seed));
}

static void test_a_step_is_found_where_it_is_and_outliers_are_not(void **state) {
    (void)state;
    double value[40];
    ab_segment segment[40];
    int count;
    make_step(value, 40, 25, 0.08);
    value[10] *= 3;
    value[31] /= 2;
    assert_int_equal(ab_changes_find(value, 40, 0.03, segment, &count), AB_OK);
    assert_int_equal(count, 2);
    assert_int_equal(segment[1].first, 25);
    assert_true(fabs(segment[1].median / segment[0].median - 1.08) < 0.01);
}

static void test_a_step_below_the_guard_is_merged_away(void **state) {
    (void)state;
    double value[40];
    ab_segment segment[40];
    int count;
    make_step(value, 40, 20, 0.02);
    assert_int_equal(ab_changes_find(value, 40, 0, segment, &count), AB_OK);
    assert_int_equal(count, 2);
    assert_int_equal(ab_changes_find(value, 40, 0.03, segment, &count), AB_OK);
    assert_int_equal(count, 1);
    assert_int_equal(segment[0].count, 40);
}

static void test_series_too_short_to_change_are_one_segment(void **state) {
    (void)state;
    const double value[] = {1, 100, 1, 100, 1};
    ab_segment segment[5];
    int count;
    for (int n = 1; n <= 5; n++) {
        assert_int_equal(ab_changes_find(value, n, 0, segment, &count), AB_OK);
        assert_int_equal(count, 1);
        assert_int_equal(segment[0].count, n);
    }
}

static void test_numbers_that_do_not_scatter_change_with_every_difference(void **state) {
    (void)state;
    const double value[] = {2, 2, 3, 2, 2};
    ab_segment segment[5];
    int count;
    ab_changes_exact(value, 5, segment, &count);
    assert_int_equal(count, 3);
    assert_int_equal(segment[1].first, 2);
    assert_int_equal(segment[2].count, 2);
}

/* ---- history --------------------------------------------------------------------------------- */

static void scale_times(cJSON *value, double factor) {
    cJSON *child;
    cJSON_ArrayForEach(child, value) {
        bool times = child->string && strcmp(child->string, "step_time_ns") == 0;
        cJSON *time;
        if (times && cJSON_IsArray(child)) {
            cJSON_ArrayForEach(time, child) cJSON_SetNumberValue(time, time->valuedouble * factor);
        }
        scale_times(child, factor);
    }
}

/* Run `i` of a history: on day i, times multiplied. */
static void add_run(ab_history *history, int i, double factor, double more_bytes, int *added) {
    char text[40];
    cJSON *document = ab_test_fixture("tiny"), *run = cJSON_GetObjectItem(document, "run"), *cell;
    snprintf(text, sizeof text, "2026-02-%02dT00:00:00Z", i + 1);
    cJSON_SetValuestring(cJSON_GetObjectItem(run, "started_utc"), text);
    snprintf(text, sizeof text, "run-%02d", i);
    cJSON_SetValuestring(cJSON_GetObjectItem(run, "id"), text);
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        scale_times(cJSON_GetObjectItem(cell, "processes"), factor);
        cJSON *total = cJSON_GetObjectItem(cJSON_GetObjectItem(cell, "memory_bytes"), "total");
        cJSON_SetNumberValue(total, total->valuedouble + more_bytes);
    }
    assert_int_equal(ab_result_summarise(document), AB_OK);
    assert_int_equal(ab_history_add(history, document, added), AB_OK);
    cJSON_Delete(document);
}

static const cJSON *series_of(const cJSON *json, const char *level, const char *metric) {
    const cJSON *series;
    cJSON_ArrayForEach(series, cJSON_GetObjectItem(json, "series")) {
        if (strstr(cJSON_GetObjectItem(series, "cell")->valuestring, level) &&
            strcmp(cJSON_GetObjectItem(series, "metric")->valuestring, metric) == 0)
            return series;
    }
    return NULL;
}

static cJSON *make_history(void) {
    unsigned seed = 11;
    int added;
    ab_history *history;
    cJSON *json;
    assert_int_equal(ab_history_create(&history), AB_OK);
    for (int i = 23; i >= 0; i--) /* files come in any order */
        add_run(history, i, (i < 14 ? 1 : 1.10) * exp(0.01 * noise(&seed)), i < 20 ? 0 : 4096, &added);
    add_run(history, 5, 9, 0, &added); /* the same run again */
    assert_int_equal(added, 0);
    assert_int_equal(ab_history_json(history, 0.03, &json), AB_OK);
    ab_history_destroy(history);
    return json;
}

static void test_a_history_names_the_run_that_changed(void **state) {
    (void)state;
    cJSON *json = make_history();
    assert_int_equal(cJSON_GetObjectItem(json, "runs")->valueint, 24);
    const cJSON *times = cJSON_GetObjectItem(series_of(json, "/O0/", "step_time_ns"), "changes");
    assert_int_equal(cJSON_GetArraySize(times), 1);
    assert_string_equal(cJSON_GetObjectItem(times->child, "run")->valuestring, "run-14");
    assert_true(cJSON_IsFalse(cJSON_GetObjectItem(times->child, "better")));
    assert_true(fabs(cJSON_GetObjectItem(times->child, "percent")->valuedouble - 10) < 1);
    const cJSON *bytes = cJSON_GetObjectItem(series_of(json, "/O0/", "peak_bytes"), "changes");
    assert_int_equal(cJSON_GetArraySize(bytes), 1);
    assert_string_equal(cJSON_GetObjectItem(bytes->child, "run")->valuestring, "run-20");
    assert_int_equal(
        cJSON_GetArraySize(cJSON_GetObjectItem(series_of(json, "/O0/", "loss_final"), "changes")), 0);
    cJSON_Delete(json);
}

static void test_a_history_reads_as_text(void **state) {
    (void)state;
    cJSON *json = make_history();
    char *text = calloc(1, 1 << 16);
    FILE *out = fmemopen(text, (1 << 16) - 1, "w");
    assert_non_null(out);
    ab_history_print(json, out);
    fclose(out);
    assert_non_null(strstr(text, "24 runs\n"));
    assert_non_null(
        strstr(text, "in the last 10 of 24 runs; 1 change:\n      2026-02-15T00:00:00Z  run run-14"));
    assert_non_null(strstr(text, "%), worse\n"));
    assert_non_null(strstr(text, " in all 24 runs\n"));
    free(text);
    cJSON_Delete(json);
}

static void test_a_slow_build_is_said_beside_its_times(void **state) {
    (void)state;
    for (int debug = 0; debug < 2; debug++) {
        int added;
        ab_history *history;
        cJSON *json, *document = ab_test_fixture("tiny");
        cJSON *generator = cJSON_GetObjectItem(document, "generator");
        cJSON_SetValuestring(cJSON_GetObjectItem(generator, "name"), "ampbench");
        cJSON_DeleteItemFromObject(generator, "build_type");
        cJSON_AddStringToObject(generator, "build_type", debug ? "Debug" : "Release");
        assert_int_equal(ab_history_create(&history), AB_OK);
        assert_int_equal(ab_history_add(history, document, &added), AB_OK);
        assert_int_equal(ab_history_json(history, 0.03, &json), AB_OK);
        char *text = cJSON_PrintUnformatted(json);
        assert_int_equal(strstr(text, "speeds of a Debug build without oneDNN") != NULL, debug);
        free(text);
        cJSON_Delete(json);
        cJSON_Delete(document);
        ab_history_destroy(history);
    }
}

static void test_other_settings_are_another_series(void **state) {
    (void)state;
    int added;
    ab_history *history;
    cJSON *json, *document = ab_test_fixture("tiny");
    assert_int_equal(ab_history_create(&history), AB_OK);
    assert_int_equal(ab_history_add(history, document, &added), AB_OK);
    int cells = added;
    cJSON_SetNumberValue(cJSON_GetObjectItem(cJSON_GetObjectItem(document, "config"), "threads"), 5);
    cJSON_SetValuestring(cJSON_GetObjectItem(cJSON_GetObjectItem(document, "run"), "id"), "other");
    assert_int_equal(ab_history_add(history, document, &added), AB_OK);
    assert_int_equal(added, cells);
    assert_int_equal(ab_history_json(history, 0.03, &json), AB_OK);
    const cJSON *series;
    cJSON_ArrayForEach(series, cJSON_GetObjectItem(json, "series"))
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(series, "points")), 1);
    cJSON_Delete(json);
    cJSON_Delete(document);
    ab_history_destroy(history);
}

/* Cells whose names differ behind byte 160 alone. */
static void test_cells_that_differ_late_have_series_of_their_own(void **state) {
    (void)state;
    cJSON *document = ab_test_fixture("tiny"), *cell, *json;
    ab_history *history;
    char name[260];
    int cells = 0, added;
    memset(name, 'x', 200);
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        snprintf(name + 200, sizeof name - 200, "%d", cells++);
        cJSON_ReplaceItemInObject(cell, "id", cJSON_CreateString(name));
    }
    assert_int_equal(ab_result_summarise(document), AB_OK);
    assert_int_equal(ab_history_create(&history), AB_OK);
    assert_int_equal(ab_history_add(history, document, &added), AB_OK);
    assert_true(added > 1);
    assert_int_equal(ab_history_json(history, 0.03, &json), AB_OK);
    int series = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(json, "series")) {
        assert_int_equal(strlen(cJSON_GetObjectItem(item, "cell")->valuestring), 201);
        series += strcmp(cJSON_GetObjectItem(item, "metric")->valuestring, "step_time_ns") == 0;
    }
    assert_int_equal(series, added);
    cJSON_Delete(json);
    cJSON_Delete(document);
    ab_history_destroy(history);
}

/* Run `i` whose O0 loss is moved by `shift`, and whose floor is that of the fixture's twin. */
static void add_loss(ab_history *history, int i, double shift) {
    char text[40];
    int added;
    cJSON *document = ab_test_fixture("lenet5"), *run = cJSON_GetObjectItem(document, "run"), *cell, *loss;
    snprintf(text, sizeof text, "run-%02d", i);
    cJSON_SetValuestring(cJSON_GetObjectItem(run, "id"), text);
    snprintf(text, sizeof text, "2026-02-%02dT00:00:00Z", i + 1);
    cJSON_SetValuestring(cJSON_GetObjectItem(run, "started_utc"), text);
    cJSON_ArrayForEach(cell, cJSON_GetObjectItem(document, "cells")) {
        cJSON_ArrayForEach(loss, cJSON_GetObjectItem(cell, "loss")) {
            if (cJSON_IsNumber(loss)) cJSON_SetNumberValue(loss, loss->valuedouble + shift);
        }
    }
    assert_int_equal(ab_result_summarise(document), AB_OK);
    assert_int_equal(ab_history_add(history, document, &added), AB_OK);
    cJSON_Delete(document);
}

static void test_a_loss_changes_only_beyond_its_noise_floor(void **state) {
    (void)state;
    ab_history *history;
    cJSON *json, *document = ab_test_fixture("lenet5");
    assert_int_equal(ab_result_summarise(document), AB_OK);
    const cJSON *found = cJSON_GetObjectItem(cJSON_GetObjectItem(document, "noise_floor"), "chance_gap");
    assert_non_null(found);
    const double floor = found->valuedouble;
    assert_true(floor > 0);
    const double shift[] = {0, 0.5 * floor, -0.5 * floor, 4 * floor, 4.5 * floor, 0};
    cJSON_Delete(document);
    assert_int_equal(ab_history_create(&history), AB_OK);
    for (int i = 0; i < (int)AB_COUNT_OF(shift); i++) add_loss(history, i, shift[i]);
    assert_int_equal(ab_history_json(history, 0.03, &json), AB_OK);
    const cJSON *series = series_of(json, "/O0/", "loss_final");
    const cJSON *changes = cJSON_GetObjectItem(series, "changes");
    assert_int_equal(cJSON_GetArraySize(changes), 2);
    assert_int_equal(cJSON_GetObjectItem(changes->child, "index")->valueint, 3);
    assert_int_equal(cJSON_GetObjectItem(changes->child->next, "index")->valueint, 5);
    assert_int_equal(cJSON_GetObjectItem(series, "within_noise")->valueint, 3);
    assert_true(fabs(cJSON_GetObjectItem(series, "noise_floor")->valuedouble - floor) < 1e-12);
    cJSON_Delete(json);
    ab_history_destroy(history);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells_that_differ_late_have_series_of_their_own),
        cmocka_unit_test(test_the_best_cut_of_all_is_found),
        cmocka_unit_test(test_a_step_is_found_where_it_is_and_outliers_are_not),
        cmocka_unit_test(test_a_step_below_the_guard_is_merged_away),
        cmocka_unit_test(test_series_too_short_to_change_are_one_segment),
        cmocka_unit_test(test_numbers_that_do_not_scatter_change_with_every_difference),
        cmocka_unit_test(test_a_history_names_the_run_that_changed),
        cmocka_unit_test(test_a_history_reads_as_text),
        cmocka_unit_test(test_a_slow_build_is_said_beside_its_times),
        cmocka_unit_test(test_other_settings_are_another_series),
        cmocka_unit_test(test_a_loss_changes_only_beyond_its_noise_floor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
