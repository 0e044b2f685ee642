/* The gate's statistics against SciPy's values (scripts/peer_stats.py), published tables, enumeration and
 * recorded times. */
#include "bench/timer/timer.h"
#include "reports/stats/stats.h"
#include "support/json_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static cJSON *scipy;

static int load(void **state) {
    (void)state;
    scipy = ab_test_read_json(AB_SOURCE_DIR "/tests/fixtures/stats_scipy.json");
    return scipy ? 0 : -1;
}

static int unload(void **state) {
    (void)state;
    cJSON_Delete(scipy);
    return 0;
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static int numbers(const cJSON *object, const char *key, double *value) {
    int n = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(object, key)) value[n++] = item->valuedouble;
    return n;
}

static void close_to(double found, double expected, double relative, const char *what) {
    if (!(fabs(found - expected) <= relative * fabs(expected) + 1e-15))
        fail_msg("%s: expected %.17g, found %.17g", what, expected, found);
}

static void bound_close_to(double found, const cJSON *object, const char *key, double missing) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (cJSON_IsNull(item))
        assert_true(found == missing);
    else
        close_to(found, item->valuedouble, 1e-13, key);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static void compare_ratio(const cJSON *expected, bool paired) {
    double base[64], other[64];
    ab_ratio r;
    int n = numbers(expected, "base", base), m = numbers(expected, "other", other);
    double alpha = number(expected, "alpha"), guard = number(expected, "guard");
    assert_int_equal(paired ? ab_ratio_paired(base, other, n, alpha, guard, &r)
                            : ab_ratio_unpaired(base, n, other, m, alpha, guard, &r),
                     AB_OK);
    close_to(r.ratio, number(expected, "ratio"), 1e-13, "ratio");
    bound_close_to(r.low, expected, "low", 0);
    bound_close_to(r.high, expected, "high", HUGE_VAL);
    close_to(r.p_above, number(expected, "p_above"), 1e-12, "p_above");
    close_to(r.p_below, number(expected, "p_below"), 1e-12, "p_below");
}

static void paired_ratios_are_scipys(void **state) {
    (void)state;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "paired")) compare_ratio(item, true);
}

static void unpaired_ratios_are_scipys(void **state) {
    (void)state;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "unpaired")) compare_ratio(item, false);
}

/* All 2^n signs. */
static void signed_rank_tails_are_those_of_enumeration(void **state) {
    (void)state;
    for (int n = 1; n <= 12; n++) {
        for (int w = 0; w <= n * (n + 1) / 2; w++) {
            int at_least = 0;
            double p;
            for (unsigned signs = 0; signs < 1u << n; signs++) {
                int sum = 0;
                for (int i = 0; i < n; i++) sum += signs >> i & 1 ? i + 1 : 0;
                at_least += sum >= w;
            }
            assert_int_equal(ab_signed_rank_tail(n, w, &p), AB_OK);
            assert_true(p == at_least / (double)(1u << n));
        }
    }
}

/* Wilcoxon's table (one-sided), as every textbook prints it: largest W with P <= alpha. */
static void critical_values_are_the_published_ones(void **state) {
    (void)state;
    static const struct {
        int n;
        double alpha;
        int k;
    } rows[] = {{5, 0.05, 0},   {6, 0.05, 2},    {7, 0.05, 3},    {7, 0.01, 0},    {8, 0.05, 5},
                {10, 0.05, 10}, {10, 0.01, 5},   {12, 0.05, 17},  {12, 0.01, 9},   {15, 0.05, 30},
                {20, 0.05, 60}, {20, 0.01, 43},  {25, 0.05, 100}, {30, 0.05, 151}, {30, 0.01, 120},
                {4, 0.05, -1},  {50, 0.05, 466}, {50, 0.01, 397}, {20, 0.005, 37}, {9, 0.025, 5}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        int k;
        assert_int_equal(ab_signed_rank_critical(rows[i].n, rows[i].alpha, &k), AB_OK);
        assert_int_equal(k, rows[i].k);
    }
    /* Mann and Whitney's table, one-sided */
    static const int sides[][4] = {
        {3, 3, 50, 0}, {5, 5, 50, 4}, {5, 5, 10, 1}, {8, 10, 50, 20}, {20, 20, 10, 114}};
    for (size_t i = 0; i < AB_COUNT_OF(sides); i++) {
        int k;
        assert_int_equal(ab_rank_sum_critical(sides[i][0], sides[i][1], sides[i][2] / 1000.0, &k), AB_OK);
        assert_int_equal(k, sides[i][3]);
    }
}

static void few_pairs_say_what_they_cannot_reach(void **state) {
    (void)state;
    const double base[] = {1, 1, 1, 1}, other[] = {2, 2.1, 2.2, 2.3};
    ab_ratio r;
    assert_int_equal(ab_ratio_paired(base, other, 4, 0.05, 0, &r), AB_OK);
    assert_true(r.low == 0 && r.high == HUGE_VAL && r.p_least == 0.0625 && r.p_above == 0.0625);
    assert_int_equal(ab_ratio_paired(base, other, 1, 0.05, 0, &r), AB_OK);
    assert_true(r.ratio == 2 && r.p_least == 0.5);
    assert_int_equal(ab_pairs_needed(0.05), 5);
    assert_int_equal(ab_pairs_needed(0.01), 7);
    assert_int_equal(ab_pairs_needed(0.00125), 10);
    assert_int_equal(ab_ratio_paired(base, other, 0, 0.05, 0, &r), AB_INTERNAL);
}

static void ties_with_the_guard_count_against_a_change(void **state) {
    (void)state;
    const double base[] = {1, 1, 1, 1, 1, 1}, same[] = {1, 1, 1, 1, 1, 1};
    ab_ratio r;
    assert_int_equal(ab_ratio_paired(base, same, 6, 0.05, 0, &r), AB_OK);
    assert_true(r.ratio == 1 && r.low == 1 && r.high == 1 && r.p_above == 1 && r.p_below == 1);
}

static void differences_shift_as_their_median_pair_does(void **state) {
    (void)state;
    const double d[] = {0.5, 0.25, 0.75, 1, -0.25};
    double shift, p;
    assert_int_equal(ab_shift_paired(d, 5, 0, &shift, &p), AB_OK);
    assert_true(shift ==
                0.5); /* of 15 pair means: -.25 0 .125 .25 .375 .375 .375 .5 .5 .5 .625 .625 .75 .875 1 */
    assert_true(p == 2 / 32.0 || p == 3 / 32.0); /* 13 of 15 are above 0 */
}

static void holm_is_scipys_definition(void **state) {
    (void)state;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "holm")) {
        double p[64], expected[64], found[64];
        int n = numbers(item, "p", p);
        numbers(item, "adjusted", expected);
        assert_int_equal(ab_holm(p, n, found), AB_OK);
        for (int i = 0; i < n; i++) close_to(found[i], expected[i], 1e-14, "holm");
    }
}

/* ---- distributions --------------------------------------------------------------------------- */

static void clopper_pearson_is_scipys(void **state) {
    (void)state;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "clopper_pearson")) {
        double low, high;
        ab_clopper_pearson((int)number(item, "k"), (int)number(item, "n"), number(item, "confidence"), &low,
                           &high);
        close_to(low, number(item, "low"), 1e-10, "low");
        close_to(high, number(item, "high"), 1e-10, "high");
    }
}

static void students_t_is_scipys(void **state) {
    (void)state;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "student")) assert_true(
        fabs(ab_student_tail((int)number(item, "df"), number(item, "t")) - number(item, "tail")) < 4e-15);
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "student_point")) close_to(
        ab_student_point((int)number(item, "df"), number(item, "alpha")), number(item, "t"), 1e-10, "t");
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "normal_point"))
        assert_true(fabs(ab_normal_point(number(item, "alpha")) - number(item, "z")) < 1e-9);
}

static void equivalence_tests_are_scipys(void **state) {
    (void)state;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "tost")) {
        double d[64];
        ab_tost r;
        int n = numbers(item, "difference", d);
        double alpha = number(item, "alpha");
        ab_tost_paired(d, n, number(item, "margin"), alpha, &r);
        assert_true(fabs(r.p - number(item, "p")) < 1e-12);
        assert_true(r.equivalent == (number(item, "p") <= alpha));
        close_to(r.low, number(item, "low"), 1e-8, "low");
        close_to(r.high, number(item, "high"), 1e-8, "high");
        assert_true(fabs(r.power - number(item, "power")) < 2e-4);
    }
    ab_tost same;
    ab_tost_paired((double[]){0, 0, 0}, 3, 0.1, 0.05, &same);
    assert_true(same.equivalent && same.p == 0 && !same.different);
}

/* ---- series ---------------------------------------------------------------------------------- */

static void a_timer_with_ticks_has_a_spread(void **state) {
    (void)state;
    ab_robust r;
    const double coarse[] = {10, 10, 10, 10, 11, 11}, equal[] = {5, 5, 5};
    assert_int_equal(ab_stats_robust(coarse, 6, 1, &r), AB_OK);
    assert_true(r.centre == 10 && r.sigma > 0 && r.sigma < 1);
    assert_int_equal(ab_stats_robust(equal, 3, 0.5, &r), AB_OK);
    assert_true(r.sigma == 0.5);
}

static void bursts_are_outliers_and_two_modes_are_told(void **state) {
    (void)state;
    double value[40], mode[2];
    int outliers;
    bool bimodal;
    for (int i = 0; i < 40; i++) value[i] = 100 + (i * 7) % 11 * 0.1;
    assert_int_equal(ab_stats_bimodal(value, 40, &bimodal, mode), AB_OK);
    assert_false(bimodal);
    value[5] = 150;
    assert_int_equal(ab_stats_outliers(value, 40, &outliers), AB_OK);
    assert_int_equal(outliers, 1);
    for (int i = 0; i < 40; i += 2) value[i] += 20; /* half and half: the spread of all hides the gap */
    assert_int_equal(ab_stats_bimodal(value, 40, &bimodal, mode), AB_OK);
    assert_true(bimodal && mode[0] < 102 && mode[1] > 119);
    assert_int_equal(ab_stats_bimodal(value, 4, &bimodal, mode), AB_OK);
    assert_false(bimodal);
}

static void a_process_that_slows_for_ever_is_never_steady(void **state) {
    (void)state;
    double value[60];
    int k;
    bool never;
    for (int i = 0; i < 60; i++) value[i] = 100 + i % 3 + (i < 12 ? 50 : 0);
    assert_int_equal(ab_stats_warmup(value, 60, &k, &never), AB_OK);
    assert_true(k >= 9 && k <= 12 && !never);
    for (int i = 0; i < 60; i++) value[i] = 200 - 2.0 * i + i % 3;
    assert_int_equal(ab_stats_warmup(value, 60, &k, &never), AB_OK);
    assert_true(k == 18 && never);
    assert_int_equal(ab_stats_warmup(value, 9, &k, &never), AB_OK);
    assert_true(k == 0 && !never);
}

/* Recorded processes: their first step is slow, and most are steady soon after it. */
static void recorded_processes_are_steady_after_few_steps(void **state) {
    (void)state;
    FILE *file = fopen(AB_SOURCE_DIR "/tests/fixtures/rounds/steps.txt", "r");
    assert_non_null(file);
    int processes = 0, unsteady = 0, early = 0;
    for (double value[70]; fscanf(file, "%lf", &value[0]) == 1; processes++) {
        int k;
        bool never;
        for (int i = 1; i < 70; i++) assert_int_equal(fscanf(file, "%lf", &value[i]), 1);
        assert_int_equal(ab_stats_warmup(value, 70, &k, &never), AB_OK);
        unsteady += never;
        early += k <= 14;
    }
    fclose(file);
    assert_int_equal(processes, 40);
    assert_true(unsteady <= 8 && early >= 30);
}

/* ---- classes --------------------------------------------------------------------------------- */

static void chi_squared_tails_are_scipys(void **state) {
    (void)state;
    const cJSON *item;
    int cases = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "chi_squared")) {
        close_to(ab_chi_squared_tail((int)number(item, "df"), number(item, "x")), number(item, "tail"), 1e-11,
                 "chi-squared");
        cases++;
    }
    assert_true(cases > 30);
}

static void samples_of_classes_are_judged_as_scipy_does(void **state) {
    (void)state;
    const cJSON *item;
    int cases = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "classes")) {
        double part[64], all[64];
        const int n = numbers(item, "part", part);
        assert_int_equal(numbers(item, "all", all), n);
        const double p = ab_sample_of_classes_p(part, all, n);
        if (cJSON_IsNull(cJSON_GetObjectItem(item, "p")))
            assert_true(isnan(p));
        else
            close_to(p, number(item, "p"), 1e-9, "p of classes");
        cases++;
    }
    assert_true(cases > 10);
    assert_true(isnan(ab_sample_of_classes_p((double[]){10, 10}, (double[]){10, 10}, 2))); /* no rest */
    assert_true(isnan(ab_sample_of_classes_p((double[]){0, 0}, (double[]){10, 10}, 2)));   /* no part */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(paired_ratios_are_scipys),
        cmocka_unit_test(unpaired_ratios_are_scipys),
        cmocka_unit_test(signed_rank_tails_are_those_of_enumeration),
        cmocka_unit_test(critical_values_are_the_published_ones),
        cmocka_unit_test(few_pairs_say_what_they_cannot_reach),
        cmocka_unit_test(ties_with_the_guard_count_against_a_change),
        cmocka_unit_test(differences_shift_as_their_median_pair_does),
        cmocka_unit_test(holm_is_scipys_definition),
        cmocka_unit_test(clopper_pearson_is_scipys),
        cmocka_unit_test(students_t_is_scipys),
        cmocka_unit_test(equivalence_tests_are_scipys),
        cmocka_unit_test(a_timer_with_ticks_has_a_spread),
        cmocka_unit_test(bursts_are_outliers_and_two_modes_are_told),
        cmocka_unit_test(a_process_that_slows_for_ever_is_never_steady),
        cmocka_unit_test(recorded_processes_are_steady_after_few_steps),
        cmocka_unit_test(chi_squared_tails_are_scipys),
        cmocka_unit_test(samples_of_classes_are_judged_as_scipy_does),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
