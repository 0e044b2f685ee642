/* Laws of largest values against SciPy's fits (scripts/peer_extremes.py) and closed forms; which law is
 * chosen, on planted samples. */
#include "reports/advise/extremes.h"
#include "support/json_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 256 };

static cJSON *scipy;

static int load(void **state) {
    (void)state;
    scipy = ab_test_read_json(AB_SOURCE_DIR "/tests/fixtures/extremes_scipy.json");
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

static double pair(const cJSON *object, const char *key, int i) {
    return cJSON_GetArrayItem(cJSON_GetObjectItem(object, key), i)->valuedouble;
}

static int sample(const cJSON *object, const char *key, double *value, bool *censored) {
    int n = 0, m = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(object, key)) value[n++] = item->valuedouble;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(object, "censored")) censored[m++] = cJSON_IsTrue(item);
    assert_true(n == m && n > 0 && n <= MOST);
    return n;
}

static void close_to(double found, double expected, double within, const char *what) {
    if (!(fabs(found - expected) <= within * (1 + fabs(expected))))
        fail_msg("%s: expected %.12g, found %.12g", what, expected, found);
}

static void normal_and_gumbel_fits_are_scipys(void **state) {
    (void)state;
    const cJSON *item;
    double value[MOST];
    bool censored[MOST];
    int with_censoring = 0;
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "values")) {
        const int n = sample(item, "value", value, censored);
        bool any = false;
        for (int i = 0; i < n; i++) any = any || censored[i];
        with_censoring += any;
        const ab_normal_law normal = ab_normal_fit(value, censored, n);
        close_to(normal.mu, pair(item, "normal", 0), 1e-7, "mu of the normal law");
        close_to(normal.sigma, pair(item, "normal", 1), 1e-7, "sigma of the normal law");
        close_to(ab_normal_exceeds(&normal, number(item, "x")), number(item, "normal_exceeds"), 1e-7,
                 "P(X > x)");
        const ab_gumbel gumbel = ab_gumbel_fit_censored(value, censored, n);
        const char *how = any ? "gumbel_ml" : "gumbel_moments";
        close_to(gumbel.mu, pair(item, how, 0), any ? 1e-6 : 1e-12, "mu of the Gumbel law");
        close_to(gumbel.beta, pair(item, how, 1), any ? 1e-6 : 1e-12, "beta of the Gumbel law");
        if (any)
            close_to(ab_gumbel_exceeds(&gumbel, number(item, "x")), number(item, "gumbel_exceeds"), 1e-6,
                     "P(X > x)");
    }
    assert_true(with_censoring >= 3);
}

static void pareto_fits_are_scipys(void **state) {
    (void)state;
    const cJSON *item;
    double excess[MOST];
    bool censored[MOST];
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(scipy, "peaks")) {
        const int n = sample(item, "excess", excess, censored);
        const ab_pareto_law law = ab_pareto_fit(excess, censored, n);
        close_to(law.shape, number(item, "shape"), 1e-5, "shape");
        close_to(law.scale, number(item, "scale"), 1e-5, "scale");
        close_to(ab_pareto_exceeds(&law, number(item, "x")), number(item, "exceeds"), 1e-5, "P(Y > y)");
    }
}

/* P(Y > y) of shape 1/2 and scale 1 is (1 + y/2)^-2, of shape -1/2 (1 - y/2)^2, of shape 0 e^-y. */
static void tails_have_their_closed_forms(void **state) {
    (void)state;
    const ab_pareto_law heavy = {1, 0.5}, bounded = {1, -0.5}, light = {1, 0};
    close_to(ab_pareto_exceeds(&heavy, 2), 0.25, 1e-15, "heavy");
    close_to(ab_pareto_exceeds(&bounded, 1), 0.25, 1e-15, "bounded");
    assert_true(ab_pareto_exceeds(&bounded, 2.5) == 0);
    close_to(ab_pareto_exceeds(&light, 3), exp(-3), 1e-15, "light");
    const ab_gumbel gumbel = {1, 2};
    close_to(ab_gumbel_exceeds(&gumbel, ab_gumbel_quantile(&gumbel, 1e-3)), 1e-3, 1e-12, "Gumbel");
    const ab_normal_law normal = {0, 1};
    close_to(ab_normal_exceeds(&normal, 3.0902323061678132), 1e-3, 1e-12, "normal");
}

/* n values at the (i - 1/2)/n quantiles of a law: no luck in it. */
static ab_extremes of_quantiles(double (*quantile)(double), double *value, int n) {
    ab_extremes e;
    for (int i = 0; i < n; i++) value[i] = quantile((i + 0.5) / n);
    ab_extremes_fit(value, NULL, n, &e);
    return e;
}

static double gumbel_quantile(double p) { return 3 - 0.4 * log(-log(p)); }
static double heavy_quantile(double p) { return (pow(1 - p, -0.8) - 1) / 0.8; }
static double logistic_free_normal(double p) { /* inverse of the normal law by bisection */
    double low = -9, high = 9;
    for (int i = 0; i < 80; i++) {
        const double middle = (low + high) / 2;
        if (erfc(-middle / sqrt(2)) / 2 < p)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static void the_law_that_made_the_sample_is_chosen(void **state) {
    (void)state;
    double value[MOST];
    ab_extremes e = of_quantiles(gumbel_quantile, value, 120);
    assert_int_equal(e.chosen, AB_EXTREME_GUMBEL);
    e = of_quantiles(logistic_free_normal, value, 120);
    assert_int_equal(e.chosen, AB_EXTREME_NORMAL);
    e = of_quantiles(heavy_quantile, value, 200);
    assert_int_equal(e.chosen, AB_EXTREME_PARETO);
    assert_true(e.pareto.shape > 0.5 && e.pareto.shape < 1.1);
    assert_int_equal(e.peaks, 40);
    /* beyond the values 2.5 octaves of a heavy tail weigh more than the Gumbel law has */
    assert_true(ab_extremes_exceeds(&e, AB_EXTREME_PARETO, value[199] * 3) >
                100 * ab_extremes_exceeds(&e, AB_EXTREME_GUMBEL, value[199] * 3));
}

/* Below the threshold the Pareto law counts, above it falls from that count; every law falls from 1 to 0. */
static void exceedance_falls_without_a_jump(void **state) {
    (void)state;
    double value[MOST];
    const ab_extremes e = of_quantiles(gumbel_quantile, value, 100);
    assert_true(ab_extremes_exceeds(&e, AB_EXTREME_PARETO, value[49]) == 0.5);
    close_to(ab_extremes_exceeds(&e, AB_EXTREME_PARETO, e.threshold), 0.2, 1e-12, "at the threshold");
    for (int kind = 0; kind < AB_EXTREME_KINDS; kind++) {
        double before = 1;
        for (double x = 0; x < 20; x += 0.05) {
            const double p = ab_extremes_exceeds(&e, (ab_extreme_kind)kind, x);
            assert_true(p <= before && p >= 0);
            before = p;
        }
    }
}

static void equal_values_need_no_law(void **state) {
    (void)state;
    double value[4] = {1.5, 1.5, 1.5, 1.5};
    ab_extremes e;
    ab_extremes_fit(value, NULL, 4, &e);
    assert_true(e.spread == 0);
    assert_true(ab_extremes_exceeds(&e, e.chosen, 1.49) == 1 && ab_extremes_exceeds(&e, e.chosen, 1.5) == 0);
}

/* A step that overflowed says "at least this": leaving that out makes the tail look lighter than it is. */
static void censored_values_widen_the_law(void **state) {
    (void)state;
    double value[MOST], same[MOST];
    bool censored[MOST];
    ab_extremes plain, knowing;
    for (int i = 0; i < 100; i++) {
        value[i] = fmin(gumbel_quantile((i + 0.5) / 100), 4);
        same[i] = value[i];
        censored[i] = value[i] == 4;
    }
    ab_extremes_fit(same, NULL, 100, &plain);
    ab_extremes_fit(value, censored, 100, &knowing);
    assert_true(knowing.censored == 8);
    assert_true(knowing.gumbel.beta > plain.gumbel.beta);
    assert_true(fabs(knowing.gumbel.beta - 0.4) < 0.02 && fabs(knowing.gumbel.mu - 3) < 0.02);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(normal_and_gumbel_fits_are_scipys),
        cmocka_unit_test(pareto_fits_are_scipys),
        cmocka_unit_test(tails_have_their_closed_forms),
        cmocka_unit_test(the_law_that_made_the_sample_is_chosen),
        cmocka_unit_test(exceedance_falls_without_a_jump),
        cmocka_unit_test(equal_values_need_no_law),
        cmocka_unit_test(censored_values_widen_the_law),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
