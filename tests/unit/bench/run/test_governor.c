/* The governor on made-up clocks: probing stays within its budget, whatever it costs. */
#include "bench/run/governor.h"

#include "kernels/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <stdbool.h>

enum { STEP_NS = 1000000 };

typedef struct world {
    double noise;      /* of step times, relative */
    int64_t probe_ns;  /* what probes take */
    int64_t unseen_ns; /* what a probed step takes besides */
    int64_t hiccup_ns; /* now and then, on any step */
    int64_t drift_at;  /* from this step on probes cost ten times as much */
} world;

typedef struct outcome {
    int64_t probed;
    double share, told; /* of the time without probes; what the governor says */
} outcome;

static outcome run(const world *w, double budget, int64_t every, int64_t steps) {
    ab_governor governor;
    double work = 0, probing = 0;
    ab_governor_start(&governor, budget, every, steps);
    for (int64_t k = 0; k < steps; k++) {
        bool probed = ab_governor_due(&governor);
        double noise = w->noise * fabs((double)ab_rng_normal(1, AB_RNG_SAMPLE, 0, (uint64_t)k));
        int64_t time = (int64_t)(STEP_NS * (1 + noise)) + (k % 97 == 40 ? w->hiccup_ns : 0);
        int64_t inside = w->drift_at > 0 && k >= w->drift_at ? 10 * w->probe_ns : w->probe_ns;
        work += (double)time;
        if (probed) probing += (double)(inside + w->unseen_ns);
        ab_governor_note(&governor, probed, time + (probed ? inside + w->unseen_ns : 0), inside);
    }
    return (outcome){governor.probed, probing / work, ab_governor_cost_share(&governor)};
}

static void a_fixed_interval_is_kept_at_any_cost(void **state) {
    (void)state;
    const world dear = {.probe_ns = 50 * STEP_NS};
    assert_int_equal(run(&dear, 0, 1, 100).probed, 100);
    assert_int_equal(run(&dear, 0, 10, 100).probed, 10);
    assert_int_equal(run(&dear, 0, 7, 100).probed, 15); /* 0, 7, ..., 98 */
}

static void cheap_probes_run_at_the_finest_interval(void **state) {
    (void)state;
    const world cheap = {.probe_ns = STEP_NS / 10};
    outcome found = run(&cheap, 0.03, 10, 1000);
    assert_true(found.probed >= 95); /* the first few have to wait until they are paid for */
    assert_true(found.share <= 0.011);
}

static void dear_probes_stay_within_the_budget(void **state) {
    (void)state;
    static const int64_t costs[] = {STEP_NS / 2, STEP_NS, 3 * STEP_NS, 20 * STEP_NS};
    static const double budgets[] = {0.01, 0.03, 0.2};
    for (size_t c = 0; c < AB_COUNT_OF(costs); c++)
        for (size_t b = 0; b < AB_COUNT_OF(budgets); b++) {
            const world w = {.probe_ns = costs[c], .noise = 0.05};
            outcome found = run(&w, budgets[b], 10, 10000);
            const bool floor_fits =
                32.0 * (double)costs[c] <= budgets[b] * 10000.0 * STEP_NS; /* every 320th step */
            assert_true(found.share <= (floor_fits ? budgets[b] : 4 * budgets[b]));
            double wanted = 0.8 * budgets[b] * STEP_NS / (double)costs[c];
            if (wanted > 0.1) wanted = 0.1;                           /* every tenth step at most */
            assert_true((double)found.probed / 10000 > 0.9 * wanted); /* and the budget is used */
            assert_true(fabs(found.told - found.share) < 0.2 * found.share);
        }
}

static void costs_outside_the_probes_count(void **state) {
    (void)state;
    const world w = {.probe_ns = STEP_NS / 100, .unseen_ns = STEP_NS};
    assert_true(run(&w, 0.03, 10, 10000).share <= 0.03);
}

static void the_first_step_is_probed_even_in_a_short_run(void **state) {
    (void)state;
    const world dear = {.probe_ns = 60 * STEP_NS};
    assert_int_equal(run(&dear, 0.03, 10, 20).probed, 1);
}

/* A floor that is too dear is thinned by two until it is not. */
static void the_floor_of_a_short_run_costs_a_tenth_of_a_second_at_most(void **state) {
    (void)state;
    const world small = {.probe_ns = 3 * STEP_NS}, busy = {.probe_ns = 9 * STEP_NS, .noise = 0.5};
    assert_int_equal(run(&small, 0.03, 10, 150).probed, 15); /* every tenth step at most */
    assert_int_equal(run(&small, 0.03, 10, 50).probed, 5);
    assert_int_equal(run(&busy, 0.03, 10, 150).probed, 8); /* 0, 20, ..., 140 */
    const world dear = {.probe_ns = 30 * STEP_NS};
    assert_int_equal(run(&dear, 0.03, 10, 150).probed, 2); /* 0, 80 */
    assert_int_equal(run(&small, 0, 10, 150).probed, 15);  /* a fixed interval is kept */
}

/* The README's main job: 937 steps of lenet5, whose probes take as long as two steps. `slow`: how many times
 * longer all of it takes on another machine. */
static int64_t probed_at_least(double slow, double noise, int64_t hiccup_ns, int64_t *widest) {
    ab_governor governor;
    int64_t last = 0, probed = 0;
    ab_governor_start(&governor, 0.03, 10, 937);
    *widest = 0;
    for (int64_t k = 0; k < 937; k++) {
        const bool due = ab_governor_due(&governor);
        const double wobble = 1 + noise * fabs((double)ab_rng_normal(2, AB_RNG_SAMPLE, 0, (uint64_t)k));
        const bool stumbles = ab_rng_below(3, AB_RNG_SAMPLE, 0, (uint64_t)k, 3) == 0;
        const int64_t step = (int64_t)(1.5 * STEP_NS * slow * wobble) + (stumbles ? hiccup_ns : 0),
                      probes = due ? (int64_t)(3 * STEP_NS * slow * wobble) : 0;
        if (due) {
            *widest = k - last > *widest ? k - last : *widest;
            last = k;
            probed++;
        }
        ab_governor_note(&governor, due, step + probes, probes);
    }
    *widest = 937 - last > *widest ? 937 - last : *widest;
    return probed;
}

static void a_slow_or_busy_machine_keeps_the_floor(void **state) {
    (void)state;
    static const struct {
        double slow, noise;
        int64_t hiccup_ns;
    } machine[] = {{1, 0, 0},           {10, 0, 0}, {100, 0, 0}, {3, 2, 0}, {1, 0.3, 12 * STEP_NS},
                   {5, 1, 40 * STEP_NS}};
    for (size_t i = 0; i < AB_COUNT_OF(machine); i++) {
        int64_t widest,
            probed = probed_at_least(machine[i].slow, machine[i].noise, machine[i].hiccup_ns, &widest);
        if (probed < 24 || widest > 40)
            fail_msg(
                "machine %d: %d steps were probed, expected 24 or more; %d steps apart, expected 40 or less",
                (int)i, (int)probed, (int)widest);
    }
}

static void the_floor_takes_four_budgets_at_most(void **state) {
    (void)state;
    static const int64_t steps[] = {700, 1000, 3000, 20000};
    static const int64_t costs[] = {STEP_NS, 10 * STEP_NS, 60 * STEP_NS};
    for (size_t n = 0; n < AB_COUNT_OF(steps); n++)
        for (size_t c = 0; c < AB_COUNT_OF(costs); c++) {
            const world w = {.probe_ns = costs[c], .noise = 0.05};
            const outcome found = run(&w, 0.03, 10, steps[n]);
            const double free_share = (double)AB_GOVERNOR_FREE_NS / (double)(steps[n] * STEP_NS);
            assert_true(found.share <= fmax(4 * 0.03, free_share));
        }
}

static void a_machine_that_stumbles_moves_nothing(void **state) {
    (void)state;
    const world steady = {.probe_ns = STEP_NS / 2},
                stumbling = {.probe_ns = STEP_NS / 2, .hiccup_ns = 50 * STEP_NS};
    int64_t a = run(&steady, 0.03, 10, 10000).probed, b = run(&stumbling, 0.03, 10, 10000).probed;
    assert_true(llabs(a - b) <= a / 10);
}

static void probes_that_become_dear_are_run_less_often(void **state) {
    (void)state;
    const world w = {.probe_ns = STEP_NS / 4, .drift_at = 5000};
    outcome found = run(&w, 0.03, 10, 20000);
    assert_true(found.share <= 0.035);
    assert_true(found.probed < 20000 / 10 / 2);
}

static void without_an_unprobed_step_the_share_is_unknown(void **state) {
    (void)state;
    const world w = {.probe_ns = 1000};
    assert_true(isnan(run(&w, 0, 1, 10).told));
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
        cmocka_unit_test(a_fixed_interval_is_kept_at_any_cost),
        cmocka_unit_test(cheap_probes_run_at_the_finest_interval),
        cmocka_unit_test(dear_probes_stay_within_the_budget),
        cmocka_unit_test(costs_outside_the_probes_count),
        cmocka_unit_test(the_first_step_is_probed_even_in_a_short_run),
        cmocka_unit_test(the_floor_of_a_short_run_costs_a_tenth_of_a_second_at_most),
        cmocka_unit_test(a_slow_or_busy_machine_keeps_the_floor),
        cmocka_unit_test(the_floor_takes_four_budgets_at_most),
        cmocka_unit_test(a_machine_that_stumbles_moves_nothing),
        cmocka_unit_test(probes_that_become_dear_are_run_less_often),
        cmocka_unit_test(without_an_unprobed_step_the_share_is_unknown),
        cmocka_unit_test(a_quiet_machine_always_uses_all_lanes),
        cmocka_unit_test(a_busy_machine_costs_hardly_more_than_one_lane),
        cmocka_unit_test(waiting_alone_does_not_end_a_gain),
        cmocka_unit_test(all_lanes_come_back_when_the_machine_is_quiet_again),
        cmocka_unit_test(one_lane_has_no_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
