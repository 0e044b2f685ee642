/* The vector exponential against libm in double over all magnitudes, and row maxima and sums against plain
 * loops: every CPU level gives the same bits. */
#include "oracle/op_run.h"

#include "kernels/core/elementary.h"
#include "kernels/core/subnormals.h"
#include "kernels/vec/vec_math.h"
#include "oracle/doubles.h"

enum { CHUNK = 1000 };

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double ulp_of(double y) {
    int exponent;
    frexp(y, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

/* Every 6,007th fp32 number: 715,000 of them, all exponents and both signs. */
static void exp_is_within_one_ulp_at_every_level(void **state) {
    (void)state;
    uint64_t bits = 0;
    double worst = 0.0;
    while (bits <= UINT32_MAX) {
        float x[CHUNK], y[CHUNK], same[CHUNK];
        for (int i = 0; i < CHUNK; i++, bits += 6007) x[i] = float_of((uint32_t)bits);
        ab_vec_math_get()->exp(y, x, NULL, CHUNK);
        for (int i = 0; i < CHUNK; i++) {
            double exact = exp((double)x[i]);
            if (isnan(x[i]))
                assert_true(isnan(y[i]));
            else if (exact >= 0x1.ffffffp127)
                assert_true(isinf(y[i]));
            else
                worst = fmax(worst, fabs((double)y[i] - exact) / ulp_of(exact));
        }
        for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++) {
            if (ab_isa_force((ab_isa)isa) != AB_OK) continue;
            ab_vec_math_get()->exp(same, x, NULL, CHUNK);
            for (int i = 0; i < CHUNK; i++)
                assert_true(isnan(y[i]) ? isnan(same[i]) : memcmp(&y[i], &same[i], sizeof y[i]) == 0);
        }
        assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
    }
    assert_true(worst < 1.0);
}

static float silu_slope(float x) { return ab_f_silu_slope(x); }
static float gelu_slope(float x) { return ab_f_gelu_slope(x); }
static float gelu_tanh_slope(float x) { return ab_f_gelu_tanh_slope(x); }

/* Every 60,013th fp32 number and specials, in rows of all lengths about a piece and a vector. */
static void functions_have_the_bits_of_their_formulas_at_every_level(void **state) {
    (void)state;
    enum { MOST = 131, FUNCTIONS = 9 };
    float x[MOST], one[MOST], y[MOST];
    float (*const formula[FUNCTIONS])(float) = {ab_expf,    ab_tanhf,   ab_f_sigmoid,
                                                ab_f_silu,  ab_f_gelu,  ab_f_gelu_tanh,
                                                silu_slope, gelu_slope, gelu_tanh_slope};
    for (int i = 0; i < MOST; i++) one[i] = 1.0f;
    for (int mode = 0; mode < (ab_subnormals_can_flush() ? 2 : 1); mode++)
        for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++) {
            uint64_t bits = 0;
            if (ab_isa_force((ab_isa)isa) != AB_OK) continue;
            ab_subnormals_set(mode ? AB_SUBNORMALS_FLUSHED : AB_SUBNORMALS_KEPT);
            const ab_vec_math *v = ab_vec_math_get();
            void (*const function[FUNCTIONS])(float *, const float *, const float *, int64_t) = {
                v->exp,           v->tanh,          v->sigmoid,           v->silu, v->gelu, v->gelu_tanh,
                v->silu_backward, v->gelu_backward, v->gelu_tanh_backward};
            for (int n = 1; bits <= UINT32_MAX; n = n % MOST + 1) {
                for (int i = 0; i < n; i++, bits += 60013) x[i] = float_of((uint32_t)bits);
                for (int f = 0; f < FUNCTIONS; f++) {
                    function[f](y, x, one, n);
                    for (int i = 0; i < n; i++) {
                        const float wanted = formula[f](x[i]) * one[i];
                        if (isnan(wanted) ? !isnan(y[i]) : ab_bits_of(wanted) != ab_bits_of(y[i]))
                            fail_msg("function %d of %a is %a, expected %a", f, (double)x[i], (double)y[i],
                                     (double)wanted);
                    }
                }
            }
            ab_subnormals_set(AB_SUBNORMALS_KEPT);
        }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

static void rows_are_summed_alike_at_every_level(void **state) {
    (void)state;
    static const int64_t sizes[] = {1, 3, 7, 8, 15, 16, 17, 31, 1023, 1024, 1029, 3333};
    static float x[3333], y[3333];
    for (int i = 0; i < 3333; i++) {
        x[i] = (float)oracle_random(1, i);
        y[i] = (float)oracle_random(2, i);
    }
    for (size_t k = 0; k < AB_COUNT_OF(sizes); k++) {
        double sum = 0.0, dot = 0.0, size = 0.0;
        float best = -INFINITY;
        for (int64_t i = 0; i < sizes[k]; i++) {
            sum += (double)x[i];
            dot += (double)x[i] * (double)y[i];
            size += fabs((double)x[i]);
            best = fmaxf(best, x[i]);
        }
        double first_sum = ab_vec_math_get()->row_sum(x, sizes[k]),
               first_dot = ab_vec_math_get()->row_dot(x, y, sizes[k]),
               first_wide = ab_vec_math_get()->row_sum_wide(x, sizes[k]);
        assert_true(fabs(first_wide - sum) <= 1e-12 * size);
        assert_true(fabs(first_sum - sum) <= 70.0 * ORACLE_U32 * size);
        assert_true(fabs(first_dot - dot) <= 70.0 * ORACLE_U32 * size);
        for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++) {
            if (ab_isa_force((ab_isa)isa) != AB_OK) continue;
            assert_true(ab_vec_math_get()->row_sum(x, sizes[k]) == first_sum);
            assert_true(ab_vec_math_get()->row_dot(x, y, sizes[k]) == first_dot);
            assert_true(ab_vec_math_get()->row_sum_wide(x, sizes[k]) == first_wide);
            assert_true(ab_vec_math_get()->row_max(x, sizes[k]) == best);
        }
        assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
    }
}

static void values_are_scaled_in_double_at_every_level(void **state) {
    (void)state;
    float x[37], scaled[37];
    for (int i = 0; i < 37; i++) x[i] = (float)oracle_random(1, i);
    for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++) {
        if (ab_isa_force((ab_isa)isa) != AB_OK) continue;
        ab_vec_math_get()->scale_wide(scaled, x, 1.0 / 3.0, 37);
        for (int i = 0; i < 37; i++) assert_true(scaled[i] == (float)((double)x[i] * (1.0 / 3.0)));
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_one_ulp_at_every_level),
        cmocka_unit_test(functions_have_the_bits_of_their_formulas_at_every_level),
        cmocka_unit_test(rows_are_summed_alike_at_every_level),
        cmocka_unit_test(values_are_scaled_in_double_at_every_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
