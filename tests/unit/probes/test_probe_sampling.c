/* What keeps a record small and honest when only some steps are probed: the bounded time axis and the
 * intervals of shares. */
#define _POSIX_C_SOURCE 200809L
#include "kernels/core/rng.h"
#include "probes/columns.h"
#include "probes/interval.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- columns --------------------------------------------------------------------------------- */

/* Counts the steps of each column; `value` follows the axis. */
typedef struct axis {
    ab_columns columns;
    int64_t steps[AB_COLUMNS];
    float latest[AB_COLUMNS];
} axis;

static void add(axis *a, int64_t step) {
    int halvings, column = ab_columns_at(&a->columns, step, &halvings);
    ab_columns_halve(a->steps, halvings);
    ab_columns_halve_max(a->latest, halvings);
    assert_in_range(column, 0, a->columns.count - 1);
    a->steps[column]++;
    a->latest[column] = fmaxf(a->latest[column], (float)step + 1);
}

static int64_t stride(const axis *a) { return a->columns.stride ? a->columns.stride : 1; }

/* Every column has a step, and each step is where its number says. */
static void is_sound(const axis *a, int64_t steps, int64_t last) {
    int64_t sum = 0;
    assert_in_range(a->columns.count, 1, AB_COLUMNS);
    for (int i = 0; i < a->columns.count; i++) {
        assert_true(a->steps[i] > 0);
        assert_int_equal(((int64_t)a->latest[i] - 1 - a->columns.first) / stride(a), i);
        sum += a->steps[i];
    }
    for (int i = a->columns.count; i < AB_COLUMNS; i++) assert_int_equal(a->steps[i], 0);
    assert_int_equal(sum, steps);
    assert_true((int64_t)a->latest[a->columns.count - 1] == last + 1);
}

/* Step 0 and every 40th are probed, and others (multiples of 10) by chance, none for long stretches. */
static void steps_at_a_power_of_two_times_every_keep_their_own_columns(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 50; seed++) {
        axis a = {.columns = {.every = 10}};
        int64_t steps = 0, last = 0;
        for (int64_t k = 0; k < 94; k++) {
            const bool burst = k / 16 % 2 == 1 && ab_rng_below(seed, AB_RNG_SAMPLE, 0, (uint64_t)k, 2) == 0;
            if (k % 4 != 0 && !burst) continue;
            add(&a, last = 10 * k);
            steps++;
        }
        is_sound(&a, steps, last);
        assert_true(a.columns.count >= 24 && stride(&a) <= 40);
    }
}

static void every_column_holds_the_steps_of_its_range(void **state) {
    (void)state;
    static const int64_t every[] = {1, 7, 10};
    for (size_t e = 0; e < AB_COUNT_OF(every); e++) {
        axis a = {.columns = {.count = 0}};
        for (int64_t k = 0; k < 5000; k++) {
            add(&a, 3 + k * every[e]);
            is_sound(&a, k + 1, 3 + k * every[e]);
        }
        assert_int_equal(a.columns.first, 3);
        assert_int_equal(stride(&a), 64 * every[e]); /* 5000 / 128 = 39.06 */
        assert_int_equal(a.columns.count, 79);
    }
}

/* A governor probes at irregular multiples of its interval. The axis gets no coarser than the largest gap
 * asks for. */
static void gaps_leave_no_empty_column(void **state) {
    (void)state;
    axis a = {.columns = {.count = 0}};
    int64_t step = 0, widest = 0;
    for (int64_t k = 0; k < 2000; k++) {
        add(&a, step);
        is_sound(&a, k + 1, step);
        int64_t gap =
            10 * (int64_t)(1 + ab_rng_below(5, AB_RNG_SAMPLE, 0, (uint64_t)k, k % 100 == 99 ? 90 : 4));
        widest = gap > widest ? gap : widest;
        step += gap;
    }
    assert_true(stride(&a) < 2 * widest);
}

/* ---- intervals ------------------------------------------------------------------------------- */

static ab_share_sums sums_of(const int64_t (*step)[2], int count) {
    ab_share_sums sums = {0};
    for (int i = 0; i < count; i++) ab_share_add(&sums, step[i][0], step[i][1]);
    return sums;
}

static void close_to(double found, double expected) {
    if (!(fabs(found - expected) < 1e-9)) fail_msg("found %.12g, expected %.12g", found, expected);
}

static void when_all_steps_were_probed_nothing_is_open(void **state) {
    (void)state;
    static const int64_t step[][2] = {{1, 10}, {5, 10}, {0, 0}};
    ab_share_sums sums = sums_of(step, 3);
    ab_interval all = ab_share_interval(&sums, 3, 3);
    assert_true(all.share == 0.3 && all.low == 0.3 && all.high == 0.3);
}

static void little_was_seen_little_is_known(void **state) {
    (void)state;
    static const int64_t step[][2] = {{1, 4}};
    ab_share_sums one = sums_of(step, 1), none = {0};
    ab_interval found = ab_share_interval(&one, 1, 10);
    assert_true(found.share == 0.25 && found.low == 0 && found.high == 1);
    found = ab_share_interval(&none, 4, 10);
    assert_true(found.share == 0 && found.low == 0 && found.high == 1);
}

/* Four steps of 1000 values of an endless run: the mean of four shares, and Student's t for three degrees of
 * freedom. */
static void steps_that_differ_widen_the_interval(void **state) {
    (void)state;
    static const int64_t step[][2] = {{400, 1000}, {440, 1000}, {380, 1000}, {420, 1000}};
    ab_share_sums sums = sums_of(step, 4);
    double mean = 0.41, variance = (0.01 * 0.01 + 0.03 * 0.03 + 0.03 * 0.03 + 0.01 * 0.01) / 3 / 4;
    double half = 3.182446305284263 * sqrt(variance); /* the expansion is good to 1e-2 */
    ab_interval found = ab_share_interval(&sums, 4, 0);
    assert_true(fabs(found.share - mean) < 1e-12);
    assert_true(fabs(found.high - (mean + half)) < 0.01 * half);
    assert_true(fabs(found.low - (mean - half)) < 0.01 * half);
    /* of a run of 8 steps half were seen: the variance halves */
    double narrower = ab_share_interval(&sums, 4, 8).high - mean;
    close_to(narrower / (found.high - mean), sqrt(0.5));
}

/* 50 of 1000 values in each of two steps: no spread between steps, so Wilson on 2000 values. */
static void the_interval_is_never_narrower_than_wilsons(void **state) {
    (void)state;
    static const int64_t step[][2] = {{50, 1000}, {50, 1000}};
    ab_share_sums sums = sums_of(step, 2);
    double z2 = 3.841458820694124, n = 2000, p = 0.05;
    double middle = (p + z2 / (2 * n)) / (1 + z2 / n);
    double half = sqrt(z2) * sqrt(p * (1 - p) / n + z2 / (4 * n * n)) / (1 + z2 / n);
    ab_interval found = ab_share_interval(&sums, 2, 100);
    close_to(found.low, middle - half);
    close_to(found.high, middle + half);
    static const int64_t nothing[][2] = {{0, 500}, {0, 500}};
    sums = sums_of(nothing, 2);
    found = ab_share_interval(&sums, 2, 100);
    assert_true(found.low == 0);
    close_to(found.high, z2 / (1000 + z2));
}

/* Runs whose flushed share wanders from step to step, probed at every 10th: the interval holds the true share
 * of all steps in at least 95 of 100 runs (here: of 2000 runs, less three standard errors). */
static void intervals_hold_the_truth_in_95_of_100_runs(void **state) {
    (void)state;
    enum { RUNS = 2000, STEPS = 400, EVERY = 10, VALUES = 5000 };
    int held = 0;
    double width = 0;
    for (uint32_t run = 0; run < RUNS; run++) {
        ab_share_sums sums = {0};
        double part = 0, level = 0;
        for (uint64_t k = 0; k < STEPS; k++) {
            level = 0.3 * level + (double)ab_rng_normal(1, AB_RNG_SAMPLE, run, k);
            int64_t flushed = (int64_t)(VALUES * 0.02 * exp(0.5 * level));
            part += (double)flushed;
            if (k % EVERY == 0) ab_share_add(&sums, flushed, VALUES);
        }
        double truth = part / (double)STEPS / VALUES;
        ab_interval found = ab_share_interval(&sums, STEPS / EVERY, STEPS);
        held += found.low <= truth && truth <= found.high;
        width += (found.high - found.low) / truth / RUNS;
    }
    assert_true(held >= (int)(RUNS * (0.95 - 3 * sqrt(0.95 * 0.05 / RUNS))));
    assert_true(width < 0.5); /* and it says something */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_column_holds_the_steps_of_its_range),
        cmocka_unit_test(steps_at_a_power_of_two_times_every_keep_their_own_columns),
        cmocka_unit_test(gaps_leave_no_empty_column),
        cmocka_unit_test(when_all_steps_were_probed_nothing_is_open),
        cmocka_unit_test(little_was_seen_little_is_known),
        cmocka_unit_test(steps_that_differ_widen_the_interval),
        cmocka_unit_test(the_interval_is_never_narrower_than_wilsons),
        cmocka_unit_test(intervals_hold_the_truth_in_95_of_100_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
