/* Which steps are probed and what that costs, on made-up clocks: within the budget, the same steps in all
 * cells. */
#include "bench/run/governor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <stdbool.h>

enum { STEP_NS = 1000000 };

static int64_t interval(double cost, int64_t steps, double processes) {
    const ab_probe_cost one = {STEP_NS, cost * STEP_NS};
    return ab_probe_interval(0.03, steps, processes, &one, 1);
}

static int64_t probed(int64_t steps, int64_t every) { return (steps + every - 1) / every; }

/* Whatever it costs and however long the run is: within the budget, or eight steps. */
static void probing_stays_within_the_budget(void **state) {
    (void)state;
    static const double costs[] = {0.01, 0.1, 0.5, 1, 2, 7, 60, 3000},
                        budgets[] = {0.001, 0.01, 0.03, 0.2, 1};
    for (size_t c = 0; c < AB_COUNT_OF(costs); c++)
        for (size_t b = 0; b < AB_COUNT_OF(budgets); b++)
            for (int64_t steps = 1; steps < 200000; steps += steps / 3 + 1) {
                const ab_probe_cost one = {STEP_NS, costs[c] * STEP_NS};
                const int64_t every = ab_probe_interval(budgets[b], steps, 1, &one, 1),
                              n = probed(steps, every);
                const double share = (double)n * costs[c] / (double)steps;
                assert_true(every >= 10);
                if (share > budgets[b] && n > 11) fail_msg("%d steps probed, %g of the time", (int)n, share);
                if (steps >= 80) assert_true(n >= AB_PROBE_STEPS_LEAST);
                if (every > 10 && share < budgets[b] / 4 && n < 64)
                    fail_msg("%d of %d steps probed, only %g of the time", (int)n, (int)steps, share);
            }
}

static void intervals_are_few(void **state) {
    (void)state;
    static const struct {
        double cost;
        int64_t every;
    } rows[] = {{0.2, 10}, {0.3, 15}, {0.4, 20}, {0.6, 30}, {0.9, 40}, {1.2, 60}, {1.9, 80}, {2.5, 120}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++)
        assert_int_equal(interval(rows[i].cost, 1000000, 1), rows[i].every);
    assert_int_equal(interval(1.2, 1000000, 3), 20); /* two more rounds are not probed */
}

/* All cells are probed alike: where probing costs most it is within the budget. */
static void the_dearest_cell_decides(void **state) {
    (void)state;
    const ab_probe_cost cells[] = {
        {STEP_NS, 0.3 * STEP_NS}, {2 * STEP_NS, 2.4 * STEP_NS}, {9 * STEP_NS, STEP_NS}};
    assert_int_equal(ab_probe_interval(0.03, 100000, 1, cells, 3), 60);
    assert_int_equal(ab_probe_interval(0.03, 100000, 1, cells, 1), 15);
}

/* A machine on which everything takes longer chooses the same steps. */
static void a_slow_machine_chooses_alike(void **state) {
    (void)state;
    for (double slow = 0.01; slow < 1000; slow *= 3) {
        const ab_probe_cost cell = {slow * STEP_NS, slow * STEP_NS * 1.7};
        assert_int_equal(ab_probe_interval(0.03, 937, 2.5, &cell, 1), 30);
    }
}

static void short_runs_have_no_choice(void **state) {
    (void)state;
    assert_false(ab_probe_has_choice(30));
    assert_false(ab_probe_has_choice(105));
    assert_true(ab_probe_has_choice(106));
    assert_int_equal(interval(60, 105, 1), 10);
    assert_int_equal(interval(60, 106, 1), 15);
    assert_int_equal(ab_probe_interval(0.03, 1000, 1, NULL, 0), 10); /* nothing could be measured */
    assert_int_equal(interval(60, 0, 1), 10);
}

typedef struct outcome {
    int64_t probed;
    double share, told; /* of the time without probes; what the governor says */
} outcome;

/* unseen_ns: what a probed step takes besides; hiccup_ns: now and then, on any step. */
static outcome run(int64_t every, int64_t steps, int64_t probe_ns, int64_t unseen_ns, int64_t hiccup_ns) {
    ab_governor governor;
    double work = 0, probing = 0;
    ab_governor_start(&governor, every);
    for (int64_t k = 0; k < steps; k++) {
        const bool due = ab_governor_due(&governor);
        const int64_t time = STEP_NS + (k % 97 == 40 ? hiccup_ns : 0);
        assert_int_equal(due, k % every == 0);
        work += (double)time;
        if (due) probing += (double)(probe_ns + unseen_ns);
        ab_governor_note(&governor, due, time + (due ? probe_ns + unseen_ns : 0), probe_ns);
    }
    return (outcome){governor.probed, probing / work, ab_governor_cost_share(&governor)};
}

static void an_interval_is_kept_at_any_cost(void **state) {
    (void)state;
    assert_int_equal(run(1, 100, 50 * STEP_NS, 0, 0).probed, 100);
    assert_int_equal(run(10, 100, 50 * STEP_NS, 0, 0).probed, 10);
    assert_int_equal(run(7, 100, 50 * STEP_NS, 0, 0).probed, 15); /* 0, 7, ..., 98 */
}

static void the_cost_is_what_probed_steps_took_longer(void **state) {
    (void)state;
    const outcome plain = run(10, 1000, STEP_NS, 0, 0), unseen = run(10, 1000, STEP_NS / 100, STEP_NS, 0),
                  stumbling = run(10, 1000, STEP_NS, 0, 50 * STEP_NS);
    assert_true(fabs(plain.told - plain.share) < 0.01 * plain.share);
    assert_true(fabs(unseen.told - unseen.share) < 0.03 * unseen.share);
    assert_true(fabs(stumbling.told - plain.share) < 0.05 * plain.share);
}

static void without_an_unprobed_step_the_share_is_unknown(void **state) {
    (void)state;
    assert_true(isnan(run(1, 10, 1000, 0, 0).told));
}

/* The thread governor on machines made of two numbers: a step's time with all threads and with one. */

typedef struct machine {
    int64_t all_ns, one_ns, waited_ns; /* of a step; waited: of one with all threads */
} machine;

/* Time of n steps; *ones counts those on one thread. */
static int64_t run_threads(ab_thread_governor *governor, int *threads, machine m, int n, int *ones) {
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
    run_threads(&g, &threads, quiet, 5000, &ones);
    assert_int_equal(ones, 0);
}

static void a_busy_machine_costs_hardly_more_than_one_lane(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 2, ones;
    ab_thread_governor_start(&g, 2);
    int64_t time = run_threads(&g, &threads, busy, 5000, &ones);
    assert_true(time < 5000 * busy.one_ns * 103 / 100);
    assert_true(ones > 4800);
}

static void waiting_alone_does_not_end_a_gain(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 2, ones;
    ab_thread_governor_start(&g, 2);
    int64_t time = run_threads(&g, &threads, shared, 5000, &ones);
    assert_true(time < 5000 * shared.all_ns * 102 / 100);
    assert_true(ones > 0); /* it did look */
}

static void all_lanes_come_back_when_the_machine_is_quiet_again(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 2, ones;
    ab_thread_governor_start(&g, 2);
    run_threads(&g, &threads, busy, 5000, &ones);
    run_threads(&g, &threads, quiet, 64 * 14, &ones); /* within the longest distance between trials */
    run_threads(&g, &threads, quiet, 1000, &ones);
    assert_int_equal(ones, 0);
}

static void one_lane_has_no_choice(void **state) {
    (void)state;
    ab_thread_governor g;
    int threads = 1, ones;
    ab_thread_governor_start(&g, 1);
    run_threads(&g, &threads, busy, 100, &ones);
    assert_int_equal(ones, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probing_stays_within_the_budget),
        cmocka_unit_test(intervals_are_few),
        cmocka_unit_test(the_dearest_cell_decides),
        cmocka_unit_test(a_slow_machine_chooses_alike),
        cmocka_unit_test(short_runs_have_no_choice),
        cmocka_unit_test(an_interval_is_kept_at_any_cost),
        cmocka_unit_test(the_cost_is_what_probed_steps_took_longer),
        cmocka_unit_test(without_an_unprobed_step_the_share_is_unknown),
        cmocka_unit_test(a_quiet_machine_always_uses_all_lanes),
        cmocka_unit_test(a_busy_machine_costs_hardly_more_than_one_lane),
        cmocka_unit_test(waiting_alone_does_not_end_a_gain),
        cmocka_unit_test(all_lanes_come_back_when_the_machine_is_quiet_again),
        cmocka_unit_test(one_lane_has_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
