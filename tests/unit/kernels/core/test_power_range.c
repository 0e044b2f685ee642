/* Ranges of powers against powers made by ldexp, and what is none. */
#include "kernels/core/number.h"
#include "kernels/core/power_range.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void items_read_back_as_the_powers(void **state) {
    (void)state;
    static const struct {
        const char *text, *rest;
        int first, step, count;
    } rows[] = {{"2^0..2^24", "", 0, 1, 25},     {"2^0..2^24:4", "", 0, 4, 7},
                {"2**-3..2^3:5", "", -3, 5, 2},  {"0.25..64:skip", ":skip", -2, 1, 9},
                {"2^7..2^7:2:x", ":x", 7, 2, 1}, {"2^-1074..2^1023:2097", "", -1074, 2097, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ab_power_range range;
        assert_true(ab_power_range_is(rows[i].text));
        const char *rest = ab_power_range_parse(rows[i].text, &range);
        if (!rest) fail_msg("%s was refused", rows[i].text);
        assert_string_equal(rest, rows[i].rest);
        assert_int_equal(range.count, rows[i].count);
        for (int k = 0; k < range.count; k++) {
            char item[AB_POWER_RANGE_ITEM], *end;
            const double x = ab_number_read(ab_power_range_item(&range, k, item), &end);
            assert_true(x == ldexp(1, rows[i].first + k * rows[i].step) && *end == '\0');
        }
    }
}

static void what_is_no_range_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"2^3..2^1",    "2^0..3^4",   "3..12",    "2^0..",   "..2^4",
                                      "2^0..2^4:0",  "2^0..2^4:",  "1^0..1^4", "0..4",    "-2..4",
                                      "2^0..2^9999", "nan..2^4",   "2^0..inf", "2^0 2^4", "2^0..2^4..2^8",
                                      "2^0..2^4:-1", "2^0..2^4:4x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        ab_power_range range;
        if (ab_power_range_parse(bad[i], &range)) fail_msg("%s was taken", bad[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(items_read_back_as_the_powers),
                                       cmocka_unit_test(what_is_no_range_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
