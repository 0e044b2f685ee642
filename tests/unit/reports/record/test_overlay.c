/* Runs laid over each other: their cells side by side, each compared with the O0 of its own run. */
#define _POSIX_C_SOURCE 200809L /* fmemopen */
#include "reports/record/overlay.h"

#include "reports/record/cells.h"
#include "reports/record/json.h"
#include "support/report_text.h"

#include <string.h>

/* The fixture as another run, with a label unless it is NULL. */
static cJSON *run_named(const char *id, const char *label) {
    cJSON *document = ab_test_fixture("tiny"), *run = cJSON_GetObjectItem(document, "run");
    cJSON_SetValuestring(cJSON_GetObjectItem(run, "id"), id);
    if (label) cJSON_AddStringToObject(run, "label", label);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    return document;
}

static int count_of(const cJSON *document, int index, bool twins) {
    const cJSON *cell;
    int count = 0;
    cJSON_ArrayForEach(cell, ab_json_at(document, "cells")) {
        count += (int)ab_json_number(cell, "of_run.index", -1) == index &&
                 (twins || !cJSON_IsString(ab_json_at(cell, "twin")));
    }
    return count;
}

static void test_every_cell_keeps_its_own_o0(void **state) {
    (void)state;
    cJSON *first = run_named("a", "before"), *second = run_named("b", NULL);
    const int cells = cJSON_GetArraySize(ab_json_at(first, "cells"));
    assert_int_equal(ab_result_lay_over(first, "a.json", 1, second, "b.json"), AB_OK);
    assert_int_equal(count_of(first, 0, true), cells);
    assert_int_equal(count_of(first, 1, true), count_of(first, 0, false));
    ab_cells index;
    int compared = 0;
    assert_int_equal(ab_cells_create(first, &index), AB_OK);
    for (int i = 0; i < index.count; i++) {
        const cJSON *o0 = ab_cells_baseline(&index, index.cell[i]);
        const char *label = ab_json_text(index.cell[i], "of_run.label", "");
        assert_non_null(o0);
        assert_string_equal(ab_json_text(o0, "of_run.label", "?"), label);
        assert_true(strcmp(label, "before") == 0 || strcmp(label, "b.json") == 0);
        compared++;
    }
    assert_true(compared > cells);
    ab_cells_free(&index);
    cJSON_Delete(first);
    cJSON_Delete(second);
}

static void test_equal_labels_are_told_apart_by_their_files(void **state) {
    (void)state;
    cJSON *first = run_named("a", "same"), *second = run_named("b", "same"), *third = run_named("c", "same");
    assert_int_equal(ab_result_lay_over(first, "a.json", 1, second, "b.json"), AB_OK);
    assert_int_equal(ab_result_lay_over(first, "a.json", 2, third, "c.json"), AB_OK);
    const cJSON *cells = ab_json_at(first, "cells");
    const cJSON *last = cJSON_GetArrayItem(cells, cJSON_GetArraySize(cells) - 1);
    assert_string_equal(ab_json_text(last, "of_run.label", "?"), "same (c.json)");
    assert_int_equal(count_of(first, 2, true), count_of(first, 1, true));
    cJSON_Delete(first);
    cJSON_Delete(second);
    cJSON_Delete(third);
}

/* The warnings name what differs, and nothing where nothing does. */
static void test_other_settings_and_machines_are_said(void **state) {
    (void)state;
    cJSON *first = run_named("a", NULL), *second = run_named("b", NULL), *third = run_named("c", NULL);
    const cJSON *warnings = ab_json_at(first, "warnings");
    const int before = cJSON_GetArraySize(warnings);
    cJSON *config = cJSON_GetObjectItem(third, "config");
    cJSON_SetNumberValue(cJSON_GetObjectItem(config, "lr"), 0.5);
    cJSON_AddStringToObject(config, "new_setting", "on");
    cJSON_SetValuestring(cJSON_GetObjectItem(third, "comparability_key"), "0");
    assert_int_equal(ab_result_lay_over(first, "a.json", 1, second, "b.json"), AB_OK);
    assert_int_equal(cJSON_GetArraySize(warnings), before);
    assert_int_equal(ab_result_lay_over(first, "a.json", 2, third, "c.json"), AB_OK);
    assert_int_equal(cJSON_GetArraySize(warnings), before + 2);
    const char *text = cJSON_GetStringValue(cJSON_GetArrayItem(warnings, before));
    assert_non_null(strstr(text, "run 'c.json' was trained with other settings than the first: "));
    assert_non_null(strstr(text, "lr 0.5 instead of 0.01"));
    assert_non_null(strstr(text, "new_setting \"on\" instead of none"));
    assert_non_null(
        strstr(cJSON_GetStringValue(cJSON_GetArrayItem(warnings, before + 1)), "machine or build"));
    cJSON_Delete(first);
    cJSON_Delete(second);
    cJSON_Delete(third);
}

static void test_one_run_twice_is_refused(void **state) {
    (void)state;
    cJSON *first = run_named("a", NULL), *second = run_named("a", NULL);
    assert_int_equal(ab_result_lay_over(first, "a.json", 1, second, "b.json"), AB_INPUT);
    assert_false(ab_result_is_rank(first));
    cJSON_Delete(first);
    cJSON_Delete(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_cell_keeps_its_own_o0),
        cmocka_unit_test(test_equal_labels_are_told_apart_by_their_files),
        cmocka_unit_test(test_other_settings_and_machines_are_said),
        cmocka_unit_test(test_one_run_twice_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
