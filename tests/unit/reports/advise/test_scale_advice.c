/* Loss-scale advice: ends of the range against a search that casts every value at every scale, the limits
 * on exact equality, infeasible and vacuous sets, and quantiles against closed forms. */
#include "kernels/core/rng.h"
#include "reports/advise/scale_advice.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ab_scale_goal one_in_a_thousand = {0.001, 1.0, AB_FTZ_NONE, -40, 60};
static const ab_scale_goal nothing_lost = {0.0, 1.0, AB_FTZ_NONE, -126, 127};

static double uniform(uint32_t seed, uint64_t i) {
    return (ab_rng_at(seed, AB_RNG_SAMPLE, 3, i).word[0] + 0.5) * 0x1p-32;
}

static float lognormal(uint32_t seed, uint64_t i, double mean, double sigma) {
    double z = sqrt(-2.0 * log(uniform(seed, 2 * i))) * cos(6.283185307179586 * uniform(seed, 2 * i + 1));
    return (float)exp2(mean + sigma * z);
}

static void count(ab_census *census, const float *values, int n) {
    ab_census_clear(census);
    ab_census_add(census, values, n);
}

static ab_scale_range range_of(const float *values, int n, const ab_format *format,
                               const ab_scale_goal *goal) {
    ab_census census;
    ab_scale_range range = {false, 0, 0};
    count(&census, values, n);
    assert_int_equal(ab_scale_range_of(&census, format, goal, &range), AB_OK);
    return range;
}

/* ---- tests ----------------------------------------------------------------------------------- */

/* Casts everything at every scale; energy is summed exactly enough to tell the shares used here. */
static void search(const float *values, int n, const ab_format *format, const ab_scale_goal *goal, int *k_lo,
                   int *k_hi) {
    const ab_rounding rne = {AB_ROUND_NEAREST_EVEN, false, goal->ftz, 0, 0};
    *k_lo = goal->k_max + 1;
    *k_hi = goal->k_min - 1;
    for (int k = goal->k_max; k >= goal->k_min; k--) {
        int flushed = 0, overflowed = 0, nonzero = 0;
        for (int i = 0; i < n; i++) {
            double cast = ab_format_round(format, &rne, (double)(values[i] * ldexpf(1.0f, k)));
            nonzero += values[i] != 0.0f;
            flushed += values[i] != 0.0f && cast == 0.0;
            overflowed += !isfinite(cast);
        }
        if (flushed <= goal->flushed_share * nonzero) *k_lo = k;
        if (overflowed == 0 && *k_hi < k) *k_hi = k;
    }
}

static void ranges_equal_an_exhaustive_search(void **state) {
    enum { N = 2000 };
    static const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp8_e4m3,
                                               &ab_format_fp8_e5m2};
    static const double sigma[] = {0.5, 3.0, 9.0};
    float *values = malloc(N * sizeof *values);
    (void)state;
    assert_non_null(values);
    for (size_t s = 0; s < AB_COUNT_OF(sigma); s++) {
        for (int i = 0; i < N; i++) values[i] = i % 7 ? lognormal(1, (uint64_t)i, -18.0, sigma[s]) : 0.0f;
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
            for (int ftz = AB_FTZ_NONE; ftz <= AB_FTZ_AFTER; ftz++) {
                ab_scale_goal goal = one_in_a_thousand;
                int k_lo = 0, k_hi = 0;
                goal.ftz = (ab_ftz)ftz;
                search(values, N, formats[f], &goal, &k_lo, &k_hi);
                ab_scale_range got = range_of(values, N, formats[f], &goal);
                assert_int_equal(got.k_lo, k_lo);
                assert_int_equal(got.k_hi, k_hi);
            }
        }
    }
    free(values);
}

static void limits_are_inclusive_on_one_side_only(void **state) {
    const float fp16[2] = {65520.0f, 0x1p-25f}, e4m3[2] = {464.0f, 0x1p-10f};
    (void)state;
    /* 65520 overflows, 464 does not; half the smallest subnormal is flushed in both. */
    assert_int_equal(range_of(fp16, 1, &ab_format_fp16, &nothing_lost).k_hi, -1);
    assert_int_equal(range_of(e4m3, 1, &ab_format_fp8_e4m3, &nothing_lost).k_hi, 0);
    assert_int_equal(range_of(fp16 + 1, 1, &ab_format_fp16, &nothing_lost).k_lo, 1);
    assert_int_equal(range_of(e4m3 + 1, 1, &ab_format_fp8_e4m3, &nothing_lost).k_lo, 1);
}

static void one_in_a_thousand_may_be_flushed(void **state) {
    float values[1000];
    (void)state;
    for (int i = 0; i < 1000; i++) values[i] = i == 0 ? 0x1p-60f : 1.0f;
    assert_int_equal(range_of(values, 1000, &ab_format_fp16, &one_in_a_thousand).k_lo, -24);
    assert_int_equal(range_of(values, 999, &ab_format_fp16, &one_in_a_thousand).k_lo, 36);
}

static void energy_decides_when_it_is_asked(void **state) {
    float values[100];
    ab_scale_goal goal = {0.5, 1e-6, AB_FTZ_NONE, -40, 60};
    (void)state;
    /* 40 % of the values have 2/3 of 2^-16 of the energy: their count may go, their energy may not. */
    for (int i = 0; i < 100; i++) values[i] = i < 40 ? 0x1p-28f : 0x1p-20f;
    assert_int_equal(range_of(values, 100, &ab_format_fp16, &goal).k_lo, 4);
    goal.flushed_energy = 1e-4;
    assert_int_equal(range_of(values, 100, &ab_format_fp16, &goal).k_lo, -4);
}

/* The usable span is nearly 41 octaves in fp16: half the smallest subnormal and the room above the largest
 * number count. */
static void spans_wider_than_the_format_are_infeasible(void **state) {
    const float fits[2] = {0x1.000002p-31f, 0x1.ffdffep9f}, wide[2] = {0x1p-31f, 0x1.ffdffep9f};
    ab_scale_range range = range_of(fits, 2, &ab_format_fp16, &nothing_lost);
    (void)state;
    assert_true(ab_scale_feasible(&range));
    assert_int_equal(range.k_lo, 6);
    assert_int_equal(range.k_hi, 6);
    range = range_of(wide, 2, &ab_format_fp16, &nothing_lost);
    assert_false(ab_scale_feasible(&range));
    assert_int_equal(range.k_lo, range.k_hi + 1);
}

static void ends_outside_the_search_are_told_apart(void **state) {
    const ab_scale_goal narrow = {0.0, 1.0, AB_FTZ_NONE, -2, 2};
    const float tiny = 0x1p-100f, huge = 0x1p100f;
    (void)state;
    assert_int_equal(range_of(&tiny, 1, &ab_format_fp16, &narrow).k_lo, 3);
    assert_int_equal(range_of(&huge, 1, &ab_format_fp16, &narrow).k_hi, -3);
}

/* One scale for all of them at fp16. */
static ab_status advise(const ab_census *tensors, int count, ab_scale_advice *advice) {
    ab_census pool;
    ab_census_clear(&pool);
    ab_scale_advice_begin(advice, &one_in_a_thousand);
    for (int i = 0; i < count; i++) {
        ab_scale_range range;
        AB_TRY(ab_scale_range_of(&tensors[i], &ab_format_fp16, &one_in_a_thousand, &range));
        ab_scale_advice_add(advice, i, &range);
        ab_census_merge(&pool, &tensors[i]);
    }
    return ab_scale_advice_finish(advice, &pool, &ab_format_fp16, &one_in_a_thousand);
}

static void pooled_counts_hide_a_dying_tensor(void **state) {
    enum { BIG = 5000 };
    ab_census *tensors = calloc(3, sizeof *tensors);
    float *values = malloc(BIG * sizeof *values);
    const float small[2] = {0x1.8p-40f, 0x1.8p-41f}, zeros[4] = {0.0f, 0.0f, NAN, INFINITY};
    ab_scale_advice advice;
    (void)state;
    assert_non_null(tensors);
    assert_non_null(values);
    for (int i = 0; i < BIG; i++) values[i] = 1.5f;
    count(&tensors[0], zeros, 4);
    count(&tensors[1], values, BIG);
    count(&tensors[2], small, 2);
    assert_int_equal(advise(tensors, 3, &advice), AB_OK);
    assert_int_equal(advice.pooled.k_lo, -25);
    assert_int_equal(advice.every.k_lo, 16); /* 1.5 * 2^-41 * 2^16 is above 2^-25 */
    assert_int_equal(advice.every.k_hi, 15);
    assert_int_equal(advice.pooled.k_hi, 15);
    assert_int_equal(advice.low_tensor, 2);
    assert_int_equal(advice.high_tensor, 1);
    assert_false(advice.feasible);
    assert_int_equal(advise(tensors, 2, &advice), AB_OK);
    assert_true(advice.feasible);
    assert_int_equal(advice.k, 14);
    free(values);
    free(tensors);
}

static void nothing_to_scale_suits_every_scale(void **state) {
    ab_census empty;
    ab_scale_advice advice;
    (void)state;
    ab_census_clear(&empty);
    assert_int_equal(advise(&empty, 1, &advice), AB_OK);
    assert_true(advice.feasible && advice.every.vacuous && advice.pooled.vacuous);
    assert_int_equal(advice.low_tensor, -1);
    assert_int_equal(advice.high_tensor, -1);
    assert_int_equal(advise(NULL, 0, &advice), AB_OK);
    assert_true(advice.feasible);
}

static void formats_without_exact_counts_get_safe_advice(void **state) {
    const ab_format *format = NULL;
    float values[64];
    int k_lo = 0, k_hi = 0;
    (void)state;
    assert_int_equal(ab_format_find("e4m1", &format), AB_OK);
    for (int i = 0; i < 64; i++) values[i] = lognormal(2, (uint64_t)i, -3.0, 1.0);
    search(values, 64, format, &nothing_lost, &k_lo, &k_hi);
    ab_scale_range got = range_of(values, 64, format, &nothing_lost);
    assert_in_range(got.k_lo - k_lo + 1, 1, 2);
    assert_in_range(k_hi - got.k_hi + 1, 1, 2);
}

static void bad_goals_are_refused(void **state) {
    static const ab_scale_goal goals[] = {{0.001, 1.0, AB_FTZ_NONE, -127, 0},
                                          {0.001, 1.0, AB_FTZ_NONE, 0, 128},
                                          {0.001, 1.0, AB_FTZ_NONE, 2, 1}};
    ab_census census;
    ab_scale_range range;
    (void)state;
    ab_census_clear(&census);
    for (size_t i = 0; i < AB_COUNT_OF(goals); i++)
        assert_int_equal(ab_scale_range_of(&census, &ab_format_fp16, &goals[i], &range), AB_CONFIG);
}

/* Quantiles of the distributions themselves, put in as evenly spaced probabilities, come out again. */
static void quantiles_are_recovered(void **state) {
    enum { N = 20000 };
    static double gumbel[N];
    (void)state;
    for (int i = 0; i < N; i++) gumbel[i] = -7.0 - 1.5 * log(-log((i + 0.5) / N));
    double want = -7.0 - 1.5 * log(-log(1.0 - 1.0 / 2000.0));
    const ab_gumbel law = ab_gumbel_fit(gumbel, N);
    assert_true(fabs(ab_gumbel_quantile(&law, 1.0 / 2000.0) - want) < 0.01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_equal_an_exhaustive_search),
        cmocka_unit_test(limits_are_inclusive_on_one_side_only),
        cmocka_unit_test(one_in_a_thousand_may_be_flushed),
        cmocka_unit_test(energy_decides_when_it_is_asked),
        cmocka_unit_test(spans_wider_than_the_format_are_infeasible),
        cmocka_unit_test(ends_outside_the_search_are_told_apart),
        cmocka_unit_test(pooled_counts_hide_a_dying_tensor),
        cmocka_unit_test(nothing_to_scale_suits_every_scale),
        cmocka_unit_test(formats_without_exact_counts_get_safe_advice),
        cmocka_unit_test(bad_goals_are_refused),
        cmocka_unit_test(quantiles_are_recovered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
