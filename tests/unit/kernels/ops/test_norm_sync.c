/* What ranks say of their batches merges to the moments of all values, in both frameworks' formulas; the
 * formulas are told apart by their roundings, and mistakes in the counts show. */
#include "kernels/ops/norm/norm_sync.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 5, CHANNELS = 7, MOST = 64, FLOATS = 2 * CHANNELS + 1 };

static const int counts[RANKS] = {3, 64, 1, 17, 32};
static double value[RANKS][MOST][CHANNELS];

static double noise(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return (double)(*state >> 8) * 0x1p-24 - 0.5;
}

/* Channels with means from 0 to far above the spread. */
static void draw(void) {
    uint32_t state = 7;
    for (int r = 0; r < RANKS; r++)
        for (int i = 0; i < counts[r]; i++)
            for (int c = 0; c < CHANNELS; c++) value[r][i][c] = 3.0 * c + (0.1 * r + noise(&state)) * (1 + c);
}

/* Mean and sum of squared deviations of ranks [from, until), in double, by two passes. */
static double moments(int from, int until, int c, double *m2) {
    double sum = 0, n = 0;
    for (int r = from; r < until; r++)
        for (int i = 0; i < counts[r]; i++, n++) sum += value[r][i][c];
    *m2 = 0;
    for (int r = from; r < until; r++)
        for (int i = 0; i < counts[r]; i++) *m2 += pow(value[r][i][c] - sum / n, 2);
    return sum / n;
}

static void merge(ab_sync_form form, const int *said, double *mean, double *m2, double *n) {
    static float all[RANKS][FLOATS];
    for (int r = 0; r < RANKS; r++) {
        double own_mean[CHANNELS], own_m2[CHANNELS];
        for (int c = 0; c < CHANNELS; c++) own_mean[c] = moments(r, r + 1, c, &own_m2[c]);
        ab_sync_send(form, own_mean, own_m2, counts[r], 1e-5, CHANNELS, all[r]);
        all[r][2 * CHANNELS] = (float)said[r];
    }
    ab_sync_merge(form, all[0], RANKS, 1e-5, CHANNELS, mean, m2, n);
}

/* Largest error of mean and variance, relative to mean^2 + variance. */
static double error(ab_sync_form form, const int *said) {
    double mean[CHANNELS], m2[CHANNELS], n, worst = 0;
    merge(form, said, mean, m2, &n);
    for (int c = 0; c < CHANNELS; c++) {
        double exact_m2;
        const double exact = moments(0, RANKS, c, &exact_m2), variance = exact_m2 / 117;
        worst = fmax(worst, fabs(mean[c] - exact) / sqrt(exact * exact + variance));
        worst = fmax(worst, fabs(m2[c] / n - variance) / variance);
    }
    return worst;
}

static void merged_moments_are_those_of_all_values(void **state) {
    (void)state;
    static const int equal[RANKS] = {20, 20, 20, 20, 20};
    draw();
    for (int form = AB_SYNC_TORCH; form <= AB_SYNC_APEX; form++) {
        assert_true(error((ab_sync_form)form, counts) <
                    3e-5); /* 1 / invstd^2 - eps costs some places of fp32 */
        assert_true(error((ab_sync_form)form, equal) > 1e-2);
    }
}

static void the_formulas_round_differently(void **state) {
    (void)state;
    double mean[2][CHANNELS], m2[2][CHANNELS], n;
    draw();
    merge(AB_SYNC_TORCH, counts, mean[0], m2[0], &n);
    merge(AB_SYNC_APEX, counts, mean[1], m2[1], &n);
    assert_true(n == 117);
    assert_memory_not_equal(m2[0], m2[1], sizeof m2[0]);
}

/* What two ranks of 4 values each say of one channel, by hand. */
static void numbers_of_two_ranks_are_those_by_hand(void **state) {
    (void)state;
    const double first[2] = {1, 3}, m2[2] = {8, 16};
    float all[2][3];
    double mean, sum, n;
    for (int form = AB_SYNC_TORCH; form <= AB_SYNC_APEX; form++) {
        for (int r = 0; r < 2; r++) ab_sync_send((ab_sync_form)form, &first[r], &m2[r], 4, 0, 1, all[r]);
        assert_true(all[1][0] == 3 && all[1][2] == 4);
        assert_true(all[1][1] == (form == AB_SYNC_APEX ? 4.0F : 0.5F));
        ab_sync_merge((ab_sync_form)form, all[0], 2, 0, 1, &mean, &sum, &n);
        assert_true(n == 8 && mean == 2 && fabs(sum - 32) < 1e-5); /* 8 + 16 + 8 values at distance 1 */
    }
}

static ab_status repeat(void *context, const float *own, int64_t n, const float **all) {
    static float rows[3][2];
    (void)context;
    assert_true(n == 2);
    for (int r = 0; r < 3; r++) memcpy(rows[r], own, sizeof rows[r]);
    *all = rows[0];
    return AB_OK;
}

static void sums_are_those_of_all_ranks(void **state) {
    (void)state;
    float own[2];
    for (int form = AB_SYNC_TORCH; form <= AB_SYNC_APEX; form++) {
        double sums[2] = {10, -4};
        const ab_norm_sync sync = {.form = (ab_sync_form)form, .ranks = 3, .gather = repeat};
        assert_int_equal(ab_sync_sums(&sync, 8, 24, 1, own, sums), AB_OK);
        assert_true(sums[0] == 30 && sums[1] == -12);
        assert_true(own[0] == (form == AB_SYNC_APEX ? 1.25F : 10.0F));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_moments_are_those_of_all_values),
        cmocka_unit_test(the_formulas_round_differently),
        cmocka_unit_test(numbers_of_two_ranks_are_those_by_hand),
        cmocka_unit_test(sums_are_those_of_all_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
