/* Every number of a summary, recomputed from the raw record by code that shares nothing with
 * reports/record/summary.c, and compared with what the fixtures' own generator (Python) found. Then the rules
 * one by one, on small changes. */
#include "reports/record/json.h"
#include "reports/record/result.h"
#include "reports/record/summary.h"
#include "support/json_file.h"
#include "support/recompute.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define FIXTURE(name) AB_SOURCE_DIR "/tests/fixtures/result_" name ".json"

static const char *const fixtures[] = {FIXTURE("lenet5"), FIXTURE("tiny"), FIXTURE("broken"),
                                       FIXTURE("hostile")};

static cJSON *load(const char *path) {
    cJSON *document = ab_test_read_json(path);
    assert_non_null(document);
    return document;
}

static cJSON *cell_of(const cJSON *document, int i) {
    return cJSON_GetArrayItem(member(document, "cells"), i);
}
static cJSON *summary_of(const cJSON *document, int i) { return member(cell_of(document, i), "summary"); }
static void set_number(cJSON *object, const char *key, double value) {
    assert_true(cJSON_ReplaceItemInObjectCaseSensitive(object, key, cJSON_CreateNumber(value)));
}

/* ---- comparing ------------------------------------------------------------------------------- */

static void expect(const cJSON *cell, const char *key, double expected) {
    const cJSON *summary = member(cell, "summary");
    char reason[64];
    double found = number_of(summary, key);
    snprintf(reason, sizeof reason, "%s_reason", key);
    if (isnan(expected) != isnan(found) || fabs(found - expected) > 1e-12 * fabs(expected))
        fail_msg("%s: %s is %.17g, recomputed %.17g", text_of(cell, "id"), key, found, expected);
    if (isnan(found) != (member(summary, reason) != NULL))
        fail_msg("%s: %s and %s do not fit together", text_of(cell, "id"), key, reason);
    if (isnan(found) && !text_of(summary, reason)[0])
        fail_msg("%s: %s is empty", text_of(cell, "id"), reason);
}

static void expect_times(const cJSON *document, const cJSON *cell) {
    double low, high, time = expected_time(cell, &low, &high);
    expect(cell, "step_time_ns", time);
    expect(cell, "step_time_ns_low", low);
    expect(cell, "step_time_ns_high", high);
    expect(cell, "samples_per_s", expected_rate(document, cell));
}

static void expect_casts(const cJSON *cell) {
    bool all = nothing_cast(cell), probed = member(cell, "probes") != NULL;
    double nonzero = count_of(cell, "nonzero", NULL, all);
    expect(cell, "flushed_share", probed ? count_of(cell, "flushed", NULL, all) / nonzero : (double)NAN);
    expect(cell, "overflowed", probed ? count_of(cell, "overflowed", NULL, all) : (double)NAN);
    expect(cell, "worst_layer_flushed_share", probed ? expected_worst(cell) : (double)NAN);
    const char *worst = text_of(member(cell, "summary"), "worst_layer");
    if (worst)
        assert_true(count_of(cell, "flushed", worst, all) / count_of(cell, "nonzero", worst, all) ==
                    expected_worst(cell));
    assert_int_equal(cJSON_IsTrue(member(member(cell, "summary"), "flushed_modelled")), probed && all);
}

static void expect_ratios(const cJSON *document, const cJSON *cell) {
    const cJSON *o0 = plain_o0(document);
    bool good = expected_pass(document, cell) && expected_pass(document, o0);
    double bytes = number_of(member(cell, "memory_bytes"), "total");
    expect(cell, "peak_bytes", bytes);
    expect(cell, "ratio_bytes_to_o0", bytes / number_of(member(o0, "memory_bytes"), "total"));
    expect(cell, "ratio_samples_to_o0",
           good ? expected_rate(document, cell) / expected_rate(document, o0) : (double)NAN);
    const cJSON *certificate = member(member(cell, "summary"), "certificate");
    assert_int_equal(cJSON_IsTrue(member(certificate, "passed")), expected_pass(document, cell));
    assert_int_equal(cJSON_GetArraySize(member(certificate, "reasons")) == 0, expected_pass(document, cell));
}

static void expect_cell(const cJSON *document, const cJSON *cell) {
    double total = number_of(cell, "steps_total");
    expect(cell, "loss_final", expected_loss(document, cell));
    expect(cell, "loss_gap", expected_gap(document, cell));
    expect(cell, "skipped_share", number_of(cell, "steps_skipped") / total);
    expect_times(document, cell);
    expect_casts(cell);
    expect_ratios(document, cell);
}

static void test_every_number_follows_from_the_raw_record(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        cJSON *document = load(fixtures[i]);
        assert_int_equal(ab_result_summarise(document), AB_OK);
        const cJSON *cell;
        cJSON_ArrayForEach(cell, member(document, "cells")) expect_cell(document, cell);
        cJSON_Delete(document);
    }
}

static void test_the_noise_floor_is_the_gap_of_the_twin(void **state) {
    (void)state;
    cJSON *document = load(FIXTURE("lenet5"));
    assert_int_equal(ab_result_summarise(document), AB_OK);
    const cJSON *floor = member(document, "noise_floor");
    assert_string_equal(text_of(floor, "cell"), text_of(cell_of(document, 1), "id"));
    assert_true(number_of(floor, "loss_gap") > 0);
    assert_true(fabs(number_of(floor, "loss_gap") - expected_floor(document)) < 1e-15);
    assert_true(fabs(number_of(floor, "chance_gap") - expected_chance(document)) < 1e-12);
    assert_int_equal(cJSON_GetArraySize(member(floor, "draws")), 1);
    cJSON_Delete(document);
}

static void shift_losses(cJSON *document, int cell, double by) {
    cJSON *loss;
    cJSON_ArrayForEach(loss, member(cell_of(document, cell), "loss"))
        cJSON_SetNumberValue(loss, loss->valuedouble + by);
}

/* Appends a copy of the perturbed baseline with a final loss that is `gap` above O0's. */
static cJSON *add_twin(cJSON *document, const char *kind, const char *id, double gap) {
    cJSON *twin = cJSON_Duplicate(cell_of(document, 1), 1);
    cJSON_ReplaceItemInObject(twin, "twin", cJSON_CreateString(kind));
    cJSON_ReplaceItemInObject(twin, "id", cJSON_CreateString(id));
    cJSON_AddItemToArray(member(document, "cells"), twin);
    const int last = cJSON_GetArraySize(member(document, "cells")) - 1;
    shift_losses(document, last, gap - expected_gap(document, cell_of(document, last)));
    return twin;
}

/* The factor for two draws is 3.837: root mean square of both, in whatever order they stand. */
static void test_a_floor_is_that_of_all_its_draws(void **state) {
    (void)state;
    cJSON *document = load(FIXTURE("lenet5"));
    const double first = expected_floor(document), second = 2 * first;
    cJSON_AddNumberToObject(add_twin(document, "ulp", "the second draw", -second), "draw", 2);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    const cJSON *floor = member(document, "noise_floor");
    assert_int_equal(cJSON_GetArraySize(member(floor, "draws")), 2);
    assert_string_equal(text_of(floor, "cell"), "the second draw");
    assert_true(fabs(number_of(floor, "loss_gap") - second) < 1e-12);
    assert_true(fabs(number_of(floor, "chance_gap") - 3.837 * sqrt((first * first + second * second) / 2)) <
                1e-12);
    cJSON_Delete(document);
}

/* Documents from before there were several draws have no chance_gap. */
static void test_an_older_document_counts_as_one_draw(void **state) {
    (void)state;
    cJSON *document = cJSON_Parse("{\"noise_floor\": {\"loss_gap\": 0.5}, \"rounding_floor\": null}");
    const ab_floors floors = ab_summary_floors(document);
    assert_true(fabs(floors.noise - 0.5 * 11.0264) < 1e-12);
    assert_true(floors.rounding == 0);
    cJSON_Delete(document);
}

/* Values only: the reasons of the fixtures are made up. */
static void expect_same(const cJSON *ours, const cJSON *theirs, const char *where) {
    const cJSON *value;
    cJSON_ArrayForEach(value, theirs) {
        const cJSON *other = member(ours, value->string);
        bool reason = strstr(value->string, "reason") != NULL;
        if (!other) fail_msg("%s: %s is missing", where, value->string);
        if (!other || reason) continue;
        if (cJSON_IsNumber(value) && cJSON_IsNumber(other)) {
            double a = value->valuedouble, b = other->valuedouble;
            if (fabs(a - b) > 1e-12 * fabs(a))
                fail_msg("%s: %s: %.17g, Python %.17g", where, value->string, b, a);
        } else if (cJSON_IsObject(value)) {
            expect_same(other, value, where);
        } else if (!cJSON_Compare(value, other, 1)) {
            fail_msg("%s: %s differs from Python's", where, value->string);
        }
    }
}

static void test_the_generator_of_the_fixtures_agrees(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(fixtures); i++) {
        cJSON *document = load(fixtures[i]), *theirs = load(fixtures[i]);
        assert_int_equal(ab_result_summarise(document), AB_OK);
        for (int k = 0; k < cJSON_GetArraySize(member(document, "cells")); k++)
            expect_same(summary_of(document, k), summary_of(theirs, k), text_of(cell_of(document, k), "id"));
        assert_true(cJSON_Compare(member(document, "noise_floor"), member(theirs, "noise_floor"), 1));
        cJSON_Delete(document);
        cJSON_Delete(theirs);
    }
}

static void test_summarising_twice_changes_nothing(void **state) {
    (void)state;
    cJSON *document = load(FIXTURE("broken"));
    assert_int_equal(ab_result_summarise(document), AB_OK);
    cJSON *first = cJSON_Duplicate(document, 1);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    assert_true(cJSON_Compare(document, first, 1));
    assert_int_equal(ab_result_check(document, "x"), AB_OK);
    cJSON_Delete(first);
    cJSON_Delete(document);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static const char *void_reason(const cJSON *document, int cell) {
    const cJSON *summary = summary_of(document, cell);
    assert_true(cJSON_IsNull(member(summary, "ratio_samples_to_o0")));
    return text_of(summary, "ratio_samples_to_o0_reason");
}

/* The lenet5 document after `change`; cell 2 is O1. */
static cJSON *changed(void (*change)(cJSON *document)) {
    cJSON *document = load(FIXTURE("lenet5"));
    change(document);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    return document;
}

static void fail_o1(cJSON *document) {
    cJSON_ReplaceItemInObject(cell_of(document, 2), "status", cJSON_CreateString("failed"));
    cJSON_ReplaceItemInObject(cell_of(document, 2), "reason", cJSON_CreateString("killed by signal 9"));
}
static void skip_much(cJSON *document) {
    set_number(cell_of(document, 2), "steps_applied", 113);
    set_number(cell_of(document, 2), "steps_skipped", 7);
}
static void skip_enough(cJSON *document) {
    set_number(cell_of(document, 2), "steps_applied", 114);
    set_number(cell_of(document, 2), "steps_skipped", 6);
}
static void lose_a_value(cJSON *document) {
    cJSON_ReplaceItemInArray(member(cell_of(document, 2), "loss"), 3, cJSON_CreateNull());
    set_number(cell_of(document, 2), "nonfinite_losses", 1);
}
static void do_less_work(cJSON *document) {
    set_number(cell_of(document, 2), "steps_total", 119);
    set_number(cell_of(document, 2), "steps_applied", 119);
}
static void break_o0(cJSON *document) {
    cJSON_ReplaceItemInObject(cell_of(document, 0), "status", cJSON_CreateString("failed"));
}
static void drop_o0(cJSON *document) {
    cJSON_DeleteItemFromArray(member(document, "cells"), 0);
    cJSON_DeleteItemFromArray(member(document, "cells"), 0);
}

/* O0 on machine 0, the others on machine 1, of class `other`. */
static void put_on_machines(cJSON *document, const char *other) {
    cJSON *cell, *machines = cJSON_Parse("[{\"class\": \"a\"}, {}]");
    int i = 0;
    cJSON_AddStringToObject(cJSON_GetArrayItem(machines, 1), "class", other);
    cJSON_AddItemToObject(document, "machines", machines);
    cJSON_ArrayForEach(cell, member(document, "cells")) cJSON_AddNumberToObject(cell, "machine", i++ > 0);
}

static void test_speeds_are_compared_within_a_class_of_machines(void **state) {
    (void)state;
    static const char *const other[] = {"a", "b"};
    double gap[2];
    for (int i = 0; i < 2; i++) {
        cJSON *document = load(FIXTURE("lenet5"));
        put_on_machines(document, other[i]);
        assert_int_equal(ab_result_summarise(document), AB_OK);
        const cJSON *own = summary_of(document, 0), *summary = summary_of(document, 2);
        assert_true(number_of(own, "ratio_samples_to_o0") == 1);
        assert_int_equal(cJSON_IsNumber(member(summary, "ratio_samples_to_o0")), i == 0);
        if (i == 1)
            assert_string_equal(text_of(summary, "ratio_samples_to_o0_reason"),
                                "O0 ran on another class of machine");
        gap[i] = number_of(summary, "loss_gap");
        assert_true(cJSON_IsNumber(member(summary, "ratio_bytes_to_o0")));
        cJSON_Delete(document);
    }
    assert_true(gap[0] == gap[1]);
}

static void test_a_speed_ratio_needs_equal_work_and_a_certificate(void **state) {
    (void)state;
    static const struct {
        void (*change)(cJSON *document);
        int cell;
        const char *reason;
    } rows[] = {
        {fail_o1, 2, "killed by signal 9"},   {skip_much, 2, "94.2 % of the steps"},
        {lose_a_value, 2, "1 of 120 losses"}, {do_less_work, 2, "unequal work"},
        {break_o0, 2, "O0: failed"},          {drop_o0, 0, "no O0 cell"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        cJSON *document = changed(rows[i].change);
        const char *reason = void_reason(document, rows[i].cell);
        if (!strstr(reason, rows[i].reason)) fail_msg("expected '%s' in '%s'", rows[i].reason, reason);
        cJSON_Delete(document);
    }
    cJSON *document = changed(skip_enough); /* 95 % of the steps are just enough */
    assert_true(cJSON_IsNumber(member(summary_of(document, 2), "ratio_samples_to_o0")));
    cJSON_Delete(document);
}

static bool certified(cJSON *document, int cell) {
    assert_int_equal(ab_result_summarise(document), AB_OK);
    return cJSON_IsTrue(member(member(summary_of(document, cell), "certificate"), "passed"));
}

static void test_the_allowed_gap_is_the_larger_of_ten_floors_and_five_percent(void **state) {
    (void)state;
    cJSON *document = load(FIXTURE("lenet5"));
    double five_percent = 0.05 * expected_loss(document, plain_o0(document));
    shift_losses(document, 2, five_percent - expected_gap(document, cell_of(document, 2)) - 1e-6);
    assert_true(certified(document, 2));
    shift_losses(document, 2, 2e-6);
    assert_false(certified(document, 2));
    shift_losses(document, 1, 0.01); /* the twin: a floor of about 0.0115 allows 0.115 */
    assert_true(certified(document, 2));
    shift_losses(document, 2, -1); /* better than O0 is no fault */
    assert_true(certified(document, 2));
    cJSON_Delete(document);
}

/* The second floor: another perturbed O0. A gap within it is chance, and the larger of both counts. */
static void test_the_rounding_floor_is_that_of_its_own_twin(void **state) {
    (void)state;
    cJSON *document = load(FIXTURE("lenet5"));
    const double ulp = expected_floor(document),
                 five_percent = 0.05 * expected_loss(document, plain_o0(document));
    const double allowed = 3 * fmax(expected_chance(document), five_percent);
    add_twin(document, "rounding", "the rounding twin", allowed / 11.0264);
    shift_losses(document, 2, 0.99 * allowed - expected_gap(document, cell_of(document, 2)));
    assert_true(certified(document, 2));
    const cJSON *noise = member(document, "noise_floor"), *rounding = member(document, "rounding_floor");
    assert_true(fabs(number_of(noise, "loss_gap") - ulp) < 1e-15);
    assert_true(fabs(number_of(rounding, "chance_gap") - allowed) < 1e-12);
    assert_string_equal(text_of(rounding, "cell"), "the rounding twin");
    shift_losses(document, 2, 0.02 * allowed);
    assert_false(certified(document, 2));
    cJSON_Delete(document);
}

static void set_constant(cJSON *cell, const char *text) {
    cJSON *vitals = cJSON_GetObjectItem(cell, "vitals");
    if (!vitals) vitals = cJSON_AddObjectToObject(cell, "vitals");
    cJSON_DeleteItemFromObject(vitals, "constant_loss");
    cJSON_AddItemToObject(vitals, "constant_loss", cJSON_Parse(text));
}

/* As good as an O0 that knows no more than a constant: no certificate, but a speed. */
static void test_an_o0_that_learned_nothing_certifies_nobody(void **state) {
    (void)state;
    cJSON *document = load(FIXTURE("lenet5")), *o0 = cell_of(document, 0);
    const double loss = expected_loss(document, o0);
    char text[80];
    assert_true(certified(document, 2));
    snprintf(text, sizeof text, "{\"loss\": %.17g}", loss / 0.98);
    set_constant(o0, text);
    assert_true(certified(document, 2)); /* two in a hundred below the best constant */
    snprintf(text, sizeof text, "{\"loss\": %.17g}", loss / 0.995);
    set_constant(o0, text);
    assert_false(certified(document, 2));
    const cJSON *summary = summary_of(document, 2);
    assert_true(cJSON_IsFalse(member(summary, "baseline_learned")));
    assert_non_null(
        strstr(text_of(summary, "baseline_learned_reason"), "O0 learned nothing: its final loss is"));
    assert_true(cJSON_IsNumber(member(summary, "ratio_samples_to_o0")));
    cJSON_Delete(document);
}

static void test_the_baseline_is_the_o0_of_the_same_kind(void **state) {
    (void)state;
    cJSON *document = load(FIXTURE("lenet5")), *cells = member(document, "cells");
    cJSON *other = cJSON_Duplicate(cell_of(document, 0), 1);
    cJSON_ReplaceItemInObject(other, "half_format", cJSON_CreateString("bf16"));
    cJSON_AddItemToArray(cells, other);
    cJSON_ReplaceItemInObject(cell_of(document, 2), "half_format", cJSON_CreateString("bf16"));
    shift_losses(document, cJSON_GetArraySize(cells) - 1, 1);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    assert_true(number_of(summary_of(document, 2), "loss_gap") < -0.9); /* against the new one */
    assert_true(number_of(summary_of(document, 3), "loss_gap") > -0.1); /* against the old one */
    cJSON_ReplaceItemInObject(cell_of(document, 3), "seed", cJSON_CreateNumber(2));
    assert_int_equal(ab_result_summarise(document), AB_OK);
    assert_true(cJSON_IsNull(member(summary_of(document, 3), "loss_gap")));
    cJSON_Delete(document);
}

static void test_of_several_o0_cells_the_unscaled_one_is_the_baseline(void **state) {
    (void)state;
    cJSON *document = load(FIXTURE("lenet5"));
    cJSON *scaled = cJSON_Duplicate(cell_of(document, 0), 1);
    cJSON_ReplaceItemInObject(member(scaled, "policy"), "loss_scale", cJSON_CreateNumber(128));
    cJSON_InsertItemInArray(member(document, "cells"), 0, scaled);
    shift_losses(document, 0, 1);
    assert_int_equal(ab_result_summarise(document), AB_OK);
    assert_true(number_of(summary_of(document, 0), "loss_gap") > 0.9);
    assert_true(fabs(number_of(summary_of(document, 3), "loss_gap")) < 0.1);
    cJSON_Delete(document);
}

static void test_nulls_and_empty_arrays_never_divide_by_zero(void **state) {
    (void)state;
    static const char *const keys[] = {"loss",        "processes", "probes", "memory_bytes",
                                       "steps_total", "policy",    "scale"};
    for (size_t i = 0; i < AB_COUNT_OF(keys); i++) {
        cJSON *document = load(FIXTURE("lenet5")), *cell;
        cJSON_ArrayForEach(cell, member(document, "cells")) cJSON_DeleteItemFromObject(cell, keys[i]);
        assert_int_equal(ab_result_summarise(document), AB_OK);
        cJSON_ArrayForEach(cell, member(document, "cells")) {
            const cJSON *value;
            cJSON_ArrayForEach(value, member(cell, "summary")) {
                if (cJSON_IsNumber(value)) assert_true(isfinite(value->valuedouble));
            }
        }
        cJSON_Delete(document);
    }
    cJSON *empty = cJSON_Parse("{\"cells\": []}"), *bare = cJSON_CreateObject();
    assert_int_equal(ab_result_summarise(empty), AB_OK);
    assert_int_equal(ab_result_summarise(bare), AB_OK);
    assert_true(cJSON_IsNull(member(bare, "noise_floor")));
    cJSON_Delete(empty);
    cJSON_Delete(bare);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_follows_from_the_raw_record),
        cmocka_unit_test(test_the_noise_floor_is_the_gap_of_the_twin),
        cmocka_unit_test(test_a_floor_is_that_of_all_its_draws),
        cmocka_unit_test(test_an_older_document_counts_as_one_draw),
        cmocka_unit_test(test_the_rounding_floor_is_that_of_its_own_twin),
        cmocka_unit_test(test_an_o0_that_learned_nothing_certifies_nobody),
        cmocka_unit_test(test_the_generator_of_the_fixtures_agrees),
        cmocka_unit_test(test_summarising_twice_changes_nothing),
        cmocka_unit_test(test_speeds_are_compared_within_a_class_of_machines),
        cmocka_unit_test(test_a_speed_ratio_needs_equal_work_and_a_certificate),
        cmocka_unit_test(test_the_allowed_gap_is_the_larger_of_ten_floors_and_five_percent),
        cmocka_unit_test(test_the_baseline_is_the_o0_of_the_same_kind),
        cmocka_unit_test(test_of_several_o0_cells_the_unscaled_one_is_the_baseline),
        cmocka_unit_test(test_nulls_and_empty_arrays_never_divide_by_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
