/* Sums of greys against closed forms and one byte at a time. */
#include "bench/data/greys.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = (1 << 17) + 37 }; /* more than the vectors that are added without widening */

static void brightest_images_do_not_overflow(void **state) {
    (void)state;
    uint8_t *pixel = malloc(MOST);
    assert_non_null(pixel);
    memset(pixel, 255, MOST);
    const ab_grey_sums sums = ab_grey_sums_of(pixel, MOST);
    assert_true(sums.sum == (uint64_t)MOST * 255 && sums.squares == (uint64_t)MOST * 255 * 255);
    free(pixel);
}

static void every_length_and_alignment_is_added_once(void **state) {
    (void)state;
    uint8_t pixel[160];
    for (int i = 0; i < 160; i++) pixel[i] = (uint8_t)(i * 151 + 7);
    for (int from = 0; from < 17; from++) {
        uint64_t sum = 0, squares = 0;
        for (int n = 0; from + n <= 160; n++) {
            const ab_grey_sums sums = ab_grey_sums_of(pixel + from, n);
            assert_true(sums.sum == sum && sums.squares == squares);
            if (from + n == 160) break;
            sum += pixel[from + n];
            squares += (uint64_t)pixel[from + n] * pixel[from + n];
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(brightest_images_do_not_overflow),
        cmocka_unit_test(every_length_and_alignment_is_added_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
