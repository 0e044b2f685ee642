/* Short forms of a column's texts. */
#include "reports/render/elide.h"

#include "kernels/core/compiler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 8, ROOM = 96 };

/* The texts `from` become those of `to`. */
static void becomes(const char *const *from, const char *const *to, int count, int width, int most) {
    char room[MOST][ROOM] = {{0}}, *text[MOST] = {NULL};
    for (int i = 0; i < count; i++) {
        text[i] = room[i];
        assert_in_range(snprintf(room[i], ROOM, "%s", from[i]), 0, ROOM - 1);
    }
    assert_int_equal(ab_elide_distinct(text, count, width, most), AB_OK);
    for (int i = 0; i < count; i++) assert_string_equal(text[i], to[i]);
}

static void texts_that_fit_are_left_alone(void **state) {
    (void)state;
    static const char *const same[] = {"1", "dynamic", "default", "1024:skip", "dynamic"};
    becomes(same, same, (int)AB_COUNT_OF(same), 10, 24);
    becomes(same, same, 0, 10, 24);
}

static void long_texts_that_differ_stay_different(void **state) {
    (void)state;
    static const char *const from[] = {"apex:window=9", "mindspore-cell:window=10",
                                       "mindspore-cell:window=11", "mindspore-functional:window=10"};
    static const char *const to[] = {"apex:window=9", "mindspore-c..0", "mindspore-c..1", "mindspore-f..0"};
    becomes(from, to, (int)AB_COUNT_OF(from), 10, 24);
}

static void equal_texts_do_not_widen_the_column(void **state) {
    (void)state;
    static const char *const from[] = {"torch:init=65536,window=2000", "torch:init=65536,window=2000", "1"};
    static const char *const to[] = {"torc..2000", "torc..2000", "1"};
    becomes(from, to, (int)AB_COUNT_OF(from), 10, 24);
}

/* They differ in the middle only, which no form of ten columns shows. */
static void the_width_ends_at_its_limit(void **state) {
    (void)state;
    static const char *const from[] = {"aaaaaaaaaaaaaaaa1bbbbbbbbbbbbbbbb",
                                       "aaaaaaaaaaaaaaaa2bbbbbbbbbbbbbbbb"};
    static const char *const to[] = {"aaaa..bbbb", "aaaa..bbbb"};
    becomes(from, to, (int)AB_COUNT_OF(from), 8, 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_that_fit_are_left_alone),
        cmocka_unit_test(long_texts_that_differ_stay_different),
        cmocka_unit_test(equal_texts_do_not_widen_the_column),
        cmocka_unit_test(the_width_ends_at_its_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
