/* Numbers as users write them. */
#include "kernels/core/number.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* `text` is read as `value` and what is left of it is `rest`. */
static void reads(const char *text, double value, const char *rest) {
    char *end = NULL;
    const double found = ab_number_read(text, &end);
    if (found != value) fail_msg("%s: expected %.17g, found %.17g", text, value, found);
    assert_string_equal(end, rest);
}

static void plain_numbers_are_those_of_strtod(void **state) {
    (void)state;
    static const char *const texts[] = {"128", "1e-3", "0x1p-7", " 3.5", "-2", "inf"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) reads(texts[i], strtod(texts[i], NULL), "");
    reads("3%", 3, "%");
    reads("512MiB", 512, "MiB");
    reads("128:skip", 128, ":skip");
}

static void powers_are_exact(void **state) {
    (void)state;
    for (int k = -149; k <= 127; k++) {
        char text[16] = "2^", *at = text + 2;
        if (k < 0) *at++ = '-';
        const int size = abs(k);
        if (size >= 100) *at++ = (char)('0' + size / 100);
        if (size >= 10) *at++ = (char)('0' + size / 10 % 10);
        *at++ = (char)('0' + size % 10);
        *at = '\0';
        reads(text, ldexp(1, k), "");
    }
    reads("10**3", 1000, "");
    reads("2^7:skip", 128, ":skip");
}

static void a_power_without_an_exponent_is_no_number(void **state) {
    (void)state;
    reads("2^", 0, "2^");
    reads("2**x", 0, "2**x");
    reads("^7", 0, "^7");
    reads("", 0, "");
    reads("two", 0, "two");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_numbers_are_those_of_strtod),
        cmocka_unit_test(powers_are_exact),
        cmocka_unit_test(a_power_without_an_exponent_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
