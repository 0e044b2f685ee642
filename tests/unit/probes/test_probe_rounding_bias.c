/* The rounding-bias probe on rounding whose bias is known: to nearest, toward zero, upwards, stochastic. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include "kernels/format/convert.h"

#include <math.h>

enum { N = 40000 };

static const ab_probe_kind *bias(void) { return pt_probe("rounding_bias"); }

/* ---- stored weights -------------------------------------------------------------------------- */

/* What the probe says of weights before + update that were stored with `rounding`. `spread`: exponents;
 * `sign`: of the weights, 0 for both; `grid`: multiples of 2^-grid spacings, 0 for any. */
static cJSON *weights_rounded(const ab_format *format, ab_round_mode mode, int spread, int sign, int grid) {
    static float before[N], stored[N];
    static double update[N];
    const ab_probe_param about = {"w", "layer", N, 0, format, format};
    const ab_probe_setup setup = {.threads = 2, .half = &ab_format_fp16, .param = &about, .params = 1};
    void *probe = NULL;
    assert_int_equal(bias()->create(&setup, &probe), AB_OK);
    for (uint64_t i = 0; i < N; i++) {
        double u = (double)ab_rng_uniform(3, AB_RNG_SAMPLE, 0, i);
        double exact = 1 + u;
        if (grid)
            exact =
                1 + ldexp(floor(u * ldexp(1, format->precision - 1 + grid)), 1 - format->precision - grid);
        exact = ldexp(exact, spread ? (int)(i % (uint64_t)spread) - spread / 2 : 0);
        if (sign < 0 || (sign == 0 && i % 2)) exact = -exact;
        ab_rounding rounding = {.mode = mode, .random_bits = 32};
        rounding.random = ab_rng_at(3, AB_RNG_ROUNDING, 1, i).word[0];
        before[i] = (float)ldexp(trunc(exact), -1);
        update[i] = exact - (double)before[i];
        stored[i] = (float)ab_format_round(format, &rounding, exact);
    }
    for (int64_t first = 0; first < N; first += AB_UPDATE_BLOCK) {
        const ab_update_block block = {.thread = (int)(first / AB_UPDATE_BLOCK % 2),
                                       .first = first,
                                       .n = N - first < AB_UPDATE_BLOCK ? N - first : AB_UPDATE_BLOCK,
                                       .taken = 1,
                                       .before = before + first,
                                       .after = stored + first,
                                       .stored = stored + first,
                                       .grad = before + first,
                                       .update = update + first};
        bias()->update(probe, &block);
    }
    bias()->step_end(probe, 0);
    cJSON *report = pt_report(bias()->report, probe);
    bias()->destroy(probe);
    return report;
}

static const cJSON *only(const cJSON *report) {
    const cJSON *list = pt_get(report, "rounding_bias");
    assert_int_equal(cJSON_GetArraySize(list), 1);
    assert_int_equal(pt_integer(cJSON_GetArrayItem(list, 0), "rounded"), N);
    return cJSON_GetArrayItem(list, 0);
}

static void about(double found, double expected, double slack) {
    if (!(fabs(found - expected) <= slack))
        fail_msg("found %.6f, expected %.6f +- %.6f", found, expected, slack);
}

static void truncation_pulls_down_by_half_a_unit(void **state) {
    (void)state;
    const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16};
    for (size_t i = 0; i < AB_COUNT_OF(formats); i++) {
        cJSON *report = weights_rounded(formats[i], AB_ROUND_TOWARD_ZERO, 8, 0, 0);
        const cJSON *w = only(report);
        about(pt_number(w, "mean_outward_ulp"), -0.5, 0.005);
        about(pt_number(w, "mean_ulp"), 0, 0.01); /* both signs: no drift */
        assert_true(pt_number(w, "z_outward") < -300);
        assert_string_equal(pt_text(w, "format"), formats[i]->name);
        cJSON_Delete(report);
        report = weights_rounded(formats[i], AB_ROUND_TOWARD_ZERO, 8, -1, 0);
        about(pt_number(only(report), "mean_ulp"), 0.5, 0.005); /* negative weights drift up */
        cJSON_Delete(report);
    }
}

static void rounding_up_pushes_by_half_a_unit(void **state) {
    (void)state;
    cJSON *report = weights_rounded(&ab_format_bf16, AB_ROUND_UP, 8, 0, 0);
    about(pt_number(only(report), "mean_ulp"), 0.5, 0.005);
    assert_true(pt_number(only(report), "z") > 300);
    cJSON_Delete(report);
}

static void nearest_and_stochastic_rounding_have_no_bias(void **state) {
    (void)state;
    static const struct {
        ab_round_mode mode;
        double deviation; /* of one error: 1 / sqrt 12 to nearest, 1 / sqrt 6 stochastic */
    } cases[] = {{AB_ROUND_NEAREST_EVEN, 0.288675}, {AB_ROUND_STOCHASTIC, 0.408248}};
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        cJSON *report = weights_rounded(&ab_format_fp16, cases[i].mode, 8, 0, 0);
        const cJSON *w = only(report);
        assert_true(fabs(pt_number(w, "z")) < 4 && fabs(pt_number(w, "z_outward")) < 4);
        double deviation = pt_number(w, "mean_ulp") / pt_number(w, "z") * sqrt(N);
        about(deviation, cases[i].deviation, 0.01);
        cJSON_Delete(report);
    }
}

/* Quarters of a spacing: a fourth of all values are ties. To even they cancel; away from zero they push
 * outwards by an eighth. */
static void ties_cancel_to_even_and_not_away(void **state) {
    (void)state;
    cJSON *even = weights_rounded(&ab_format_bf16, AB_ROUND_NEAREST_EVEN, 0, 1, 2);
    about(pt_number(only(even), "mean_outward_ulp"), 0, 0.01);
    assert_true(fabs(pt_number(only(even), "z_outward")) < 4);
    cJSON *away = weights_rounded(&ab_format_bf16, AB_ROUND_NEAREST_AWAY, 0, 1, 2);
    about(pt_number(only(away), "mean_outward_ulp"), 0.125, 0.01);
    assert_true(pt_number(only(away), "z_outward") > 20);
    cJSON_Delete(even);
    cJSON_Delete(away);
}

/* ---- casts ----------------------------------------------------------------------------------- */

/* Small known errors, in units of 2^-10: fp16 between 1 and 2. */
static void errors_are_in_units_of_the_last_place(void **state) {
    (void)state;
    const ab_probe_tensor tensors[] = {{"a.out", "a", AB_ROLE_ACTIVATION, true},
                                       {"b.out", "b", AB_ROLE_ACTIVATION, false}};
    const ab_probe_setup setup = {.tensor = tensors, .tensors = 2, .threads = 1, .half = &ab_format_fp16};
    void *probe = NULL;
    assert_int_equal(bias()->create(&setup, &probe), AB_OK);
    /* rounds up by 1/4, down by 1/4, up by 1/4, exact, exact, and by nothing at all: zero, inf, nan,
     * overflow, then a value that is flushed: 2^-26 is a quarter of the smallest subnormal */
    const float values[] = {1 + 0.75f * 0x1p-10f,
                            1 + 0.25f * 0x1p-10f,
                            -1 - 0.25f * 0x1p-10f,
                            1.5f,
                            -2.0f,
                            0.0f,
                            INFINITY,
                            NAN,
                            70000.0f,
                            0x1p-26f};
    bias()->see(probe, 0, 0, values, (int64_t)AB_COUNT_OF(values));
    bias()->see(probe, 1, 0, values, (int64_t)AB_COUNT_OF(values)); /* not cast */
    bias()->step_end(probe, 0);
    cJSON *report = pt_report(bias()->report, probe);
    const cJSON *list = pt_get(report, "rounding_bias");
    assert_int_equal(cJSON_GetArraySize(list), 1);
    const cJSON *a = cJSON_GetArrayItem(list, 0);
    assert_string_equal(pt_text(a, "name"), "a.out");
    assert_string_equal(pt_text(a, "kind"), "activation");
    assert_int_equal(pt_integer(a, "rounded"), 6);
    double errors[] = {0.25, -0.25, 0.25, 0, 0, -0.25}, outward[] = {0.25, -0.25, -0.25, 0, 0, -0.25};
    double mean = 0, mean_outward = 0, square = 0;
    for (int i = 0; i < 6; i++) {
        mean += errors[i] / 6;
        mean_outward += outward[i] / 6;
        square += errors[i] * errors[i] / 6;
    }
    about(pt_number(a, "mean_ulp"), mean, 1e-9);
    about(pt_number(a, "mean_outward_ulp"), mean_outward, 1e-9);
    about(pt_number(a, "z"), mean * sqrt(6 / (square - mean * mean)), 1e-6);
    cJSON_Delete(report);
    bias()->destroy(probe);
}

static void exact_casts_have_no_score(void **state) {
    (void)state;
    const ab_probe_tensor tensor = {"a.out", "a", AB_ROLE_ACTIVATION, true};
    const ab_probe_setup setup = {.tensor = &tensor, .tensors = 1, .threads = 1, .half = &ab_format_bf16};
    void *probe = NULL;
    assert_int_equal(bias()->create(&setup, &probe), AB_OK);
    const float values[] = {1, 2, 3};
    bias()->see(probe, 0, 0, values, 3);
    bias()->step_end(probe, 0);
    cJSON *report = pt_report(bias()->report, probe);
    const cJSON *a = cJSON_GetArrayItem(pt_get(report, "rounding_bias"), 0);
    assert_true(pt_number(a, "mean_ulp") == 0);
    assert_true(pt_is_null(a, "z"));
    cJSON_Delete(report);
    bias()->destroy(probe);
}

/* Training rounds to nearest: nothing in a cell is biased. */
static void a_cell_has_no_bias(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O3", &ab_format_bf16, "momentum", NULL);
    ab_cell *cell = pt_cell(&config);
    pt_probing *p = calloc(1, sizeof *p);
    int index = -1, weights = 0;
    assert_non_null(p);
    assert_int_equal(ab_probe_find("rounding_bias", &index), AB_OK);
    pt_start(p, (uint64_t)1 << index, cell, &config, &ab_format_bf16);
    for (int i = 0; i < 10; i++) pt_step(p, cell);
    cJSON *report = pt_set_report(p);
    const cJSON *item = NULL, *list = pt_get(report, "rounding_bias");
    assert_true(cJSON_GetArraySize(list) > 16);
    cJSON_ArrayForEach(item, list) {
        weights += strcmp(pt_text(item, "kind"), "weight") == 0;
        if (pt_integer(item, "rounded") < 300 || pt_is_null(item, "z")) continue;
        assert_true(fabs(pt_number(item, "mean_ulp")) < 0.1);
        assert_true(fabs(pt_number(item, "z")) < 6);
    }
    assert_int_equal(weights, 8);
    cJSON_Delete(report);
    ab_probe_set_destroy(p->set);
    free(p);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(truncation_pulls_down_by_half_a_unit),
        cmocka_unit_test(rounding_up_pushes_by_half_a_unit),
        cmocka_unit_test(nearest_and_stochastic_rounding_have_no_bias),
        cmocka_unit_test(ties_cancel_to_even_and_not_away),
        cmocka_unit_test(errors_are_in_units_of_the_last_place),
        cmocka_unit_test(exact_casts_have_no_score),
        cmocka_unit_test(a_cell_has_no_bias),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
