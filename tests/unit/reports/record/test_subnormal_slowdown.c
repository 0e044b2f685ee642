/* The rule that says that subnormal operands slow steps down: synthetic records of columns and step times. No
 * time of this machine is in them. */
#include "reports/record/subnormals.h"

#include "kernels/core/rng.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* A record of `columns` of `stride` steps, from column `onset` on with `share` of its operands subnormal;
 * there, steps take `factor` times as long in the first `slow` of `processes`. */
typedef struct plan {
    int columns, stride, onset, processes, slow;
    double share, factor, noise; /* noise: largest deviation of a step time */
    int load_from; /* column from which another load makes steps take 1.5 times as long; 0: none */
    int left_out;  /* of the first process, every so many-th step was probed; 0: none */
    uint64_t seed;
} plan;

static const plan slower = {.columns = 40,
                            .stride = 10,
                            .onset = 25,
                            .processes = 3,
                            .slow = 3,
                            .share = 0.2,
                            .factor = 1.5,
                            .noise = 0.05};

static double time_of(const plan *p, int process, int step) {
    const int column = step / p->stride;
    const double u = (double)ab_rng_uniform(p->seed, AB_RNG_SYNTHETIC, (uint32_t)process, (uint64_t)step);
    double time = 1e6 * (1 + p->noise * (2 * u - 1));
    if (column >= p->onset && process < p->slow) time *= p->factor;
    if (p->load_from > 0 && column >= p->load_from) time *= 1.5;
    return time;
}

static cJSON *process_of(const plan *p, int process) {
    cJSON *entry = cJSON_CreateObject(), *times = cJSON_AddArrayToObject(entry, "step_time_ns");
    for (int step = 1; step < p->columns * p->stride; step++)
        if (process > 0 || p->left_out == 0 || step % p->left_out != 0)
            cJSON_AddItemToArray(times, cJSON_CreateNumber(time_of(p, process, step)));
    return entry;
}

static void add_operand(cJSON *list, const char *name, const char *kind, double subnormal) {
    cJSON *operand = cJSON_CreateObject();
    cJSON_AddStringToObject(operand, "name", name);
    cJSON_AddStringToObject(operand, "layer", "fc");
    cJSON_AddStringToObject(operand, "kind", kind);
    cJSON_AddNumberToObject(operand, "subnormal", subnormal);
    cJSON_AddItemToArray(list, operand);
}

static cJSON *cell_of(const plan *p) {
    cJSON *cell = cJSON_CreateObject(), *probes = cJSON_AddObjectToObject(cell, "probes");
    cJSON *counts = cJSON_AddObjectToObject(probes, "subnormals"),
          *steps = cJSON_AddObjectToObject(counts, "steps");
    cJSON *values = cJSON_AddArrayToObject(steps, "values"),
          *subnormal = cJSON_AddArrayToObject(steps, "subnormal");
    cJSON_AddNumberToObject(cell, "steps_total", p->columns * p->stride);
    cJSON_AddNumberToObject(steps, "first", 0);
    cJSON_AddNumberToObject(steps, "stride", p->stride);
    for (int i = 0; i < p->columns; i++) {
        cJSON_AddItemToArray(values, cJSON_CreateNumber(1e6));
        cJSON_AddItemToArray(subnormal, cJSON_CreateNumber(i >= p->onset ? 1e6 * p->share : i % 3));
    }
    cJSON *operands = cJSON_AddArrayToObject(counts, "operands");
    add_operand(operands, "b", "weight", 3);
    add_operand(operands, "w", "exp_avg", 5);
    cJSON *processes = cJSON_AddArrayToObject(cell, "processes");
    for (int i = 0; i < p->processes; i++) cJSON_AddItemToArray(processes, process_of(p, i));
    return cell;
}

/* Whether the record says so; *object: what it says. */
static bool said(const plan *p, cJSON **object) {
    cJSON *cell = cell_of(p);
    assert_int_equal(ab_subnormal_slowdown(cell, object), AB_OK);
    cJSON_Delete(cell);
    return *object != NULL;
}

static void expect_said(plan p, bool expected, const char *what) {
    cJSON *object;
    if (said(&p, &object) != expected) fail_msg("%s: %s", what, expected ? "not said" : "said");
    cJSON_Delete(object);
}

static void slower_steps_are_said_with_their_ratio_place_and_operand(void **state) {
    (void)state;
    cJSON *object;
    assert_true(said(&slower, &object));
    assert_true(fabs(ab_json_number(object, "ratio", 0) - 1.5) < 0.05);
    const double low = ab_json_number(object, "ratio_low", 0);
    assert_true(low > 1.1 && low < ab_json_number(object, "ratio", 0));
    assert_int_equal(ab_json_number(object, "processes", 0), 3);
    assert_int_equal(ab_json_number(object, "since_step", 0), 250);
    assert_true(fabs(ab_json_number(object, "largest_share", 0) - 0.2) < 1e-12);
    assert_string_equal(ab_json_text(object, "name", ""), "w");
    assert_string_equal(ab_json_text(object, "kind", ""), "exp_avg");
    cJSON_Delete(object);
}

static void what_a_record_cannot_show_is_not_said(void **state) {
    (void)state;
    plan p = slower;
    p.factor = 1;
    expect_said(p, false, "not slower");
    p.factor = 0.7;
    expect_said(p, false, "faster");
    p.factor = 1.08;
    expect_said(p, false, "within a tenth");
    p = slower, p.slow = 2;
    expect_said(p, false, "two of three processes");
    p = slower, p.onset = 0;
    expect_said(p, false, "no step without");
    p = slower, p.onset = 40;
    expect_said(p, false, "no step with");
    p = slower, p.share = 0.0005;
    expect_said(p, false, "one operand in two thousand");
    p = slower, p.columns = 8, p.onset = 4;
    expect_said(p, false, "four columns of each kind");
    p.columns = 10, p.onset = 5;
    expect_said(p, true, "five columns of each kind");
    cJSON *object, *empty = cJSON_CreateObject();
    assert_int_equal(ab_subnormal_slowdown(empty, &object), AB_OK);
    assert_null(object);
    cJSON_Delete(empty);
}

/* The first process has no times of probed steps, and a long record has more columns than the test takes. */
static void probed_steps_and_long_records_change_nothing(void **state) {
    (void)state;
    plan p = slower;
    p.left_out = 3;
    expect_said(p, true, "a third of the steps probed");
    p = slower, p.columns = 128, p.onset = 120;
    expect_said(p, true, "120 columns without");
    p.onset = 8;
    expect_said(p, true, "120 columns with");
}

/* Noise alone; and another load that begins somewhere, at the same column in all processes: only where it
 * begins close to the first subnormal operands can it be mistaken for their effect. */
static void false_alarms_need_a_load_that_begins_with_the_operands(void **state) {
    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        plan p = slower;
        p.factor = 1;
        p.seed = seed;
        p.processes = 1;
        p.onset = 5 + (int)ab_rng_below(seed, AB_RNG_SYNTHETIC, 98, 0, 30);
        p.noise = 0.3;
        expect_said(p, false, "noise");
        p.load_from = p.onset / 3;
        if (p.load_from > 0) expect_said(p, false, "a load long before the operands");
        p.load_from = p.onset + 2 * (p.columns - p.onset) / 3;
        expect_said(p, false, "a load long after the first operands");
    }
}

static void the_summary_has_it_only_where_it_is(void **state) {
    (void)state;
    for (int slow = 0; slow < 2; slow++) {
        plan p = slower;
        if (!slow) p.factor = 1;
        cJSON *document = cJSON_CreateObject(), *cell = cell_of(&p);
        char text[400];
        cJSON_AddItemToArray(cJSON_AddArrayToObject(document, "cells"), cell);
        for (int again = 0; again < 2; again++) assert_int_equal(ab_result_summarise(document), AB_OK);
        assert_int_equal(ab_json_at(cell, "summary.subnormal_slowdown") != NULL, slow);
        assert_int_equal(ab_subnormal_slowdown_text(cell, text, sizeof text), slow);
        assert_int_equal(strstr(text, "(most: exp_avg of w); such steps take 1.") != NULL, slow);
        cJSON_Delete(document);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slower_steps_are_said_with_their_ratio_place_and_operand),
        cmocka_unit_test(what_a_record_cannot_show_is_not_said),
        cmocka_unit_test(probed_steps_and_long_records_change_nothing),
        cmocka_unit_test(false_alarms_need_a_load_that_begins_with_the_operands),
        cmocka_unit_test(the_summary_has_it_only_where_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
