/* The thread governor on machines made of two numbers: a step's time with all threads and with one. */
#include "bench/run/thread_governor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

typedef struct machine {
    int64_t all_ns, one_ns, waited_ns; /* of a step; waited: of one with all threads */
} machine;

/* Time of n steps; *ones counts those on one thread. */
static int64_t run(ab_thread_governor *governor, int *threads, machine m, int n, int *ones) {
    int64_t total = 0;
    *ones = 0;
    for (int i = 0; i < n; i++) {
        int64_t time = *threads == 1 ? m.one_ns : m.all_ns;
        *ones += *threads == 1;
        total += time;
        *threads = ab_thread_governor_step(governor, time, *threads == 1 ? 0 : m.waited_ns);
    }
    return total;
}

static const machine quiet = {1000000, 1600000, 0}, busy = {3000000, 2000000, 1500000},
                     shared = {1500000, 2000000, 300000}; /* some waiting, still faster */

static void a_quiet_machine_always_uses_all_lanes(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 2, ones;
    ab_thread_governor_start(&g, 2);
    run(&g, &threads, quiet, 5000, &ones);
    assert_int_equal(ones, 0);
}

static void a_busy_machine_costs_hardly_more_than_one_lane(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 2, ones;
    ab_thread_governor_start(&g, 2);
    int64_t time = run(&g, &threads, busy, 5000, &ones);
    assert_true(time < 5000 * busy.one_ns * 103 / 100);
    assert_true(ones > 4800);
}

static void waiting_alone_does_not_end_a_gain(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 2, ones;
    ab_thread_governor_start(&g, 2);
    int64_t time = run(&g, &threads, shared, 5000, &ones);
    assert_true(time < 5000 * shared.all_ns * 102 / 100);
    assert_true(ones > 0); /* it did look */
}

static void all_lanes_come_back_when_the_machine_is_quiet_again(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 2, ones;
    ab_thread_governor_start(&g, 2);
    run(&g, &threads, busy, 5000, &ones);
    run(&g, &threads, quiet, 64 * 14, &ones); /* within the longest distance between trials */
    run(&g, &threads, quiet, 1000, &ones);
    assert_int_equal(ones, 0);
}

static void one_lane_has_no_choice(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 1, ones;
    ab_thread_governor_start(&g, 1);
    run(&g, &threads, busy, 100, &ones);
    assert_int_equal(ones, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quiet_machine_always_uses_all_lanes),
        cmocka_unit_test(a_busy_machine_costs_hardly_more_than_one_lane),
        cmocka_unit_test(waiting_alone_does_not_end_a_gain),
        cmocka_unit_test(all_lanes_come_back_when_the_machine_is_quiet_again),
        cmocka_unit_test(one_lane_has_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
