/* Records of ranks added up: counts and exponents exactly, extremes, losses as means; what is refused. */
#include "reports/record/ranks.h"

#include "kernels/core/log.h"
#include "reports/record/json.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A record with one tensor, and `more` tensors after it. */
static cJSON *record(int rank, int world, const char *tensor, const char *loss, const char *scale) {
    char text[2048];
    snprintf(text, sizeof text,
             "{\"network\": {\"name\": \"net\", \"parameters_count\": 8}, \"warnings\": [],"
             "\"probe\": {\"rank\": %d, \"world\": %d}, \"cells\": [{\"loss\": %s, \"scale\": %s,"
             "\"skipped_steps\": [], \"probes\": {\"tensors\": [%s], \"weights\": []}}]}",
             rank, world, loss, scale, tensor);
    cJSON *parsed = cJSON_Parse(text);
    assert_non_null(parsed);
    return parsed;
}

static const char one[] =
    "{\"name\": \"w.grad\", \"kind\": \"weight_gradient\", \"count\": 10, \"zero\": 1, \"nan\": 0, \"inf\": "
    "2,"
    "\"nonzero\": 7, \"flushed\": 3, \"min_abs\": 0.5, \"max_abs\": 4, \"flushed_interval\": [0.2, 0.6],"
    "\"exponents\": {\"first\": -1, \"counts\": [2, 0, 1, 4]},"
    "\"steps\": {\"first\": 0, \"stride\": 1, \"count\": 2, \"nonzero\": [3, 4], \"margin_octaves\": [5, "
    "1]}}";
static const char other[] =
    "{\"name\": \"w.grad\", \"kind\": \"weight_gradient\", \"count\": 20, \"zero\": 0, \"nan\": 5, \"inf\": "
    "0,"
    "\"nonzero\": 14, \"flushed\": 0, \"min_abs\": 0.125, \"max_abs\": 1, \"flushed_interval\": [0, 0.3],"
    "\"exponents\": {\"first\": -3, \"counts\": [9, 0, 5]},"
    "\"steps\": {\"first\": 0, \"stride\": 1, \"count\": 2, \"nonzero\": [6, 8], \"margin_octaves\": [2, "
    "3]}}";

static void expect(const cJSON *document, const char *path, const char *wanted) {
    const cJSON *tensor = cJSON_GetArrayItem(
        ab_json_at(cJSON_GetArrayItem(ab_json_at(document, "cells"), 0), "probes.tensors"), 0);
    char *text = cJSON_PrintUnformatted(ab_json_at(tensor, path));
    assert_string_equal(text, wanted);
    cJSON_free(text);
}

static void test_tensors_are_added(void **state) {
    (void)state;
    cJSON *a = record(0, 2, one, "[1, 2]", "[[4, 2]]"), *b = record(1, 2, other, "[3, null]", "[[4, 2]]");
    assert_int_equal(ab_result_add_rank(a, "a", 1, b, "b"), AB_OK);
    static const char *const wanted[][2] = {
        {"count", "30"},
        {"zero", "1"},
        {"nan", "5"},
        {"inf", "2"},
        {"nonzero", "21"},
        {"flushed", "3"},
        {"min_abs", "0.125"},
        {"max_abs", "4"},
        {"exponents", "{\"first\":-3,\"counts\":[9,0,7,0,1,4]}"},
        {"steps.nonzero", "[9,12]"},
        {"steps.margin_octaves", "[2,1]"},
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) expect(a, wanted[i][0], wanted[i][1]);
    const cJSON *bounds = ab_json_at(
        cJSON_GetArrayItem(ab_json_at(cJSON_GetArrayItem(ab_json_at(a, "cells"), 0), "probes.tensors"), 0),
        "flushed_interval");
    assert_float_equal(cJSON_GetArrayItem(bounds, 0)->valuedouble, 0.2 * 7 / 21, 1e-12);
    assert_float_equal(cJSON_GetArrayItem(bounds, 1)->valuedouble, (0.6 * 7 + 0.3 * 14) / 21, 1e-12);
    char *loss = cJSON_PrintUnformatted(ab_json_at(cJSON_GetArrayItem(ab_json_at(a, "cells"), 0), "loss"));
    assert_string_equal(loss, "[2,2]");
    cJSON_free(loss);
    assert_int_equal(cJSON_GetArraySize(ab_json_at(a, "probe.ranks")), 2);
    assert_int_equal(cJSON_GetArraySize(ab_json_at(a, "warnings")), 0);
    cJSON_Delete(a);
    cJSON_Delete(b);
}

static void test_differences_are_said(void **state) {
    (void)state;
    cJSON *a = record(0, 2, one, "[1, 2]", "[[4, 2]]"), *b = record(1, 2, other, "[3, 4]", "[[8, 2]]");
    cJSON *tensor =
        cJSON_GetArrayItem(ab_json_at(cJSON_GetArrayItem(ab_json_at(b, "cells"), 0), "probes.tensors"), 0);
    cJSON_SetNumberValue((cJSON *)(uintptr_t)ab_json_at(tensor, "steps.first"), 3);
    cJSON_AddItemToArray(
        (cJSON *)(uintptr_t)ab_json_at(cJSON_GetArrayItem(ab_json_at(b, "cells"), 0), "probes.weights"),
        cJSON_Parse("{\"name\": \"w\", \"kind\": \"weight\", \"count\": 3}"));
    assert_int_equal(ab_result_add_rank(a, "a", 1, b, "b"), AB_OK);
    expect(a, "steps.nonzero", "[3,4]");
    assert_int_equal(cJSON_GetArraySize(ab_json_at(a, "warnings")), 2);
    assert_int_equal(
        cJSON_GetArraySize(ab_json_at(cJSON_GetArrayItem(ab_json_at(a, "cells"), 0), "probes.weights")), 1);
    cJSON_Delete(a);
    cJSON_Delete(b);
}

static void refuse(cJSON *a, cJSON *b, const char *wanted) {
    assert_int_equal(ab_result_add_rank(a, "a", 1, b, "b"), AB_INPUT);
    if (!strstr(ab_error_message(), wanted)) fail_msg("'%s' is not in '%s'", wanted, ab_error_message());
    cJSON_Delete(a);
    cJSON_Delete(b);
}

static void test_what_is_refused(void **state) {
    (void)state;
    refuse(record(0, 2, one, "[]", "[]"), record(0, 2, one, "[]", "[]"), "b: rank 0 is there already");
    refuse(record(0, 2, one, "[]", "[]"), record(1, 4, one, "[]", "[]"),
           "b: expected another rank of the run");
    refuse(record(0, 1, one, "[]", "[]"), record(1, 2, one, "[]", "[]"),
           "a: expected the record of one rank");
    cJSON *b = record(1, 2, one, "[]", "[]");
    cJSON_SetNumberValue((cJSON *)(uintptr_t)ab_json_at(b, "network.parameters_count"), 9);
    refuse(record(0, 2, one, "[]", "[]"), b, "expected another rank of the run of 'a'");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors_are_added),
        cmocka_unit_test(test_differences_are_said),
        cmocka_unit_test(test_what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
