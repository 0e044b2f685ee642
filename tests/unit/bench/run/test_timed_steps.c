/* How many steps later rounds repeat, on made-up times. */
#include "bench/run/timed_steps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { STEPS = 2000 };

/* STEPS times of `ns`, those from `since` on times `slower`. */
static int64_t chosen(double ns, int since, double slower, int64_t n) {
    double time[STEPS];
    for (int i = 0; i < STEPS; i++)
        time[i] = (i < since ? ns : ns * slower) * (1 + 0.02 * ((i * 7) % 11 - 5));
    return ab_timed_steps(time, n, STEPS);
}

static void steady_steps_need_a_quarter_of_a_second(void **state) {
    (void)state;
    assert_int_equal(chosen(1e6, STEPS, 1, STEPS), 250);
    assert_int_equal(chosen(2e5, STEPS, 1, STEPS), 1250);
    assert_int_equal(chosen(1e9, STEPS, 1, STEPS), AB_TIMED_STEPS_LEAST);
}

static void short_trainings_are_repeated_whole(void **state) {
    (void)state;
    assert_int_equal(chosen(1e3, STEPS, 1, STEPS), STEPS);
    assert_int_equal(chosen(1e6, STEPS, 1, AB_TIMED_STEPS_LEAST), STEPS);
    assert_int_equal(chosen(1e6, STEPS, 1, 0), STEPS);
}

/* The first steps must stand for the others, be it a busy machine or subnormal numbers that slow them down:
 * most of those taken are as slow or as fast as most of all. */
static void steps_that_become_slower_or_faster_are_repeated_until_most_are_so(void **state) {
    (void)state;
    assert_in_range(chosen(1e6, 600, 1.2, STEPS), 1201, STEPS);
    assert_in_range(chosen(1e6, 600, 0.8, STEPS), 1201, STEPS);
    assert_int_equal(chosen(1e6, 990, 1.5, STEPS), STEPS);
    assert_int_equal(chosen(1e6, 600, 1.03, STEPS), 246); /* a quarter of a second at the median of all */
}

/* In caches that are cold, or while the number of threads is tried. */
static void a_slow_start_is_outweighed_by_more_steps_not_by_all(void **state) {
    (void)state;
    assert_in_range(chosen(1e6, 20, 0.9, STEPS), 250, 300);
    assert_in_range(chosen(1e6, 200, 0.9, STEPS), 500, 600);
    assert_in_range(chosen(1e6, 400, 0.9, STEPS), 1000, 1200);
}

static void a_few_slow_steps_change_nothing(void **state) {
    (void)state;
    assert_int_equal(chosen(1e6, STEPS - 300, 50, STEPS), chosen(1e6, STEPS - 299, 50, STEPS));
    assert_in_range(chosen(1e6, STEPS - 300, 50, STEPS), 240, 250);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steady_steps_need_a_quarter_of_a_second),
        cmocka_unit_test(short_trainings_are_repeated_whole),
        cmocka_unit_test(steps_that_become_slower_or_faster_are_repeated_until_most_are_so),
        cmocka_unit_test(a_slow_start_is_outweighed_by_more_steps_not_by_all),
        cmocka_unit_test(a_few_slow_steps_change_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
