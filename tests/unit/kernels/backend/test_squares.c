/* Sums of squares against a plain loop over the values in the documented order, bit for bit at every CPU
 * level, and against a sum of exact squares; every finite value of the half formats. */
#include "kernels/backend/squares.h"
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

enum { MOST = 65536, LANES = 16 };

static double memory[MOST];
static float value[MOST];

static double expected(float factor, int64_t n, double *all) {
    double lane[LANES] = {0}, sum = 0;
    *all = 0;
    for (int64_t i = 0; i < n; i++) {
        const float scaled = value[i] * factor;
        lane[i % LANES] += (double)scaled * (double)scaled;
        *all += (double)scaled * (double)scaled;
    }
    for (int k = 0; k < LANES; k++) sum += lane[k];
    return sum;
}

static ab_tensor tensor_of(const ab_format *format, int64_t n) {
    return (ab_tensor){
        .data = memory, .shape = {1, {n}}, .format = format, .device = &ab_device_cpu, .id = -1};
}

static void check(const ab_format *format, float factor, int64_t n) {
    const ab_tensor tensor = tensor_of(format, n);
    double all;
    const double sum = expected(factor, n, &all);
    assert_true(fabs(sum - all) <= 1e-11 * all);
    for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best(); isa++) {
        assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
        if (ab_squares_of(&tensor, factor) != sum)
            fail_msg("%s, %lld values, level %s", format->name, (long long)n, ab_isa_name(ab_isa_get()));
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

static void every_finite_half_is_squared_once(void **state) {
    (void)state;
    static const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    for (int f = 0; f < 2; f++) {
        uint16_t *code = (uint16_t *)(void *)memory;
        int64_t n = 0;
        for (int i = 0; i < MOST; i++) {
            const double x = ab_format_decode(halves[f], (uint64_t)i);
            if (!isfinite(x)) continue;
            value[n] = (float)x;
            code[n++] = (uint16_t)i;
        }
        assert_int_equal(n, f == 0 ? 63488 : 65280);
        check(halves[f], 1.0f, n);
        check(halves[f], 0x1p-10f, n);
        check(halves[f], 0.3f, n);
    }
}

static void any_number_of_fp32_values_is_summed_in_one_order(void **state) {
    (void)state;
    static const int64_t counts[] = {0, 1, 15, 16, 17, 2047, 2048, 2049, 5000};
    float *stored = (float *)(void *)memory;
    for (int i = 0; i < 5000; i++) stored[i] = value[i] = ab_rng_normal(3, AB_RNG_SAMPLE, 0, (uint64_t)i);
    for (size_t c = 0; c < AB_COUNT_OF(counts); c++) check(&ab_format_fp32, 0.7f, counts[c]);
}

static void a_value_that_is_not_finite_shows(void **state) {
    (void)state;
    float *stored = (float *)(void *)memory;
    for (int i = 0; i < 40; i++) stored[i] = 1.0f;
    const ab_tensor tensor = tensor_of(&ab_format_fp32, 40);
    stored[33] = INFINITY;
    assert_true(isinf(ab_squares_of(&tensor, 0.5f)));
    stored[2] = NAN;
    assert_true(isnan(ab_squares_of(&tensor, 0.5f)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_finite_half_is_squared_once),
        cmocka_unit_test(any_number_of_fp32_values_is_summed_in_one_order),
        cmocka_unit_test(a_value_that_is_not_finite_shows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
