/* All 2^32 fp32 patterns through the census, at every CPU level: in order, and at the best level also
 * shuffled. The counts must be those that follow from the number of mantissas in each class, which is
 * known without looking at a value. */
#include "kernels/census/census.h"
#include "kernels/vec/isa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PART = 1 << 22 };

/* Mantissas in lo .. hi - 1 that are multiples of 2^step. */
static int64_t multiples(int64_t lo, int64_t hi, int step) {
    int64_t unit = INT64_C(1) << step;
    return (hi + unit - 1) / unit - (lo + unit - 1) / unit;
}

static void expect_row(ab_census *census, int exponent) {
    static const int64_t common[] = {0, 1, 0x600000, 0x680001, 0x700000, 0x7fe000, 0x7ff000, 0x800000};
    static const int64_t outer[] = {0,        1,        0x81,     0x401,    0x600000, 0x680001, 0x700000,
                                    0x7effff, 0x7f8000, 0x7fdfff, 0x7fe000, 0x7ff000, 0x7fffff, 0x800000};
    const int64_t *edge = abs(exponent) <= 66 ? common : outer;
    int step = exponent < -126 ? -126 - exponent : 0; /* subnormals have fewer bits */
    for (int c = 0; c == 0 || edge[c] < 0x800000; c++)
        census->bin[exponent + 149][c] = 2 * multiples(edge[c], edge[c + 1], step);
}

static void expect_all(ab_census *census) {
    memset(census, 0, sizeof *census);
    for (int e = -149; e <= 127; e++) expect_row(census, e);
    census->count = INT64_C(1) << 32;
    census->zero = 2;
    census->pos_inf = census->neg_inf = 1;
    census->nan = census->subnormal = 2 * 0x7fffff;
    census->min_abs = 0x1p-149f;
    census->max_abs = 0x1.fffffep127f;
}

/* Pattern i is i * stride modulo 2^32; an odd stride meets every pattern once. */
static void count_all(ab_census *census, uint32_t stride, float *values) {
    ab_census_clear(census);
    for (uint64_t first = 0; first < UINT64_C(1) << 32; first += PART) {
        for (uint32_t i = 0; i < PART; i++) {
            uint32_t bits = ((uint32_t)first + i) * stride;
            memcpy(values + i, &bits, sizeof bits);
        }
        ab_census_add(census, values, PART);
    }
}

static void check(uint32_t stride) {
    ab_census *want = malloc(sizeof *want), *got = malloc(sizeof *got);
    float *values = malloc(PART * sizeof *values);
    assert_true(want != NULL && got != NULL && values != NULL);
    expect_all(want);
    count_all(got, stride, values);
    want->sum_squares = got->sum_squares;
    assert_memory_equal(got, want, sizeof *got);
    free(values);
    free(got);
    free(want);
}

static void in_order_at_every_level(void **state) {
    (void)state;
    for (int level = 0; level <= (int)ab_isa_best(); level++) {
        assert_int_equal(ab_isa_force((ab_isa)level), AB_OK);
        check(1);
    }
}

static void shuffled(void **state) {
    (void)state;
    check(2654435761u);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(in_order_at_every_level), cmocka_unit_test(shuffled)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
