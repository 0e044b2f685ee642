/* Advice from a log: the fit to intervals finds the distribution that drew them, through nothing but which
 * step overflowed at which scale; what a log cannot tell is said. */
#include "reports/advise/advise_log.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

static const double limit = 65520;

/* A generator of its own: uniform numbers in (0, 1) (splitmix64), normal ones (Box and Muller). */
static uint64_t seed;

static double uniform(void) {
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
}

static double normal(void) { return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform()); }

typedef struct course {
    double middle, spread, drift; /* octaves; drift: over the run */
    int window;
    double first;
} course;

/* A scaler that halves at an overflow and doubles after `window` steps without one. */
static void draw(const course *c, ab_advise_step *step, int steps) {
    double scale = c->first;
    int clean = 0;
    for (int t = 0; t < steps; t++) {
        const double x = c->middle + c->drift * ((t + 0.5) / steps - 0.5) + c->spread * normal();
        const bool over = exp2(x) * scale >= limit;
        const double bound = log2(limit / scale);
        step[t] = (ab_advise_step){.low = over ? bound : -(double)INFINITY,
                                   .high = over ? (double)INFINITY : bound,
                                   .scale = scale,
                                   .overflowed = over};
        clean = over ? 0 : clean + 1;
        scale = over ? scale / 2 : clean == c->window ? 2 * scale : scale;
        clean = clean == c->window ? 0 : clean;
    }
}

static ab_advise_log advice_of(const course *c, int steps, double alpha) {
    ab_advise_step *step = malloc((size_t)steps * sizeof *step);
    ab_advise_log a;
    assert_non_null(step);
    draw(c, step, steps);
    assert_int_equal(ab_advise_log_make(step, steps, limit, alpha, 0, &a), AB_OK);
    free(step);
    return a;
}

static double tail(double x) { return erfc(x / sqrt(2)) / 2; }

/* Means over fifty logs: the estimates are unbiased within three standard errors, and a little. */
static void the_distribution_behind_the_overflows_is_found(void **state) {
    (void)state;
    static const course courses[] = {{-1, 1, 0, 20, 65536}, {3, 0.5, 0, 50, 65536}, {-6, 2, 0, 20, 0x1p20}};
    enum { LOGS = 50, STEPS = 2000 };
    for (size_t i = 0; i < AB_COUNT_OF(courses); i++) {
        const course *c = &courses[i];
        double middle = 0, spread = 0, squares = 0;
        seed = 7 + i;
        for (int k = 0; k < LOGS; k++) {
            const ab_advise_log a = advice_of(c, STEPS, 0.0005);
            assert_true(a.fitted && a.known);
            middle += a.middle / LOGS;
            spread += a.spread / LOGS;
            squares += (a.middle - c->middle) * (a.middle - c->middle) / LOGS;
        }
        const double error = sqrt(squares / LOGS);
        if (fabs(middle - c->middle) > 3 * error + 0.05 * c->spread ||
            fabs(spread - c->spread) > 0.1 * c->spread)
            fail_msg("course %zu: middle %g, expected %g +- %g; spread %g, expected %g", i, middle, c->middle,
                     error, spread, c->spread);
    }
}

/* At the advised scale the true share of overflows is near what is allowed: within a factor in the median,
 * and the next power of two is beyond it. */
static void the_advised_scale_overflows_as_often_as_allowed(void **state) {
    (void)state;
    const course c = {-1, 1, 0, 20, 65536};
    enum { LOGS = 40, STEPS = 4000 };
    const double alpha = 0.01;
    int low = 0, high = 0;
    seed = 99;
    for (int k = 0; k < LOGS; k++) {
        const ab_advise_log a = advice_of(&c, STEPS, alpha);
        const double truth = tail(log2(limit) - a.k_hi - c.middle),
                     next = tail(log2(limit) - a.k_hi - 1 - c.middle);
        low += truth <= 2 * alpha;
        high += next >= alpha / 2;
        assert_true(a.share <= alpha);
    }
    assert_true(low >= 0.95 * LOGS);
    assert_true(high >= 0.95 * LOGS);
}

static void a_drift_is_found(void **state) {
    (void)state;
    const course c = {0, 0.7, 4, 20, 65536};
    double drift = 0;
    seed = 5;
    for (int k = 0; k < 20; k++) drift += advice_of(&c, 4000, 0.0005).drift / 20;
    if (fabs(drift - 1) > 0.1) fail_msg("%g octaves per 1000 steps, expected 1", drift);
}

static void shares_of_the_fit_are_those_of_the_steps(void **state) {
    (void)state;
    const course c = {-1, 1, 0, 20, 65536};
    seed = 3;
    const ab_advise_log a = advice_of(&c, 20000, 0.0005);
    int64_t steps = 0, overflows = 0;
    double expected = 0;
    for (int i = 0; i < a.scales; i++) {
        const ab_advise_scale *s = &a.scale[i];
        steps += s->steps;
        overflows += s->overflows;
        expected += s->expected * (double)s->steps;
        assert_true(s->share_low <= s->share_high);
        assert_true(i == 0 || s->scale > a.scale[i - 1].scale);
    }
    assert_int_equal(steps, 20000);
    assert_int_equal(overflows, a.overflows);
    if (fabs(expected - (double)overflows) > 3 * sqrt((double)overflows))
        fail_msg("%g overflows by the fit, %g in the log", expected, (double)overflows);
}

static void a_log_without_an_overflow_has_a_bound_alone(void **state) {
    (void)state;
    const course c = {-20, 1, 0, 100000, 1024};
    seed = 1;
    ab_advise_log a = advice_of(&c, 300, 0.0005);
    assert_false(a.fitted);
    assert_false(a.known); /* 3 / 300 is more than allowed */
    assert_int_equal(a.k_hi, 10);
    assert_true(fabs(a.share - 0.01) < 1e-12);
    a = advice_of(&c, 10000, 0.0005);
    assert_true(a.known);
}

static void a_log_of_overflows_alone_is_refused(void **state) {
    (void)state;
    ab_advise_step step[5];
    ab_advise_log a;
    for (int i = 0; i < 5; i++) step[i] = (ab_advise_step){10, (double)INFINITY, 64, true};
    assert_int_equal(ab_advise_log_make(step, 5, limit, 0.01, 0, &a), AB_INPUT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_distribution_behind_the_overflows_is_found),
        cmocka_unit_test(the_advised_scale_overflows_as_often_as_allowed),
        cmocka_unit_test(a_drift_is_found),
        cmocka_unit_test(shares_of_the_fit_are_those_of_the_steps),
        cmocka_unit_test(a_log_without_an_overflow_has_a_bound_alone),
        cmocka_unit_test(a_log_of_overflows_alone_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
