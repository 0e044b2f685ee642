/* ab_chance_gap against drawn runs: how often chance alone exceeds it, with a generator of the test's own. */
#include "reports/stats/chance.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static uint64_t seed = 20261126;

static double uniform(void) { /* xorshift64* */
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return ((double)(seed * 2685821657736338717u >> 11) + 0.5) * 0x1p-53;
}

static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

/* Share of trials in which a run's gap to a baseline exceeds what the gaps of n other runs say. */
static double exceeded(int n, int trials) {
    int beyond = 0;
    double draw[AB_CHANCE_DRAWS_MOST];
    for (int t = 0; t < trials; t++) {
        const double baseline = normal();
        for (int i = 0; i < n; i++) draw[i] = normal() - baseline;
        beyond += fabs(normal() - baseline) > ab_chance_gap(draw, n);
    }
    return (double)beyond / trials;
}

static void test_chance_exceeds_it_once_in_twenty_runs(void **state) {
    (void)state;
    enum { TRIALS = 100000 }; /* standard error 0.0007 */
    static const int counts[] = {1, 2, 3, 5, 20};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        const double share = exceeded(counts[i], TRIALS);
        if (!(fabs(share - 0.05) < 0.003)) fail_msg("%d draws: exceeded in %g of the runs", counts[i], share);
    }
}

/* Of one draw the ratio is Cauchy: a closed form. */
static void test_one_draw_has_a_closed_form(void **state) {
    (void)state;
    const double one = 1, c = ab_chance_gap(&one, 1), half_width = sqrt(3) / 2;
    const double inside = (atan((c - 0.5) / half_width) + atan((c + 0.5) / half_width)) / 3.141592653589793;
    assert_true(fabs(inside - 0.95) < 1e-6);
}

static void test_more_draws_need_a_smaller_factor(void **state) {
    (void)state;
    double draw[2 * AB_CHANCE_DRAWS_MOST], before = INFINITY;
    for (int n = 1; n <= 2 * AB_CHANCE_DRAWS_MOST; n++) {
        draw[n - 1] = n % 2 ? 0.5 : -0.5;
        const double gap = ab_chance_gap(draw, n);
        assert_true(n > AB_CHANCE_DRAWS_MOST ? gap == before : gap < before);
        assert_true(gap > 0.5 * 1.9599);
        before = gap;
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chance_exceeds_it_once_in_twenty_runs),
        cmocka_unit_test(test_one_draw_has_a_closed_form),
        cmocka_unit_test(test_more_draws_need_a_smaller_factor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
