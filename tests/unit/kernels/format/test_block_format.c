/* Block formats against a search that knows only the definition: the least scale that fits, the nearest
 * element value with ties to the even code. */
#include "kernels/core/rng.h"
#include "kernels/format/block_format.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LONGEST = 100 };

static const ab_rounding rne = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};
static const double e2m1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};

static const ab_block_format *find(const char *name) {
    const ab_block_format *format = NULL;
    assert_int_equal(ab_block_format_find(name, &format), AB_OK);
    return format;
}

/* E4M3 by its definition: 4 exponent bits with bias 7, 3 fraction bits. */
static double e4m3(int code) {
    int field = code >> 3, fraction = code & 7;
    return field == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, field - 10);
}

/* The value with the smallest distance to x >= 0, of two the one with the even index; the last one takes the
 * rest. */
static int nearest(double x, double (*value)(int), int count) {
    int best = 0;
    for (int i = 1; i < count; i++) {
        double closer = fabs(value(i) - x) - fabs(value(best) - x);
        if (closer < 0 || (closer == 0 && i % 2 == 0)) best = i;
    }
    return best;
}

static double e2m1_value(int code) { return e2m1[code]; }

/* Numbers of one block: a common magnitude with a spread of some 2^24, zeros and exact ties among them. */
static void fill(float *x, int n, uint32_t seed) {
    int base = (int)ab_rng_below(seed, AB_RNG_SAMPLE, 0, 1000, 200) - 110;
    for (int i = 0; i < n; i++) {
        ab_rng_block word = ab_rng_at(seed, AB_RNG_SAMPLE, 0, (uint64_t)i);
        double fraction =
            (word.word[0] & 1) != 0 ? (double)(word.word[1] % 64) / 32 : ldexp(word.word[1], -31);
        x[i] = (float)ldexp(word.word[3] % 8 == 0 ? 0 : fraction, base - (int)(word.word[2] % 12));
        if ((word.word[0] & 2) != 0) x[i] = -x[i];
    }
}

static double amax_of(const float *x, int n) {
    double amax = 0;
    for (int i = 0; i < n; i++) amax = fmax(amax, fabs((double)x[i]));
    return amax;
}

/* ---- MX -------------------------------------------------------------------------------------- */

static void check_mx(const ab_block_format *format, double (*value)(int), int values, uint32_t seed, int n) {
    float x[LONGEST], y[LONGEST];
    uint8_t codes[LONGEST], scales[LONGEST];
    fill(x, n, seed);
    assert_true(ab_block_tensor_scale(format, (float)amax_of(x, n)) == 1);
    ab_block_encode(format, &rne, 1, x, n, codes, scales);
    ab_block_decode(format, 1, codes, scales, n, y);
    for (int at = 0; at < n; at += 32) {
        int length = n - at < 32 ? n - at : 32, power = -127;
        while (amax_of(x + at, length) > value(values - 1) * ldexp(1, power)) power++;
        assert_int_equal(scales[at / 32], power + 127);
        for (int i = at; i < at + length; i++) {
            double scaled = fabs((double)x[i]) / ldexp(1, power);
            int code = nearest(scaled, value, values);
            assert_int_equal(codes[i] & (0x7f >> (8 - format->element->bits)), code);
            assert_true(fabs((double)y[i]) == value(code) * ldexp(1, power));
            assert_true((signbit(y[i]) != 0) == (signbit(x[i]) != 0));
        }
    }
    ab_block_round(format, &rne, x, n);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
}

static void mx_scales_round_up_and_elements_to_nearest(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 300; seed++) {
        check_mx(find("mxfp8"), e4m3, 127, seed, 1 + (int)(seed % LONGEST));
        check_mx(find("mxfp4"), e2m1_value, 8, seed, 1 + (int)(seed % LONGEST));
    }
}

static void the_mx_scale_changes_just_above_the_elements_max(void **state) {
    const float at = 448, above = nextafterf(448, 449);
    uint8_t code = 0, scale = 0;
    (void)state;
    ab_block_encode(find("mxfp8"), &rne, 1, &at, 1, &code, &scale);
    assert_int_equal(scale, 127);
    assert_int_equal(code, 0x7e);
    ab_block_encode(find("mxfp8"), &rne, 1, &above, 1, &code, &scale);
    assert_int_equal(scale, 128);
    assert_int_equal(code, 0x76); /* 224 */
}

static void mx_scales_stop_at_their_ends(void **state) {
    const float small[2] = {0x1p-149F, 0}, zeros[2] = {0, -0.0F}, large[2] = {0x1.fffffep127F, 1};
    uint8_t codes[2], scale = 0;
    float back[2];
    (void)state;
    ab_block_encode(find("mxfp8"), &rne, 1, small, 2, codes, &scale);
    assert_int_equal(scale, 0);
    assert_int_equal(codes[0], 0); /* 2^-22 of the smallest scale */
    ab_block_encode(find("mxfp4"), &rne, 1, zeros, 2, codes, &scale);
    assert_int_equal(scale, 0);
    assert_int_equal(codes[1], 8);
    ab_block_encode(find("mxfp4"), &rne, 1, large, 2, codes, &scale);
    assert_int_equal(scale, 127 + 126); /* 2^128 / 4 */
    ab_block_decode(find("mxfp4"), 1, codes, &scale, 2, back);
    assert_true(isinf(back[0]) != 0); /* it rounds to 4 * 2^126, which fp32 lacks */
}

/* ---- NVFP4 ----------------------------------------------------------------------------------- */

static void check_nvfp4(uint32_t seed, int n) {
    const ab_block_format *format = find("nvfp4");
    float x[LONGEST], y[LONGEST];
    uint8_t codes[LONGEST], scales[LONGEST];
    fill(x, n, seed);
    double amax = amax_of(x, n);
    float tensor = ab_block_tensor_scale(format, (float)amax);
    assert_true(amax == 0 ? tensor == 1 : tensor == (float)(amax / 2688));
    ab_block_encode(format, &rne, tensor, x, n, codes, scales);
    ab_block_decode(format, tensor, codes, scales, n, y);
    for (int at = 0; at < n; at += 16) {
        int length = n - at < 16 ? n - at : 16;
        int scale = nearest(amax_of(x + at, length) / (6 * (double)tensor), e4m3, 127);
        assert_int_equal(scales[at / 16], scale);
        for (int i = at; i < at + length; i++) {
            double unit = e4m3(scale) * (double)tensor;
            int code = unit == 0 ? 0 : nearest(fabs((double)x[i]) / unit, e2m1_value, 8);
            assert_int_equal(codes[i], code | (signbit(x[i]) != 0 ? 8 : 0));
            assert_true(fabsf(y[i]) == (float)(e2m1[code] * unit));
        }
    }
    ab_block_round(format, &rne, x, n);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
}

static void nvfp4_has_two_levels_of_scales(void **state) {
    (void)state;
    for (uint32_t seed = 0; seed < 600; seed++) check_nvfp4(seed, 1 + (int)(seed % LONGEST));
}

static void a_block_far_below_the_tensor_maximum_is_lost(void **state) {
    float x[32] = {0};
    (void)state;
    x[0] = 2688;
    x[16] = 6 * 0x1p-10F; /* its scale would be 2^-10, half the least E4M3 number: the tie goes to 0 */
    x[17] = -0.001F;
    ab_block_round(find("nvfp4"), &rne, x, 32);
    assert_true(x[0] == 2688 && x[16] == 0 && x[17] == 0 && signbit(x[17]) != 0);
}

/* ---- non-finite values ----------------------------------------------------------------------- */

static void a_non_finite_value_never_becomes_a_number(void **state) {
    static const float bad[] = {(float)NAN, (float)INFINITY, -(float)INFINITY};
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        for (int f = 0; f < ab_block_format_count(); f++) {
            const ab_block_format *format = ab_block_format_at(f);
            float x[64];
            for (int j = 0; j < 64; j++) x[j] = 1;
            x[40] = bad[i];
            ab_block_round(format, &rne, x, 64);
            assert_true(isnan(x[40]) != 0);
            assert_true(x[0] == 1);                                    /* another block */
            assert_true((isnan(x[41]) != 0) == !format->element->nan); /* the same block */
        }
    }
}

static void directed_modes_reach_the_elements(void **state) {
    const ab_rounding up = {AB_ROUND_UP, false, AB_FTZ_NONE, 0, 0};
    float x[3] = {6, 2.1F, -2.1F};
    (void)state;
    ab_block_round(find("mxfp4"), &up, x, 3);
    assert_true(x[0] == 6 && x[1] == 3 && x[2] == -2);
}

static void sizes_count_elements_scales_and_tensor_scale(void **state) {
    const ab_block_format *format = NULL;
    (void)state;
    assert_int_equal(ab_block_format_bytes(find("mxfp8"), 64), 64 + 2);
    assert_int_equal(ab_block_format_bytes(find("mxfp4"), 65), 33 + 3);
    assert_int_equal(ab_block_format_bytes(find("nvfp4"), 64), 32 + 4 + 4);
    assert_int_equal(ab_block_count(find("nvfp4"), 17), 2);
    assert_int_equal(ab_block_format_find("mxfp6", &format), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "nearest: mxfp8"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mx_scales_round_up_and_elements_to_nearest),
        cmocka_unit_test(the_mx_scale_changes_just_above_the_elements_max),
        cmocka_unit_test(mx_scales_stop_at_their_ends),
        cmocka_unit_test(nvfp4_has_two_levels_of_scales),
        cmocka_unit_test(a_block_far_below_the_tensor_maximum_is_lost),
        cmocka_unit_test(a_non_finite_value_never_becomes_a_number),
        cmocka_unit_test(directed_modes_reach_the_elements),
        cmocka_unit_test(sizes_count_elements_scales_and_tensor_scale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
