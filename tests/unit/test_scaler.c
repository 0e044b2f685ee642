/* Loss scalers, step by step, against recorded trajectories of apex's LossScaler (its class before removal, run with
 * scale window 4). Scales are written as log2. */
#include "bench/amp/scaler.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 24 };

/* The scale after each step, and the step skipped exactly when it overflowed. pattern: '.' clean, 'x' overflow. */
static void follows(ab_scaler *scaler, const char *pattern, const int *log2_scale) {
    for (int i = 0; pattern[i]; i++) {
        bool overflow = pattern[i] == 'x';
        assert_int_equal(scaler->kind->update(scaler, overflow), overflow);
        assert_true(scaler->scale == ldexp(1.0, log2_scale[i]));
    }
}

static ab_scaler started(const char *name, ab_scaler_config config) {
    const ab_scaler_kind *kind = NULL;
    ab_scaler scaler;
    assert_int_equal(ab_scaler_find(name, &kind), AB_OK);
    ab_scaler_start(&scaler, kind, config);
    return scaler;
}

/* ---- apex, window 4 -------------------------------------------------------------------------------------- */

static void overflows_at_3_4_and_10(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.window = 4});
    assert_true(scaler.scale == 65536.0);
    follows(&scaler, "...xx.....x.........",
            (int[]){16, 16, 16, 15, 14, 14, 14, 14, 15, 15, 14, 14, 14, 14, 15, 15, 15, 15, 16, 16});
}

static void clean_steps_double_the_scale_on_the_windowth(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.window = 4});
    follows(&scaler, "..........", (int[]){16, 16, 16, 17, 17, 17, 17, 18, 18, 18});
}

static void alternating_overflows(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.window = 4});
    follows(&scaler, ".x.x.x.x.x.x....",
            (int[]){16, 15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 10, 10, 11});
}

static void without_a_floor_every_overflow_halves_far_below_one(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.init = 4, .window = 4});
    follows(&scaler, "xxxxxxxxxx", (int[]){1, 0, -1, -2, -3, -4, -5, -6, -7, -8});
}

static void the_scale_reaches_zero_after_1091_overflows_and_not_before(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.window = 4});
    for (int i = 0; i < 1090; i++) (void)scaler.kind->update(&scaler, true);
    assert_true(scaler.scale == 0x1p-1074);
    (void)scaler.kind->update(&scaler, true);
    assert_true(scaler.scale == 0);
}

/* ---- apex, limits ---------------------------------------------------------------------------------------- */

static void defaults_are_apexs(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){0});
    assert_true(scaler.scale == 65536.0);
    assert_true(scaler.config.max_scale == 16777216.0);
    assert_true(scaler.config.min_scale == 0);
    assert_int_equal(scaler.config.window, 2000);
    assert_true(scaler.kind->checks);
    for (int i = 0; i < 1999; i++) assert_false(scaler.kind->update(&scaler, false));
    assert_true(scaler.scale == 65536.0);
    assert_false(scaler.kind->update(&scaler, false));
    assert_true(scaler.scale == 131072.0);
}

static void the_first_scale_is_clamped_by_the_cap(void **state) {
    (void)state;
    assert_true(started("apex", (ab_scaler_config){.max_scale = 1024}).scale == 1024.0);
    assert_true(started("apex", (ab_scaler_config){.max_scale = 1e6}).scale == 65536.0);
}

static void growth_stops_at_the_cap_and_the_counter_wraps_there(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.max_scale = 0x1p17, .window = 2});
    follows(&scaler, "......", (int[]){16, 17, 17, 17, 17, 17});
    assert_int_equal(scaler.unskipped, 0); /* wrapped on the sixth step, though the scale could not grow */
    follows(&scaler, ".x..", (int[]){17, 16, 16, 17});
}

static void a_cap_that_is_no_power_of_two_is_reached_exactly(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.max_scale = 100000, .window = 1});
    (void)scaler.kind->update(&scaler, false);
    assert_true(scaler.scale == 100000.0);
    (void)scaler.kind->update(&scaler, true);
    assert_true(scaler.scale == 50000.0);
}

static void the_floor_stops_the_backoff(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.min_scale = 0x1p14, .window = 4});
    follows(&scaler, "xxxxx....", (int[]){15, 14, 14, 14, 14, 14, 14, 14, 15});
}

static void a_floor_above_the_scale_raises_it_on_an_overflow(void **state) {
    (void)state;
    ab_scaler scaler = started("apex", (ab_scaler_config){.init = 4, .min_scale = 64, .window = 4});
    follows(&scaler, ".x....x", (int[]){2, 6, 6, 6, 6, 7, 6});
}

/* ---- fixed ----------------------------------------------------------------------------------------------- */

static void a_fixed_scale_never_moves_and_never_skips(void **state) {
    (void)state;
    ab_scaler scaler =
        started("fixed", (ab_scaler_config){.init = 128, .min_scale = 256, .max_scale = 2, .window = 1});
    assert_false(scaler.kind->checks);
    for (int i = 0; i < STEPS; i++) {
        assert_false(scaler.kind->update(&scaler, i % 2 == 0));
        assert_true(scaler.scale == 128.0);
    }
    assert_true(started("fixed", (ab_scaler_config){0}).scale == 1.0);
}

/* ---- the list -------------------------------------------------------------------------------------------- */

static void scalers_are_found_by_name(void **state) {
    (void)state;
    const ab_scaler_kind *kind = NULL;
    assert_true(ab_scaler_count() >= 2);
    for (int i = 0; i < ab_scaler_count(); i++) {
        assert_int_equal(ab_scaler_find(ab_scaler_at(i)->name, &kind), AB_OK);
        assert_ptr_equal(kind, ab_scaler_at(i));
        assert_true(strlen(kind->text) > 0);
    }
    assert_int_equal(ab_scaler_find("apx", &kind), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "apex"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(overflows_at_3_4_and_10),
        cmocka_unit_test(clean_steps_double_the_scale_on_the_windowth),
        cmocka_unit_test(alternating_overflows),
        cmocka_unit_test(without_a_floor_every_overflow_halves_far_below_one),
        cmocka_unit_test(the_scale_reaches_zero_after_1091_overflows_and_not_before),
        cmocka_unit_test(defaults_are_apexs),
        cmocka_unit_test(the_first_scale_is_clamped_by_the_cap),
        cmocka_unit_test(growth_stops_at_the_cap_and_the_counter_wraps_there),
        cmocka_unit_test(a_cap_that_is_no_power_of_two_is_reached_exactly),
        cmocka_unit_test(the_floor_stops_the_backoff),
        cmocka_unit_test(a_floor_above_the_scale_raises_it_on_an_overflow),
        cmocka_unit_test(a_fixed_scale_never_moves_and_never_skips),
        cmocka_unit_test(scalers_are_found_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
