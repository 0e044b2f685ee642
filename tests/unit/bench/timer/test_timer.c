/* Medians, and how many first steps are warm-up. */
#define _POSIX_C_SOURCE 200809L
#include "bench/timer/timer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

static void medians_of_odd_even_one_and_none(void **state) {
    (void)state;
    assert_true(ab_median((double[]){3, 1, 2}, 3) == 2);
    assert_true(ab_median((double[]){4, 1, 3, 2}, 4) == 2.5);
    assert_true(ab_median((double[]){7}, 1) == 7);
    assert_true(ab_median((double[]){-1, 1e9, 5, 5, 5}, 5) == 5); /* outliers do not move it */
    assert_true(ab_median(NULL, 0) == 0);
}

enum { MAX_STEPS = 100 };

/* `slow` steps of 5 ms, then steps of 1 ms that jitter by `jitter` ns either way. */
static int64_t warmup(int64_t slow, int64_t n, int64_t jitter) {
    int64_t time_ns[MAX_STEPS];
    for (int64_t i = 0; i < n; i++) time_ns[i] = i < slow ? 5000000 : 1000000 + (i % 3 - 1) * jitter;
    return ab_warmup_steps(time_ns, n);
}

static void steady_times_have_no_warmup(void **state) {
    (void)state;
    assert_int_equal(warmup(0, 100, 0), 0);
    assert_int_equal(warmup(0, 100, 20000), 0);
}

/* A window of five holds a steady median as soon as three of its steps are steady: two slow steps stay inside
 * the first window. */
static void slow_first_steps_are_warmup(void **state) {
    (void)state;
    assert_int_equal(warmup(2, 100, 20000), 0);
    assert_int_equal(warmup(3, 100, 20000), 1);
    assert_int_equal(warmup(10, 100, 20000), 8);
    assert_int_equal(warmup(10, 100, 0), 8);
}

static void at_most_three_tenths_are_warmup(void **state) {
    (void)state;
    assert_int_equal(warmup(40, 100, 20000), 30);
    assert_int_equal(warmup(9, 20, 20000), 6);
}

static void one_slow_step_later_is_an_outlier_and_no_warmup(void **state) {
    (void)state;
    int64_t time_ns[MAX_STEPS];
    for (int i = 0; i < MAX_STEPS; i++) time_ns[i] = 1000000 + (i % 3) * 1000;
    time_ns[20] = 90000000;
    assert_int_equal(ab_warmup_steps(time_ns, MAX_STEPS), 0);
}

static void too_few_steps_to_tell_are_not_cut(void **state) {
    (void)state;
    for (int64_t n = 0; n < 10; n++) assert_int_equal(warmup(3, n, 1000), 0);
}

/* Whatever else the machine does, a sleeping program uses no processor. */
static void processor_time_stands_still_while_the_program_waits(void **state) {
    (void)state;
    const struct timespec pause = {0, 50000000};
    const int64_t wall = ab_monotonic_ns(), all = ab_processor_ns(), own = ab_thread_processor_ns();
    nanosleep(&pause, NULL);
    const int64_t slept = ab_monotonic_ns() - wall;
    assert_true(slept >= 50000000);
    assert_true(ab_processor_ns() - all < slept / 2);
    assert_true(ab_thread_processor_ns() - own < slept / 2);
    ab_busy_loop(1000000);
    assert_true(ab_thread_processor_ns() - own > 0);
    assert_true(ab_processor_ns() - all > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processor_time_stands_still_while_the_program_waits),
        cmocka_unit_test(medians_of_odd_even_one_and_none),
        cmocka_unit_test(steady_times_have_no_warmup),
        cmocka_unit_test(slow_first_steps_are_warmup),
        cmocka_unit_test(at_most_three_tenths_are_warmup),
        cmocka_unit_test(one_slow_step_later_is_an_outlier_and_no_warmup),
        cmocka_unit_test(too_few_steps_to_tell_are_not_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
