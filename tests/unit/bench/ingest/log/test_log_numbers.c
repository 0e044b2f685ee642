/* Numbers of logs are the doubles that strtod reads, bit by bit: short and long ones, those that lie in the
 * middle between two doubles or next to it, and those with exponents. */
#include "bench/ingest/log/format.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed = 1;

static uint64_t draw(void) { /* splitmix64 */
    uint64_t z = seed += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* Behind a name and before another, as in a line; and as the last of a line. */
static void compare(const char *number) {
    char text[160];
    const double expected = strtod(number, NULL);
    for (int last = 0; last < 2; last++) {
        const int size = snprintf(text, sizeof text, "%s%s", number, last ? "" : ", lr 1.0 and more");
        const ab_log_line line = {text, text + size, false};
        const char *after = NULL;
        double value = 0;
        if (!ab_log_number(&line, text, &value, &after)) fail_msg("no number: %s", text);
        assert_ptr_equal(after, text + strlen(number));
        if (memcmp(&value, &expected, sizeof value) != 0)
            fail_msg("%s: expected %.17g, found %.17g", number, expected, value);
    }
}

static void compare_double(double x) {
    char number[96];
    if (!isfinite(x)) return;
    for (int digits = 1; digits <= 20; digits += digits < 15 ? 7 : 1) {
        snprintf(number, sizeof number, "%.*g", digits, x);
        compare(number);
        snprintf(number, sizeof number, "%.*e", digits, x);
        compare(number);
        if (fabs(x) > 1e20 || digits > 12) continue;
        snprintf(number, sizeof number, "%.*f", digits, x);
        compare(number);
    }
}

static void printed_doubles_are_read_back(void **state) {
    (void)state;
    for (int i = 0; i < 20000; i++) {
        const double size = ldexp((double)(draw() >> 11), (int)(draw() % 140) - 120);
        compare_double(draw() & 1 ? size : -size);
    }
    for (int i = 0; i < 2000; i++) {
        const uint64_t bits = draw();
        double any;
        memcpy(&any, &bits, sizeof any);
        compare_double(any);
    }
}

/* Up to 19 digits with a point at any place or an exponent. */
static void any_digits_are_read(void **state) {
    (void)state;
    char digits[32], number[96];
    for (int i = 0; i < 100000; i++) {
        const int size = snprintf(digits, sizeof digits, "%" PRIu64, draw() >> draw() % 64);
        const int whole = (int)(draw() % (uint64_t)(size + 1));
        snprintf(number, sizeof number, "%.*s.%s", whole, digits, digits + whole);
        if (size > 0 && strcmp(number, ".") != 0) compare(number);
        snprintf(number, sizeof number, "%se%d", digits, (int)(draw() % 80) - 40);
        compare(number);
        snprintf(number, sizeof number, "-0.%0*d%s", (int)(draw() % 12) + 1, 0, digits);
        compare(number);
    }
}

/* Exactly between two doubles, and next to it by the last digit. 2^k (2m + 1) with m of 53 bits. */
static void numbers_between_two_doubles_are_rounded_once(void **state) {
    (void)state;
    char number[96];
    for (int i = 0; i < 20000; i++) {
        const uint64_t middle = ((draw() >> 11 | (uint64_t)1 << 52) << 1) + 1, shift = draw() % 10;
        for (int step = -1; step <= 1; step++) {
            snprintf(number, sizeof number, "%" PRIu64, (middle << shift) + (uint64_t)(int64_t)step);
            compare(number);
        }
        /* m + 1/2, and its fourth and fifth neighbours of half as many bits */
        const uint64_t part = draw() >> (13 + draw() % 20);
        static const char *const halves[] = {".5", ".25", ".125", ".49999", ".50001", ".4999999999", ".75"};
        for (size_t k = 0; k < sizeof halves / sizeof *halves; k++) {
            snprintf(number, sizeof number, "%" PRIu64 "%s", part, halves[k]);
            compare(number);
        }
    }
}

/* Known to be hard for readers of decimal numbers. */
static void hard_numbers_are_read(void **state) {
    (void)state;
    static const char *const numbers[] = {"9007199254740993",
                                          "9007199254740992.999",
                                          "18014398509481989",
                                          "1152921504606846976.5",
                                          "9214843084008499",
                                          "0.500000000000000166533453693773481063544750213623046875",
                                          "3.518437208883201171875e13",
                                          "62.5364939768271845828",
                                          "8.10109172351e-10",
                                          "1.50000000000000011102230246251565",
                                          "2.2250738585072011e-308",
                                          "2.2250738585072014e-308",
                                          "4.9e-324",
                                          "2.4703282292062328e-324",
                                          "1.7976931348623157e308",
                                          "1e23",
                                          "8.5e22",
                                          "5e-20",
                                          "9223372036854775807",
                                          "9999999999999999999",
                                          "18446744073709551615",
                                          "18446744073709551616",
                                          "1e400",
                                          "1e-400",
                                          "0.000000000000000000000000000012345678901234567",
                                          "00000000000000000000000012",
                                          "0",
                                          "-0.0",
                                          "+7",
                                          "3.",
                                          ".5",
                                          "1E5"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) compare(numbers[i]);
}

static void what_is_no_number_is_none(void **state) {
    (void)state;
    static const char *const texts[] = {"", "-", ".", "e5", "-.", "2026-02-16", "1.2.3", "+-1", "none", "n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const ab_log_line line = {texts[i], texts[i] + strlen(texts[i]), false};
        double value;
        if (ab_log_number(&line, texts[i], &value, NULL)) fail_msg("%s: found %g", texts[i], value);
    }
}

static void digits_tell_how_exact_a_number_is(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double error;
    } numbers[] = {{"65536", 0.5}, {"65536.0", 0.05}, {"6.6E+04", 500}, {"0.25", 0.005}, {"5e-7", 5e-8}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        const char *text = numbers[i].text;
        const double error = ab_log_digit_error(text, text + strlen(text));
        assert_true(fabs(error - numbers[i].error) < 1e-9 * numbers[i].error);
    }
    static const char line_and_rest[] = "1e511";
    assert_true(ab_log_digit_error(line_and_rest, line_and_rest + 3) == 5e4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_doubles_are_read_back),
        cmocka_unit_test(any_digits_are_read),
        cmocka_unit_test(numbers_between_two_doubles_are_rounded_once),
        cmocka_unit_test(hard_numbers_are_read),
        cmocka_unit_test(what_is_no_number_is_none),
        cmocka_unit_test(digits_tell_how_exact_a_number_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
