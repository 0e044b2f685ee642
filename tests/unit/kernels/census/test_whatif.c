/* Predictions from a census equal a brute-force cast to the last element: every format, every scale 2^-60
 * .. 2^60, on the values where casts change their minds. The oracle multiplies in fp32 and rounds with
 * rint on a grid; it knows nothing of mantissa classes or limits. A second oracle is the project's own
 * scalar cast. */
#include "kernels/census/whatif.h"
#include "kernels/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SCALES = 60 };

typedef enum fate { FLUSHED, SUBNORMAL, NORMAL, OVERFLOWED, FATES } fate;

static const char *const exact_formats[] = {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp32", "tf32", "fp64"};

static const ab_format *find(const char *name) {
    const ab_format *format = NULL;
    assert_int_equal(ab_format_find(name, &format), AB_OK);
    return format;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t magnitude_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & 0x7fffffffu;
}

/* ---- data ------------------------------------------------------------------------------------ */

typedef struct data {
    float *value;
    int n;
} data;

/* For every exponent: the significands at which some format rounds differently, their neighbours, and a
 * few others; and every fp32 subnormal near a power of two or the tie between two formats' numbers. */
static int set_up(void **state) {
    static const uint32_t mantissas[] = {0,        0x80,     0x400,    0x1000,   0x200000, 0x400000, 0x600000,
                                         0x680000, 0x6fffff, 0x700000, 0x780000, 0x7effff, 0x7f0000, 0x7f8000,
                                         0x7fdfff, 0x7fe000, 0x7ff000, 0x7ff800, 0x7fffff};
    static data all;
    all.n = 0;
    all.value = malloc(sizeof(float) * 60000);
    if (all.value == NULL) return -1;
    for (uint32_t field = 0; field < 256; field++) {
        for (size_t m = 0; m < AB_COUNT_OF(mantissas); m++) {
            for (uint32_t d = 0; d < 5; d++) {
                uint32_t bits = (field << 23 | mantissas[m]) + d - 2;
                all.value[all.n++] = float_of((bits & 0x7fffffffu) | (d & 1) << 31);
            }
        }
        for (uint64_t i = 0; i < 8; i++)
            all.value[all.n++] = float_of(field << 23 | ab_rng_at(1, AB_RNG_SAMPLE, field, i).word[0] >> 9);
    }
    for (int e = 0; e < 23; e++)
        for (uint32_t d = 0; d < 64; d++)
            all.value[all.n++] = float_of(((1u << e) + (d << e >> 6)) & 0x7fffffu);
    *state = &all;
    return 0;
}

static int tear_down(void **state) {
    free(((data *)*state)->value);
    return 0;
}

/* ---- oracles --------------------------------------------------------------------------------- */

static float product_of(float x, float scale) {
    volatile float product = x * scale; /* rounded to fp32, whatever the compiler computes in */
    return product;
}

/* Nearest multiple of the spacing, ties to even; then the largest number decides about overflow. */
static fate cast_by_grid(float product, const ab_format *format, double largest, ab_ftz ftz) {
    double x = fabs((double)product), smallest = ldexp(1.0, format->emin);
    if (isinf(x)) return OVERFLOWED;
    int exponent = x > 0.0 ? ilogb(x) : format->emin;
    if (exponent < format->emin) exponent = format->emin;
    double spacing = ldexp(1.0, exponent - format->precision + 1);
    double rounded = spacing > 0.0 ? rint(x / spacing) * spacing : x;
    if (ftz == AB_FTZ_BEFORE && x < smallest) rounded = 0.0;
    if (ftz == AB_FTZ_AFTER && rounded < smallest) rounded = 0.0;
    if (rounded == 0.0) return FLUSHED;
    if (rounded > largest) return OVERFLOWED;
    return rounded < smallest ? SUBNORMAL : NORMAL;
}

/* Largest numbers, from the formats' definitions. */
static double largest_of(const ab_format *format) {
    if (format == &ab_format_fp8_e4m3) return 448.0;
    if (format == &ab_format_fp4_e2m1) return 6.0;
    return (2.0 - ldexp(1.0, 1 - format->precision)) * ldexp(1.0, format->emax);
}

static fate cast_by_format(float product, const ab_format *format, ab_ftz ftz) {
    const ab_rounding rounding = {AB_ROUND_NEAREST_EVEN, false, ftz, 0, 0};
    double rounded = fabs(ab_format_round(format, &rounding, (double)product));
    if (rounded == 0.0) return FLUSHED;
    if (!isfinite(rounded)) return OVERFLOWED;
    return rounded < ab_format_min_normal(format) ? SUBNORMAL : NORMAL;
}

static void assert_counts(const ab_whatif *got, const int64_t want[FATES]) {
    assert_int_equal(got->flushed, want[FLUSHED]);
    assert_int_equal(got->subnormal, want[SUBNORMAL]);
    assert_int_equal(got->normal, want[NORMAL]);
    assert_int_equal(got->overflowed, want[OVERFLOWED]);
}

static void count_fates(const data *all, const ab_format *format, float scale, ab_ftz ftz,
                        int64_t count[FATES]) {
    double largest = largest_of(format);
    memset(count, 0, FATES * sizeof count[0]);
    for (int i = 0; i < all->n; i++)
        if (all->value[i] != 0.0f && isfinite(all->value[i]))
            count[cast_by_grid(product_of(all->value[i], scale), format, largest, ftz)]++;
}

static ab_census *census_of(const data *all) {
    ab_census *census = malloc(sizeof *census);
    assert_non_null(census);
    ab_census_clear(census);
    ab_census_add(census, all->value, all->n);
    return census;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void every_format_and_power_of_two_is_exact(void **state) {
    const data *all = *state;
    ab_census *census = census_of(all);
    for (size_t f = 0; f < AB_COUNT_OF(exact_formats); f++) {
        const ab_format *format = find(exact_formats[f]);
        for (int k = -SCALES; k <= SCALES; k++) {
            int64_t want[FATES];
            ab_whatif got;
            count_fates(all, format, ldexpf(1.0f, k), AB_FTZ_NONE, want);
            assert_int_equal(ab_census_whatif(census, format, k, &got), AB_OK);
            assert_counts(&got, want);
            assert_int_equal(got.flushed + got.subnormal + got.normal + got.overflowed,
                             ab_census_nonzero(census));
        }
    }
    free(census);
}

static void flushing_to_zero_is_exact_before_and_after_rounding(void **state) {
    const data *all = *state;
    ab_census *census = census_of(all);
    ab_census_totals *totals = malloc(sizeof *totals);
    assert_non_null(totals);
    ab_census_total(census, totals);
    for (size_t f = 0; f < AB_COUNT_OF(exact_formats); f++) {
        const ab_format *format = find(exact_formats[f]);
        for (int k = -SCALES; k <= SCALES; k += 3) {
            for (int ftz = AB_FTZ_BEFORE; ftz <= AB_FTZ_AFTER; ftz++) {
                int64_t want[FATES];
                ab_whatif_limits limits;
                ab_whatif_range got;
                count_fates(all, format, ldexpf(1.0f, k), (ab_ftz)ftz, want);
                assert_int_equal(ab_whatif_find_limits(format, ldexpf(1.0f, k), (ab_ftz)ftz, &limits), AB_OK);
                ab_whatif_evaluate(census, totals, &limits, &got);
                assert_true(got.exact);
                assert_counts(&got.low, want);
                assert_counts(&got.high, want);
                assert_int_equal(got.low.subnormal, 0);
            }
        }
    }
    free(totals);
    free(census);
}

/* Counts could hide errors that cancel; the limits cannot. Both oracles, element by element, any scale and
 * format. */
static void limits_decide_the_fate_of_every_value(void **state) {
    static const char *const formats[] = {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp32",    "tf32",
                                          "fp64", "e6m9", "e4m3",     "e8m3",     "e5m10",   "e2m1",
                                          "e8m1", "e3m2", "e11m52",   "e7m22",    "fp4_e2m1"};
    static const float scales[] = {1.0f, 0x1p-60f, 0x1p60f, 0x1p-126f, 0x1p127f,
                                   3.0f, 0.1f,     1000.0f, 65504.0f,  1.0000001f};
    const data *all = *state;
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
        const ab_format *format = find(formats[f]);
        for (size_t s = 0; s < AB_COUNT_OF(scales); s++) {
            for (int ftz = AB_FTZ_NONE; ftz <= AB_FTZ_AFTER; ftz++) {
                ab_whatif_limits limits;
                assert_int_equal(ab_whatif_find_limits(format, scales[s], (ab_ftz)ftz, &limits), AB_OK);
                for (int i = 0; i < all->n; i++) {
                    uint32_t m = magnitude_of(all->value[i]);
                    if (m == 0 || m >= AB_WHATIF_NEVER) continue;
                    fate got = m >= limits.overflow ? OVERFLOWED
                               : m >= limits.normal ? NORMAL
                               : m >= limits.kept   ? SUBNORMAL
                                                    : FLUSHED;
                    float product = product_of(all->value[i], scales[s]);
                    assert_int_equal(got, cast_by_grid(product, format, largest_of(format), (ab_ftz)ftz));
                    if (format->nan) assert_int_equal(got, cast_by_format(product, format, (ab_ftz)ftz));
                }
            }
        }
    }
}

static void other_scales_and_formats_are_enclosed(void **state) {
    static const char *const formats[] = {"fp16", "bf16", "fp8_e4m3", "fp32",  "e6m9",
                                          "e8m3", "e3m2", "fp4_e2m1", "e11m52"};
    static const float scales[] = {3.0f,   1000.0f, 0.1f, 65504.0f, 0x1.fffffep10f,
                                   1e-20f, 7e18f,   1.0f, 0x1p20f,  0x1p-100f};
    const data *all = *state;
    ab_census *census = census_of(all);
    ab_census_totals *totals = malloc(sizeof *totals);
    assert_non_null(totals);
    ab_census_total(census, totals);
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
        const ab_format *format = find(formats[f]);
        for (size_t s = 0; s < AB_COUNT_OF(scales); s++) {
            int64_t want[FATES];
            ab_whatif_limits limits;
            ab_whatif_range got;
            count_fates(all, format, scales[s], AB_FTZ_NONE, want);
            assert_int_equal(ab_whatif_find_limits(format, scales[s], AB_FTZ_NONE, &limits), AB_OK);
            ab_whatif_evaluate(census, totals, &limits, &got);
            assert_in_range(want[FLUSHED], got.low.flushed, got.high.flushed);
            assert_in_range(want[SUBNORMAL], got.low.subnormal, got.high.subnormal);
            assert_in_range(want[NORMAL], got.low.normal, got.high.normal);
            assert_in_range(want[OVERFLOWED], got.low.overflowed, got.high.overflowed);
            /* No wider than the classes the three limits lie in. */
            assert_true(got.high.flushed - got.low.flushed < all->n / 50);
            if (got.exact) assert_counts(&got.low, want);
        }
    }
    free(totals);
    free(census);
}

/* A limit inside a class is still exact if the extremes show that the class is on one side. */
static void extremes_settle_what_classes_leave_open(void **state) {
    const float values[] = {1.1f, 1.2f, 1.3f};
    ab_census census;
    ab_census_totals totals;
    ab_whatif_limits limits;
    ab_whatif_range got;
    (void)state;
    ab_census_clear(&census);
    ab_census_add(&census, values, 3);
    ab_census_total(&census, &totals);
    assert_int_equal(ab_whatif_find_limits(&ab_format_fp16, 50000.0f, AB_FTZ_NONE, &limits), AB_OK);
    ab_whatif_evaluate(&census, &totals, &limits, &got); /* 65520 / 50000 = 1.3104 */
    assert_true(got.exact);
    assert_int_equal(got.high.overflowed, 0);
    assert_int_equal(ab_whatif_find_limits(&ab_format_fp16, 52000.0f, AB_FTZ_NONE, &limits), AB_OK);
    ab_whatif_evaluate(&census, &totals, &limits, &got);
    assert_false(got.exact);
    assert_int_equal(got.low.overflowed, 0);
    assert_int_equal(got.high.overflowed, 3);
}

static void known_limits_hold(void **state) {
    static const struct {
        const char *format;
        float value;
        fate fate;
    } facts[] = {
        {"fp16", 0x1p-25f, FLUSHED},         {"fp16", 0x1.000002p-25f, SUBNORMAL},
        {"fp16", 65519.996f, NORMAL},        {"fp16", 65520.0f, OVERFLOWED},
        {"fp16", 0x1.ffcp-15f, NORMAL},      {"fp16", 0x1.ffbffep-15f, SUBNORMAL},
        {"fp8_e4m3", 464.0f, NORMAL},        {"fp8_e4m3", 464.00003f, OVERFLOWED},
        {"fp8_e4m3", 0x1p-10f, FLUSHED},     {"fp8_e5m2", 61440.0f, OVERFLOWED},
        {"fp8_e5m2", 61439.996f, NORMAL},    {"bf16", 0x1p-134f, FLUSHED},
        {"bf16", 0x1.0008p-134f, SUBNORMAL}, {"bf16", 3.3961775e38f, OVERFLOWED},
        {"fp32", 0x1p-149f, SUBNORMAL},
    };
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(facts); i++) {
        ab_census census;
        ab_whatif got;
        int64_t want[FATES] = {0};
        want[facts[i].fate] = 1;
        ab_census_clear(&census);
        ab_census_add(&census, &facts[i].value, 1);
        assert_int_equal(ab_census_whatif(&census, find(facts[i].format), 0, &got), AB_OK);
        assert_counts(&got, want);
    }
}

static void flushed_energy_is_close_to_the_true_share(void **state) {
    enum { N = 20000 };
    float *values = malloc(N * sizeof *values);
    ab_census census;
    (void)state;
    assert_non_null(values);
    for (uint64_t i = 0; i < N; i++) {
        ab_rng_block b = ab_rng_at(3, AB_RNG_SAMPLE, 0, i);
        double u = (b.word[0] + 0.5) * 0x1p-32, v = b.word[1] * 0x1p-32;
        values[i] = (float)exp2(-23.0 + 3.0 * sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v));
    }
    ab_census_clear(&census);
    ab_census_add(&census, values, N);
    for (int k = -4; k <= 4; k++) {
        double lost = 0.0, all = 0.0;
        ab_whatif got;
        for (int i = 0; i < N; i++) {
            double square = (double)values[i] * (double)values[i];
            all += square;
            if (ldexp((double)values[i], k) <= 0x1p-25) lost += square;
        }
        assert_int_equal(ab_census_whatif(&census, &ab_format_fp16, k, &got), AB_OK);
        assert_true(fabs(got.flushed_energy - lost / all) <= 0.1 * lost / all);
    }
    free(values);
}

static void energy_shares_span_zero_to_one(void **state) {
    const float small[] = {0x1p-30f, 0x1.8p-31f, -0x1.4p-35f};
    ab_census census;
    ab_whatif got;
    (void)state;
    ab_census_clear(&census);
    assert_int_equal(ab_census_whatif(&census, &ab_format_fp16, 0, &got), AB_OK);
    assert_true(got.flushed_energy == 0.0 && got.flushed + got.subnormal + got.normal + got.overflowed == 0);
    ab_census_add(&census, small, 3);
    assert_int_equal(ab_census_whatif(&census, &ab_format_fp16, 0, &got), AB_OK);
    assert_true(got.flushed_energy == 1.0);
    assert_int_equal(ab_census_whatif(&census, &ab_format_fp16, 30, &got), AB_OK);
    assert_true(got.flushed_energy == 0.0);
}

static void only_finite_values_have_a_fate(void **state) {
    const float values[] = {0.0f, -0.0f, INFINITY, -INFINITY, NAN, 1.0f};
    ab_census census;
    ab_whatif got;
    (void)state;
    ab_census_clear(&census);
    ab_census_add(&census, values, 6);
    assert_int_equal(ab_census_whatif(&census, &ab_format_fp16, 0, &got), AB_OK);
    assert_int_equal(got.flushed + got.subnormal + got.overflowed, 0);
    assert_int_equal(got.normal, 1);
}

static void impossible_scales_are_refused(void **state) {
    static const float scales[] = {0.0f, -1.0f, INFINITY, NAN, 0x1p-127f};
    const float inside[] = {1.4f, 1.6f};
    ab_census census;
    ab_whatif got;
    ab_whatif_limits limits;
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(scales); i++)
        assert_int_equal(ab_whatif_find_limits(&ab_format_fp16, scales[i], AB_FTZ_NONE, &limits), AB_CONFIG);
    ab_census_clear(&census);
    assert_int_equal(ab_census_whatif(&census, &ab_format_fp16, 128, &got), AB_CONFIG);
    assert_int_equal(ab_census_whatif(&census, &ab_format_fp16, -127, &got), AB_CONFIG);
    ab_census_add(&census, inside,
                  2); /* e2m1 turns 2^-1 * 1.5 into its smallest normal number, which no class says */
    assert_int_equal(ab_census_whatif(&census, &ab_format_fp4_e2m1, -1, &got), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "fp4_e2m1 at scale 2^-1"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_format_and_power_of_two_is_exact),
        cmocka_unit_test(flushing_to_zero_is_exact_before_and_after_rounding),
        cmocka_unit_test(limits_decide_the_fate_of_every_value),
        cmocka_unit_test(other_scales_and_formats_are_enclosed),
        cmocka_unit_test(extremes_settle_what_classes_leave_open),
        cmocka_unit_test(known_limits_hold),
        cmocka_unit_test(flushed_energy_is_close_to_the_true_share),
        cmocka_unit_test(energy_shares_span_zero_to_one),
        cmocka_unit_test(only_finite_values_have_a_fate),
        cmocka_unit_test(impossible_scales_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
