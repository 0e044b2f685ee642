/* A cache line is handed to another thread and back: not by one thread, and never for longer than asked. */
#include "bench/profile/round_trip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "bench/timer/timer.h"
#include "kernels/core/parallel.h"

/* No processor reads what another wrote within less; a thread that answers itself would. */
static const double least_possible_ns = 5;
static const int64_t patience_ns = 200 * 1000 * 1000;

static void one_thread_has_nobody_to_hand_it_to(void **state) {
    (void)state;
    assert_true(ab_round_trip_ns(patience_ns) == 0);
}

static void two_threads_hand_it_over_or_do_not_meet(void **state) {
    (void)state;
    assert_int_equal(ab_parallel_start(2), AB_OK);
    for (int i = 0; i < 5; i++) {
        const double trip = ab_round_trip_ns(patience_ns);
        assert_true(trip == 0 || (trip > least_possible_ns && trip < (double)patience_ns));
    }
    ab_parallel_stop();
}

/* The other threads of the pool sleep, as if the machine had no processor for them. */
static void a_thread_that_does_not_come_is_not_waited_for(void **state) {
    (void)state;
    assert_int_equal(ab_parallel_start(2), AB_OK);
    ab_parallel_use(1);
    const int64_t before = ab_monotonic_ns();
    assert_true(ab_round_trip_ns(1000 * 1000) == 0);
    assert_true(ab_monotonic_ns() - before >= 1000 * 1000);
    ab_parallel_stop();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_thread_has_nobody_to_hand_it_to),
                                       cmocka_unit_test(two_threads_hand_it_over_or_do_not_meet),
                                       cmocka_unit_test(a_thread_that_does_not_come_is_not_waited_for)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
