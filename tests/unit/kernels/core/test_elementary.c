/* The elementary functions of elementary.h and elementary64.h: errors against libm in double and in long
 * double, special values as C11 Annex F has them, and the same bits from every compiler, level of
 * optimisation and instruction set. */
#include "oracle/op_run.h"

#include "kernels/core/elementary.h"
#include "kernels/core/elementary64.h"
#include "kernels/core/rng.h"
#include "support/elementary_bits.h"

#include <float.h>

/* ---- fp32 ------------------------------------------------------------------------------------ */

static double sigmoid_exact(double x) { return x >= 0 ? 1 / (1 + exp(-x)) : exp(x) / (1 + exp(x)); }

/* bound: in units in the last place */
static const struct {
    const char *name;
    float (*f)(float);
    double (*exact)(double);
    double bound;
} functions[] = {{"ab_expf", ab_expf, exp, 0.99},
                 {"ab_logf", ab_logf, log, 0.85},
                 {"ab_log1pf", ab_log1pf, log1p, 0.86},
                 {"ab_tanhf", ab_tanhf, tanh, 1.34},
                 {"ab_f_sigmoid", ab_f_sigmoid, sigmoid_exact, 2.41}};

static double ulp_of(double y) {
    int exponent;
    frexp(y, &exponent);
    return ldexp(1.0, (exponent < -125 ? -125 : exponent) - 24);
}

/* Every 3,989th fp32 number, a million of them: all exponents, both signs, NaNs. */
static void fp32_functions_keep_their_bounds(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(functions); k++)
        for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 3989) {
            const float x = ab_float_of((uint32_t)bits), y = functions[k].f(x);
            const double exact = functions[k].exact((double)x);
            if (isnan(exact) || isinf((float)exact)) {
                const float limit = (float)exact;
                if (isnan(exact) ? !isnan(y) : y != limit)
                    fail_msg("%s(%a) is %a", functions[k].name, (double)x, (double)y);
                continue;
            }
            const double error = fabs((double)y - exact) / ulp_of(exact);
            if (!(error <= functions[k].bound))
                fail_msg("%s(%a) is %a, off by %.3f", functions[k].name, (double)x, (double)y, error);
        }
}

static void expect_float(const char *what, float found, float expected) {
    const bool same = isnan(expected) ? isnan(found) : ab_bits_of(found) == ab_bits_of(expected);
    if (!same) fail_msg("%s is %a, expected %a", what, (double)found, (double)expected);
}

static void fp32_functions_have_annex_fs_special_values(void **state) {
    (void)state;
    const float inf = INFINITY, tiny = 0x1p-149f;
    expect_float("exp(+0)", ab_expf(0.0f), 1.0f);
    expect_float("exp(-0)", ab_expf(-0.0f), 1.0f);
    expect_float("exp(-inf)", ab_expf(-inf), 0.0f);
    expect_float("exp(inf)", ab_expf(inf), inf);
    expect_float("exp(nan)", ab_expf(NAN), NAN);
    expect_float("exp(-103)", ab_expf(-103.0f), tiny);
    expect_float("log(+0)", ab_logf(0.0f), -inf);
    expect_float("log(-0)", ab_logf(-0.0f), -inf);
    expect_float("log(1)", ab_logf(1.0f), 0.0f);
    expect_float("log(-1)", ab_logf(-1.0f), NAN);
    expect_float("log(-tiny)", ab_logf(-tiny), NAN);
    expect_float("log(-inf)", ab_logf(-inf), NAN);
    expect_float("log(inf)", ab_logf(inf), inf);
    expect_float("log(nan)", ab_logf(NAN), NAN);
    expect_float("log(tiny)", ab_logf(tiny), (float)log(0x1p-149));
    expect_float("log1p(+0)", ab_log1pf(0.0f), 0.0f);
    expect_float("log1p(-0)", ab_log1pf(-0.0f), -0.0f);
    expect_float("log1p(-tiny)", ab_log1pf(-tiny), -tiny);
    expect_float("log1p(-1)", ab_log1pf(-1.0f), -inf);
    expect_float("log1p(-2)", ab_log1pf(-2.0f), NAN);
    expect_float("log1p(inf)", ab_log1pf(inf), inf);
    expect_float("log1p(nan)", ab_log1pf(NAN), NAN);
    expect_float("tanh(+0)", ab_tanhf(0.0f), 0.0f);
    expect_float("tanh(-0)", ab_tanhf(-0.0f), -0.0f);
    expect_float("tanh(-tiny)", ab_tanhf(-tiny), -tiny);
    expect_float("tanh(inf)", ab_tanhf(inf), 1.0f);
    expect_float("tanh(-inf)", ab_tanhf(-inf), -1.0f);
    expect_float("tanh(nan)", ab_tanhf(NAN), NAN);
    expect_float("sigmoid(-0)", ab_f_sigmoid(-0.0f), 0.5f);
    expect_float("sigmoid(inf)", ab_f_sigmoid(inf), 1.0f);
    expect_float("sigmoid(-inf)", ab_f_sigmoid(-inf), 0.0f);
    expect_float("sigmoid(nan)", ab_f_sigmoid(NAN), NAN);
}

/* ---- fp64 ------------------------------------------------------------------------------------ */

enum { SAMPLES = 200000 };

static double unit(uint64_t seed, int i) { return (oracle_random(seed, i) + 1) / 2; }

/* Where long double is no wider than double its own error is counted, too. */
static void expect_near(const char *name, double x, double y, double found, long double exact, double bound) {
    int exponent;
    if (!isfinite((double)exact) && found == (double)exact) return;
    frexpl(exact, &exponent);
    const long double ulp = ldexpl(1.0L, (exponent < -1021 ? -1021 : exponent) - 53);
    const double error = (double)(fabsl((long double)found - exact) / ulp);
    if (!(error <= bound + (LDBL_MANT_DIG >= 64 ? 0 : 1)))
        fail_msg("%s(%a, %a) is %a, off by %.3f", name, x, y, found, error);
}

static double any_positive(uint64_t seed, int i) {
    return ldexp(1 + unit(seed, i), (int)(unit(seed + 1, i) * 2040) - 1020);
}

static void fp64_functions_keep_their_bounds(void **state) {
    (void)state;
    const long double pi = 3.14159265358979323846264338327950288L;
    for (int i = 0; i < SAMPLES; i++) {
        const double e = (unit(1, i) * 2 - 1) * (i % 2 ? 1 : 700),
                     l = i % 2 ? any_positive(2, i) : 0.5 + 1.5 * unit(4, i);
        expect_near("exp", e, 0, ab_exp(e), expl((long double)e), 0.65);
        expect_near("log", l, 0, ab_log(l), logl((long double)l), 0.95);
        const double c =
            0.5 * unit(5, i); /* elsewhere cos repeats itself; near 1/2 the reference is 1/2 - c from it */
        const long double cosine = c > 0.4 ? sinl(pi * (0.5L - (long double)c)) : cosl(pi * (long double)c);
        expect_near("cospi", c, 0, ab_cospi(c), cosine, 0.90);
        const double base = 0.9 + 0.1 * unit(6, i), steps = floor(unit(7, i) * 5000);
        const double x = any_positive(8, i), y = (unit(10, i) * 2 - 1) * 690 / (fabs(log(x)) + 1e-3);
        expect_near("pow", base, steps, ab_pow(base, steps), powl((long double)base, (long double)steps),
                    0.70);
        expect_near("pow", x, y, ab_pow(x, y), powl((long double)x, (long double)y), 0.70);
    }
}

static void cospi_repeats_itself_and_is_exact_at_halves(void **state) {
    (void)state;
    for (int n = -8; n <= 8; n++) {
        assert_true(ab_cospi(n) == (n % 2 ? -1.0 : 1.0));
        assert_true(ab_cospi(n + 0.5) == 0.0);
        for (int i = 0; i < 1000; i++) {
            const double c = (double)(int)(unit(20, i) * 65536) * 0x1p-17;
            assert_true(ab_cospi(2 * n + c) == ab_cospi(c));
            assert_true(ab_cospi(2 * n - c) == ab_cospi(c));
            assert_true(ab_cospi(2 * n + 1 - c) == -ab_cospi(c));
        }
    }
    assert_true(ab_cospi(0x1.8p60) == 1.0);
    assert_true(isnan(ab_cospi((double)INFINITY)) && isnan(ab_cospi((double)NAN)));
}

/* Annex F's pow is libm's: all pairs of values that are special to it. */
static void pow_has_annex_fs_special_values(void **state) {
    (void)state;
    const double inf = (double)INFINITY;
    const double value[] = {0.0,      -0.0,       1.0,    -1.0,   inf,  -inf,      (double)NAN, 2.0,
                            -2.0,     3.0,        -3.0,   0.5,    -0.5, 0x1p-1074, -0x1p-1074,  DBL_MAX,
                            -DBL_MAX, 0x1p53 + 2, -1e300, 1e-300, 1e9,  1.5};
    for (size_t i = 0; i < AB_COUNT_OF(value); i++)
        for (size_t k = 0; k < AB_COUNT_OF(value); k++) {
            const double found = ab_pow(value[i], value[k]), expected = pow(value[i], value[k]);
            const bool same = isnan(expected) ? isnan(found)
                              : expected == 0.0 || isinf(expected)
                                  ? ab_bits64_of(found) == ab_bits64_of(expected)
                                  : fabs(found / expected - 1) < 1e-15;
            if (!same) fail_msg("pow(%a, %a) is %a, expected %a", value[i], value[k], found, expected);
        }
}

static void exp_and_log_have_annex_fs_special_values(void **state) {
    (void)state;
    const double inf = (double)INFINITY;
    assert_true(ab_exp(0.0) == 1.0 && ab_exp(-0.0) == 1.0 && ab_exp(inf) == inf);
    assert_true(ab_exp(-inf) == 0.0 && ab_exp(710.0) == inf && ab_exp(-746.0) == 0.0);
    assert_true(ab_exp(-745.0) == 0x1p-1074 && isnan(ab_exp((double)NAN)));
    assert_true(ab_log(0.0) == -inf && ab_log(-0.0) == -inf && ab_log(inf) == inf);
    assert_true(ab_log(1.0) == 0.0 && !signbit(ab_log(1.0)));
    assert_true(isnan(ab_log(-1.0)) && isnan(ab_log(-inf)) && isnan(ab_log((double)NAN)));
    assert_true(ab_log(0x1p-1074) == log(0x1p-1074));
}

/* ---- bits ------------------------------------------------------------------------------------ */

/* What all of them must be, in the order of elementary_bits.c. They change only where a formula is changed on
 * purpose. */
static const uint64_t expected_sum[ELEMENTARY_FUNCTIONS] = {
    UINT64_C(0xfcb5bc98da10fa0b), /* ab_expf */
    UINT64_C(0xb9a9be685b8fea2a), /* ab_logf */
    UINT64_C(0x79ab12b2508294fd), /* ab_log1pf */
    UINT64_C(0x0b9d322f3b3dd8c5), /* ab_tanhf */
    UINT64_C(0x963c58196c8faf95), /* ab_f_sigmoid */
    UINT64_C(0x521dced1867ed5e7), /* ab_f_silu_slope */
    UINT64_C(0x74aa7f12ea18b0ef), /* ab_f_gelu */
    UINT64_C(0x0769ce74daa2675e), /* ab_f_gelu_slope */
    UINT64_C(0x5c0dd79bd6d04d1d), /* ab_f_gelu_tanh */
    UINT64_C(0x52dedeb463c41298), /* ab_f_gelu_tanh_slope */
    UINT64_C(0x279553eb2d3d9c99), /* ab_exp */
    UINT64_C(0x69ac7f5bea0d71e2), /* ab_log */
    UINT64_C(0x65c07b26cd49043f), /* ab_cospi */
    UINT64_C(0x372c7bfb7975dcf9), /* ab_pow */
};

static void expect_bits(const char *build, elementary_build *make) {
    elementary_bits row[ELEMENTARY_FUNCTIONS];
    make(row);
    for (int i = 0; i < ELEMENTARY_FUNCTIONS; i++)
        if (row[i].sum != expected_sum[i])
            fail_msg("%s built with %s: checksum 0x%016llx, expected 0x%016llx", row[i].name, build,
                     (unsigned long long)row[i].sum, (unsigned long long)expected_sum[i]);
}

static void every_build_gives_the_same_bits(void **state) {
    (void)state;
    expect_bits("-O0", elementary_bits_O0);
    expect_bits("-O1", elementary_bits_O1);
    expect_bits("-O3", elementary_bits_O3);
#if defined(__x86_64__)
    if (ab_isa_best() >= AB_ISA_AVX2) expect_bits("AVX2 and FMA", elementary_bits_avx2);
    if (ab_isa_best() >= AB_ISA_AVX512) expect_bits("AVX-512", elementary_bits_avx512);
#endif
}

static void random_normals_have_known_bits(void **state) {
    (void)state;
    uint32_t sum = 2166136261u;
    for (uint64_t i = 0; i < 100000; i++)
        sum = (sum ^ ab_bits_of(ab_rng_normal(7, AB_RNG_INIT, 3, i))) * 16777619u;
    assert_int_equal(sum, 0xd4377144u);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fp32_functions_keep_their_bounds),
        cmocka_unit_test(fp32_functions_have_annex_fs_special_values),
        cmocka_unit_test(fp64_functions_keep_their_bounds),
        cmocka_unit_test(cospi_repeats_itself_and_is_exact_at_halves),
        cmocka_unit_test(pow_has_annex_fs_special_values),
        cmocka_unit_test(exp_and_log_have_annex_fs_special_values),
        cmocka_unit_test(every_build_gives_the_same_bits),
        cmocka_unit_test(random_normals_have_known_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
