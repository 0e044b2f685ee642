/* The scalar definition of every format: known values, limits, every rounding mode against the oracle at
 * every number and midpoint, stochastic rounding by enumeration of its random bits, and mistakes that other
 * tools make. */
#include "bench/prove/oracle.h"
#include "kernels/format/format.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ab_rounding rne = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};

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

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static uint64_t encode(const ab_format *format, double x) { return ab_format_encode(format, &rne, x); }

static double rounded(const ab_format *format, double x) { return ab_format_round(format, &rne, x); }

/* ---- rows ------------------------------------------------------------------------------------ */

static void ranges_are_those_of_the_standards(void **state) {
    static const struct {
        const char *name;
        double max, min_normal, min_subnormal, eps;
        int binades;
    } expected[] = {
        {"fp64", DBL_MAX, DBL_MIN, 0x1p-1074, DBL_EPSILON, 2098},
        {"fp32", (double)FLT_MAX, (double)FLT_MIN, 0x1p-149, (double)FLT_EPSILON, 277},
        {"tf32", 0x1.ffcp127, 0x1p-126, 0x1p-136, 0x1p-10, 264},
        {"fp16", 65504, 0x1p-14, 0x1p-24, 0x1p-10, 40},
        {"bf16", 0x1.fep127, 0x1p-126, 0x1p-133, 0x1p-7, 261},
        {"fp8_e4m3", 448, 0x1p-6, 0x1p-9, 0x1p-3, 18},
        {"fp8_e5m2", 57344, 0x1p-14, 0x1p-16, 0x1p-2, 32},
        {"fp4_e2m1", 6, 1, 0.5, 0.5, 4},
        {"e6m9", 0x1.ff8p31, 0x1p-30, 0x1p-39, 0x1p-9, 71},
        {"e11m52", DBL_MAX, DBL_MIN, 0x1p-1074, DBL_EPSILON, 2098},
        {"e2m1", 6, 1, 0.5, 0.5, 4},
    };
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(expected); i++) {
        const ab_format *format = find(expected[i].name);
        assert_true(ab_format_max(format) == expected[i].max);
        assert_true(ab_format_min_normal(format) == expected[i].min_normal);
        assert_true(ab_format_min_subnormal(format) == expected[i].min_subnormal);
        assert_true(ab_format_eps(format) == expected[i].eps);
        assert_int_equal(ab_format_binades(format), expected[i].binades);
    }
}

static void flush_and_overflow_limits_are_where_rounding_changes(void **state) {
    (void)state;
    for (int i = 0; i < ab_format_count(); i++) {
        const ab_format *format = ab_format_at(i);
        double flush = ab_format_flush_limit(format), overflow = ab_format_overflow_limit(format);
        assert_true(rounded(format, flush) == 0);
        assert_true(rounded(format, nextafter(flush, 1)) == ab_format_min_subnormal(format));
        assert_true(rounded(format, nextafter(overflow, 0)) == ab_format_max(format));
        if (format->nan) assert_true(!isfinite(rounded(format, overflow)));
        if (!format->nan) assert_true(rounded(format, overflow) == ab_format_max(format));
    }
    assert_true(ab_format_flush_limit(&ab_format_fp16) == 0x1p-25);
    assert_true(ab_format_overflow_limit(&ab_format_fp16) == 65520);
    assert_true(ab_format_overflow_limit(&ab_format_fp8_e5m2) == 61440);
    assert_true(ab_format_overflow_limit(&ab_format_fp8_e4m3) == nextafter(464, 465));
}

static void names_and_aliases_lead_to_one_row(void **state) {
    (void)state;
    assert_ptr_equal(find("fp16"), &ab_format_fp16);
    assert_ptr_equal(find("half"), &ab_format_fp16);
    assert_ptr_equal(find("e4m3"), &ab_format_fp8_e4m3);
    assert_ptr_equal(find("e6m9"), find("e6m9"));
    assert_ptr_not_equal(find("e5m10"), &ab_format_fp16); /* no storage type: its bytes are modelled */
    assert_int_equal(ab_format_bytes(find("e5m10"), 10), 40);
    assert_int_equal(ab_format_bytes(&ab_format_fp16, 10), 20);
    assert_int_equal(ab_format_bytes(&ab_format_fp8_e4m3, 10), 40);
}

static void unknown_names_say_what_was_meant(void **state) {
    static const struct {
        const char *name, *says;
    } wrong[] = {
        {"fp17", "nearest: fp16"}, {"bf61", "nearest: bf16"},  {"FP16", "nearest: fp16"}, {"e1m3", "2..11"},
        {"e12m3", "2..11"},        {"e5m53", "1..52"},         {"e5m0", "1..52"},         {"", "eXmY"},
        {"posit16es1", "eXmY"},    {"e5m2x", "nearest: e5m2"}, {"e05m3", "eXmY"}};
    const ab_format *format = NULL;
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(wrong); i++) {
        assert_int_equal(ab_format_find(wrong[i].name, &format), AB_CONFIG);
        assert_null(format);
        assert_non_null(strstr(ab_error_message(), wrong[i].says));
    }
}

static void modes_have_names(void **state) {
    ab_round_mode mode = AB_ROUND_NEAREST_EVEN;
    (void)state;
    for (int i = AB_ROUND_NEAREST_EVEN; i <= AB_ROUND_STOCHASTIC; i++) {
        assert_int_equal(ab_round_mode_find(ab_round_mode_name((ab_round_mode)i), &mode), AB_OK);
        assert_int_equal(mode, i);
    }
    assert_int_equal(ab_round_mode_find("nearest", &mode), AB_CONFIG);
}

/* ---- known values ---------------------------------------------------------------------------- */

static void known_values_round_as_published(void **state) {
    static const struct {
        const char *format;
        double x;
        uint64_t code;
    } expected[] = {
        {"fp16", 0x1p-25, 0},          {"fp16", -0x1p-25, 0x8000},
        {"fp16", 0x1.000002p-25, 1},   {"fp16", 65519.99, 0x7bff},
        {"fp16", 65520, 0x7c00},       {"fp16", -65520, 0xfc00},
        {"fp16", 0x1.ffcp-15, 0x400}, /* half-way below the smallest normal: ties to even, up */
        {"fp16", 0x1.ff8p-15, 0x3ff},  {"fp16", 1e-8, 0},
        {"fp16", 0.999, 0x3bfe},       {"fp16", 0.9999, 0x3c00},
        {"fp16", 2049, 0x6800},        {"bf16", 0.999, 0x3f80},
        {"bf16", 257, 0x4380},         {"bf16", (double)FLT_MAX, 0x7f80},
        {"bf16", 0x1p-134, 0},         {"bf16", 0x1.8p-134, 1},
        {"fp8_e4m3", 448, 0x7e},       {"fp8_e4m3", 464, 0x7e},
        {"fp8_e4m3", 464.00001, 0x7f}, {"fp8_e4m3", 470, 0x7f},
        {"fp8_e4m3", 480, 0x7f},       {"fp8_e4m3", 496, 0x7f},
        {"fp8_e4m3", -HUGE_VAL, 0xff}, {"fp8_e5m2", 61439.9, 0x7b},
        {"fp8_e5m2", 61440, 0x7c},     {"fp4_e2m1", 5, 6},
        {"fp4_e2m1", 2.5, 4},          {"fp4_e2m1", -0.25, 8},
        {"fp4_e2m1", HUGE_VAL, 7},     {"fp4_e2m1", (double)NAN, 7},
        {"e8m23", 3, 0x40400000},      {"tf32", 1.0 / 3, 0x1f555},
    };
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(expected); i++)
        assert_int_equal(encode(find(expected[i].format), expected[i].x), expected[i].code);
}

static void running_sums_of_ones_stick(void **state) {
    float half = 0, brain = 0;
    (void)state;
    for (int i = 0; i < 5000; i++) {
        half = (float)rounded(&ab_format_fp16, (double)half + 1);
        brain = (float)rounded(&ab_format_bf16, (double)brain + 1);
    }
    assert_true(half == 2048 && brain == 256);
}

static void doubles_are_rounded_once(void **state) {
    (void)state;
    /* through fp32 the tail would be lost and the tie would go down to even */
    assert_int_equal(encode(&ab_format_fp16, 1 + 0x1p-11 + 0x1p-40), 0x3c01);
    assert_int_equal(encode(&ab_format_bf16, 1 + 0x1p-8 + 0x1p-50), 0x3f81);
}

/* The compiler's own double -> float conversion knows nothing of our rows. */
static void fp32_is_what_the_hardware_makes_of_a_double(void **state) {
    uint64_t bits = 0x9e3779b97f4a7c15U;
    (void)state;
    for (int i = 0; i < 2000000; i++) {
        double x = 0;
        bits = bits * 6364136223846793005U + 1442695040888963407U;
        /* squeeze most exponents into fp32's range, subnormals and overflow included */
        uint64_t squeezed = (bits & 0x800fffffffffffffU) | (0x360 + (bits >> 40) % 0x130) << 52;
        memcpy(&x, i % 4 ? &squeezed : &bits, sizeof x);
        if (isnan(x)) continue;
        assert_int_equal(encode(&ab_format_fp32, x), bits_of((float)x));
        memcpy(&x, &bits, sizeof x);
        if (!isnan(x)) assert_int_equal(encode(&ab_format_fp64, x), bits);
    }
}

static void every_code_survives_decoding_and_encoding(void **state) {
    static const char *const names[] = {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1",
                                        "tf32", "e6m9", "e11m4",    "e2m5"};
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        const ab_format *format = find(names[i]);
        uint64_t quiet = UINT64_C(1) << (format->precision - 2);
        for (int mode = AB_ROUND_NEAREST_EVEN; mode <= AB_ROUND_DOWN; mode++) {
            ab_rounding rounding = {(ab_round_mode)mode, false, AB_FTZ_NONE, 0, 0};
            for (uint64_t code = 0; code < UINT64_C(1) << format->bits; code++) {
                double x = ab_format_decode(format, code);
                assert_int_equal(ab_format_encode(format, &rounding, x), isnan(x) ? code | quiet : code);
            }
        }
    }
}

/* ---- nan, inf, zero -------------------------------------------------------------------------- */

static void nan_stays_nan_with_sign_and_leading_payload(void **state) {
    static const struct {
        uint32_t input;
        uint16_t fp16, bf16;
        uint8_t e4m3, e5m2;
    } expected[] = {
        {0x7f800001, 0x7e00, 0x7fc0, 0x7f, 0x7e}, /* signalling, payload lost */
        {0x7fffffff, 0x7fff, 0x7fff, 0x7f, 0x7f}, /* what CUDA makes */
        {0xffffffff, 0xffff, 0xffff, 0xff, 0xff}, {0x7fc00000, 0x7e00, 0x7fc0, 0x7f, 0x7e},
        {0xffa5a000, 0xff2d, 0xffe5, 0xff, 0xff}, {0x7fa00000, 0x7f00, 0x7fe0, 0x7f, 0x7f},
    };
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(expected); i++) {
        double x = (double)float_of(expected[i].input);
        assert_int_equal(encode(&ab_format_fp16, x), expected[i].fp16);
        assert_int_equal(encode(&ab_format_bf16, x), expected[i].bf16);
        assert_int_equal(encode(&ab_format_fp8_e4m3, x), expected[i].e4m3);
        assert_int_equal(encode(&ab_format_fp8_e5m2, x), expected[i].e5m2);
    }
}

static void no_mode_or_option_turns_a_nan_into_a_number(void **state) {
    (void)state;
    for (int f = 0; f < ab_format_count(); f++) {
        const ab_format *format = ab_format_at(f);
        for (int option = 0; option < 30; option++) {
            ab_rounding rounding = {(ab_round_mode)(option % 5), option % 2 != 0, (ab_ftz)(option / 10), 0,
                                    0};
            for (uint32_t bits = 0x7f800001; bits < 0x80000000U; bits += 9973) {
                double x = ab_format_round(format, &rounding, (double)float_of(bits));
                assert_true(format->nan ? x != x : x == ab_format_max(format));
            }
        }
    }
}

static void infinity_and_overflow_follow_mode_and_saturation(void **state) {
    static const struct {
        ab_round_mode mode;
        uint64_t above, below; /* 70000 and -70000 in fp16, not saturating */
    } expected[] = {
        {AB_ROUND_NEAREST_EVEN, 0x7c00, 0xfc00}, {AB_ROUND_NEAREST_AWAY, 0x7c00, 0xfc00},
        {AB_ROUND_TOWARD_ZERO, 0x7bff, 0xfbff},  {AB_ROUND_UP, 0x7c00, 0xfbff},
        {AB_ROUND_DOWN, 0x7bff, 0xfc00},
    };
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(expected); i++) {
        ab_rounding plain = {expected[i].mode, false, AB_FTZ_NONE, 0, 0};
        ab_rounding saturating = {expected[i].mode, true, AB_FTZ_NONE, 0, 0};
        assert_int_equal(ab_format_encode(&ab_format_fp16, &plain, 70000), expected[i].above);
        assert_int_equal(ab_format_encode(&ab_format_fp16, &plain, -70000), expected[i].below);
        assert_int_equal(ab_format_encode(&ab_format_fp16, &saturating, 70000), 0x7bff);
        assert_int_equal(ab_format_encode(&ab_format_fp16, &saturating, -HUGE_VAL), 0xfbff);
        assert_int_equal(ab_format_encode(&ab_format_fp16, &plain, HUGE_VAL), 0x7c00);
        assert_int_equal(ab_format_encode(&ab_format_fp8_e4m3, &plain, HUGE_VAL), 0x7f);
        assert_int_equal(ab_format_encode(&ab_format_fp8_e4m3, &saturating, 1e30), 0x7e);
        assert_int_equal(ab_format_encode(&ab_format_fp8_e4m3, &saturating, -HUGE_VAL), 0xfe);
    }
}

static void zero_keeps_its_sign(void **state) {
    (void)state;
    for (int mode = AB_ROUND_NEAREST_EVEN; mode <= AB_ROUND_DOWN; mode++) {
        ab_rounding rounding = {(ab_round_mode)mode, false, AB_FTZ_NONE, 0, 0};
        assert_int_equal(ab_format_encode(&ab_format_fp16, &rounding, -0.0), 0x8000);
        assert_int_equal(ab_format_encode(&ab_format_fp16, &rounding, 0.0), 0);
        assert_true(signbit(ab_format_round(&ab_format_fp16, &rounding, -0.0)) != 0);
    }
}

/* ---- flushing -------------------------------------------------------------------------------- */

static void flushing_before_and_after_rounding_differ_just_below_the_smallest_normal(void **state) {
    const ab_rounding before = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_BEFORE, 0, 0};
    const ab_rounding after = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_AFTER, 0, 0};
    const double carries = 0x1.ffep-15; /* rounds up to 2^-14 */
    (void)state;
    assert_int_equal(encode(&ab_format_fp16, carries), 0x400);
    assert_int_equal(ab_format_encode(&ab_format_fp16, &before, carries), 0);
    assert_int_equal(ab_format_encode(&ab_format_fp16, &after, carries), 0x400);
    assert_int_equal(ab_format_encode(&ab_format_fp16, &before, -0x1p-20), 0x8000);
    assert_int_equal(ab_format_encode(&ab_format_fp16, &after, -0x1p-20), 0x8000);
    assert_int_equal(ab_format_encode(&ab_format_fp16, &before, 0x1p-14), 0x400);
    assert_int_equal(ab_format_encode(&ab_format_fp16, &after, 0x1p-14), 0x400);
}

/* ---- every number, every midpoint, against the oracle ---------------------------------------- */

/* The inputs whose position is the given one and its neighbours on both sides. */
static void check_around(const ab_format *format, const ab_rounding *rounding, uint64_t position) {
    enum { WIDTH = 3 };
    uint32_t codes[WIDTH], values[WIDTH];
    uint32_t from = position / 2 > 0 ? (uint32_t)(position / 2 - 1) : 0;
    for (uint32_t sign = 0; sign < 2; sign++) {
        uint32_t first = from | sign << 31;
        ab_oracle_round(format, rounding, first, WIDTH, codes, values);
        for (uint32_t i = 0; i < WIDTH; i++) {
            double x = (double)float_of(first + i);
            uint64_t code = ab_format_encode(format, rounding, x);
            uint32_t value = bits_of((float)ab_format_round(format, rounding, x));
            if (code != codes[i] || value != values[i])
                fail_msg("%s %s: input %08x gives %x (%08x), expected %x (%08x)", format->name,
                         ab_round_mode_name(rounding->mode), first + i, (unsigned)code, value, codes[i],
                         values[i]);
        }
    }
}

static void check_all_codes(const ab_format *format, const ab_rounding *rounding) {
    for (uint64_t code = 0; code <= ab_format_max_code(format) + 1; code++) {
        check_around(format, rounding, ab_oracle_position(format, code));
        check_around(format, rounding, ab_oracle_midpoint(format, code));
    }
    check_around(format, rounding, 2 * (uint64_t)0x7f800000);
}

static void every_number_and_midpoint_and_their_neighbours_round_right(void **state) {
    static const char *const names[] = {"fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1",
                                        "e6m9", "e3m7", "e8m2",     "e2m1"};
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        const ab_format *format = find(names[i]);
        for (int mode = AB_ROUND_NEAREST_EVEN; mode <= AB_ROUND_DOWN; mode++) {
            ab_rounding rounding = {(ab_round_mode)mode, false, AB_FTZ_NONE, 0, 0};
            check_all_codes(format, &rounding);
        }
    }
}

static void saturation_and_flushing_hold_in_every_mode(void **state) {
    static const char *const names[] = {"fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "e4m4", "e8m1"};
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        for (int option = 0; option < 30; option++) {
            ab_rounding rounding = {(ab_round_mode)(option % 5), option / 5 % 2 != 0, (ab_ftz)(option / 10),
                                    0, 0};
            check_all_codes(find(names[i]), &rounding);
        }
    }
}

/* ---- stochastic rounding --------------------------------------------------------------------- */

/* How many of the 2^bits random words give the upper of the two results. */
static int count_up(const ab_format *format, double x, int bits) {
    ab_rounding rounding = {AB_ROUND_STOCHASTIC, false, AB_FTZ_NONE, bits, 0};
    const ab_rounding inward = {AB_ROUND_TOWARD_ZERO, false, AB_FTZ_NONE, 0, 0};
    uint64_t low = ab_format_encode(format, &inward, x);
    int up = 0;
    for (uint32_t random = 0; random < 1U << bits; random++) {
        rounding.random = random << (32 - bits) | 0x5a5a5aU >> bits; /* trailing bits do not matter */
        uint64_t code = ab_format_encode(format, &rounding, x);
        assert_true(code == low || code == low + 1);
        up += code == low + 1;
    }
    return up;
}

static void stochastic_rounding_has_exactly_the_probability_of_the_truncated_fraction(void **state) {
    static const struct {
        double start, ulp; /* fp16 */
    } places[] = {{1, 0x1p-10}, {-1, -0x1p-10},    {0x1p-20, 0x1p-24},
                  {0, 0x1p-24}, {1024.0 * 63, 32}, {-65504, -32}};
    (void)state;
    for (size_t p = 0; p < AB_COUNT_OF(places); p++)
        for (int bits = 1; bits <= 8; bits++)
            for (int k = 0; k < 1024; k += 7)
                assert_int_equal(count_up(&ab_format_fp16, places[p].start + places[p].ulp * k / 1024, bits),
                                 k * (1 << bits) / 1024);
}

static void stochastic_rounding_uses_up_to_32_bits(void **state) {
    ab_rounding rounding = {AB_ROUND_STOCHASTIC, false, AB_FTZ_NONE, 32, 0};
    (void)state;
    /* 2^-56 is 2^-32 of the smallest subnormal: one random word in 2^32 rounds it up */
    assert_int_equal(ab_format_encode(&ab_format_fp16, &rounding, 0x1p-56), 1);
    assert_int_equal(ab_format_encode(&ab_format_fp16, &rounding, 0x1p-57), 0);
    assert_int_equal(ab_format_encode(&ab_format_fp16, &rounding, 0x1p-300), 0);
    rounding.random = 1;
    assert_int_equal(ab_format_encode(&ab_format_fp16, &rounding, 0x1p-56), 0);
    rounding.random = UINT32_MAX;
    assert_int_equal(ab_format_encode(&ab_format_fp16, &rounding, 1 + 0x1p-10 - 0x1p-43), 0x3c00);
    rounding.random = UINT32_MAX - 1;
    assert_int_equal(ab_format_encode(&ab_format_fp16, &rounding, 1 + 0x1p-10 - 0x1p-42), 0x3c01);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_those_of_the_standards),
        cmocka_unit_test(flush_and_overflow_limits_are_where_rounding_changes),
        cmocka_unit_test(names_and_aliases_lead_to_one_row),
        cmocka_unit_test(unknown_names_say_what_was_meant),
        cmocka_unit_test(modes_have_names),
        cmocka_unit_test(known_values_round_as_published),
        cmocka_unit_test(running_sums_of_ones_stick),
        cmocka_unit_test(doubles_are_rounded_once),
        cmocka_unit_test(fp32_is_what_the_hardware_makes_of_a_double),
        cmocka_unit_test(every_code_survives_decoding_and_encoding),
        cmocka_unit_test(nan_stays_nan_with_sign_and_leading_payload),
        cmocka_unit_test(no_mode_or_option_turns_a_nan_into_a_number),
        cmocka_unit_test(infinity_and_overflow_follow_mode_and_saturation),
        cmocka_unit_test(zero_keeps_its_sign),
        cmocka_unit_test(flushing_before_and_after_rounding_differ_just_below_the_smallest_normal),
        cmocka_unit_test(every_number_and_midpoint_and_their_neighbours_round_right),
        cmocka_unit_test(saturation_and_flushing_hold_in_every_mode),
        cmocka_unit_test(stochastic_rounding_has_exactly_the_probability_of_the_truncated_fraction),
        cmocka_unit_test(stochastic_rounding_uses_up_to_32_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
