/* The library's product of squares, against sums in double. */
#include "kernels/format/format.h"
#include "kernels/ops/product/square.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { SIDE = 64 };

static double expected(int64_t row, int64_t column) {
    double sum = 0;
    for (int64_t k = 0; k < SIDE; k++)
        sum += (double)ab_square_element(row * SIDE + k) * (double)ab_square_element(column * SIDE + k);
    return sum;
}

static void every_format_gives_the_product(void **state) {
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    (void)state;
    int computed = 0;
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
        ab_square *square;
        assert_int_equal(ab_square_open(SIDE, formats[f], &square), AB_OK);
        if (!square) continue; /* not in this library, or not on this CPU */
        assert_int_equal(ab_square_run(square), AB_OK);
        for (int64_t i = 0; i < SIDE * SIDE; i++)
            assert_true(fabs((double)ab_square_result(square)[i] - expected(i / SIDE, i % SIDE)) < 1e-5);
        ab_square_close(square);
        computed++;
    }
    if (computed == 0) skip();
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_format_gives_the_product)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
