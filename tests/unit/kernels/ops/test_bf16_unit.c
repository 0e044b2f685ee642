/* The unit of AVX512-BF16 vectors against fmaf, bit for bit: odd value of a pair first, each product added
 * with one rounding. Ragged rows, every number of tiles, several runs, sums that start or go on. Skipped
 * where the CPU lacks it. Tiles: tests of linear and conv2d, also emulated. */
#include "kernels/ops/product/bf16_unit.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { SIDE = AB_BF16_SIDE, MOST_ROWS = 32, MOST_INNER = 64, MOST_RUNS = 3, STEP = 68, GUARD = 1234 };

static uint16_t a[4 * MOST_ROWS * MOST_INNER * MOST_RUNS], b[AB_BF16_TILES * MOST_RUNS * MOST_INNER * SIDE];
static float c[MOST_ROWS * STEP], wanted[MOST_ROWS * STEP], start[AB_BF16_TILES * SIDE];

static uint32_t random_bits(void) {
    static uint32_t state = 1;
    state = state * 1664525U + 1013904223U;
    return state >> 8;
}

/* Of either sign, 2^-4 to 2^4. */
static uint16_t random_half(void) {
    return (uint16_t)((random_bits() & 0x807fU) | (123U + random_bits() % 8U) << 7);
}

static float widen(uint16_t half) {
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float sum_of(const ab_bf16_product *p, int64_t row, int64_t column, float sum) {
    for (int64_t run = 0; run < p->runs; run++)
        for (int64_t k = 0; k < p->inner; k += 2)
            for (int64_t i = 1; i >= 0; i--)
                sum = fmaf(widen(p->a[run * p->run_step + row * p->a_step + k + i]),
                           widen(p->b[column / SIDE * p->b_step + run * p->b_run + k / 2 * p->b_row +
                                      column % SIDE * 2 + i]),
                           sum);
    return sum;
}

static void compute_wanted(const ab_bf16_product *p) {
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t j = 0; j < p->tiles * SIDE; j++) {
            float *to = &wanted[r * STEP + j];
            *to = sum_of(p, r, j, p->continues ? *to : p->start ? p->start[j] : 0.0f);
        }
}

static void fill(void) {
    for (size_t i = 0; i < AB_COUNT_OF(a); i++) a[i] = random_half();
    for (size_t i = 0; i < AB_COUNT_OF(b); i++) b[i] = random_half();
    for (size_t i = 0; i < AB_COUNT_OF(start); i++) start[i] = widen(random_half());
}

static void check_product(const ab_bf16_unit *unit, ab_bf16_product p) {
    p.a = a;
    p.b = b;
    p.c = c;
    p.c_step = STEP;
    p.b_row = 2 * SIDE;
    p.b_run = p.inner * SIDE;
    p.b_step = p.runs * p.inner * SIDE;
    p.run_step = MOST_ROWS * MOST_INNER;
    for (size_t i = 0; i < AB_COUNT_OF(c); i++) c[i] = wanted[i] = GUARD;
    compute_wanted(&p);
    unit->begin();
    unit->multiply(&p);
    unit->end();
    assert_memory_equal(c, wanted, sizeof c);
}

static void check_shapes(const ab_bf16_unit *unit, int64_t rows, int64_t runs) {
    for (int tiles = 1; tiles <= AB_BF16_TILES; tiles++)
        for (int64_t inner = unit->inner; inner <= MOST_INNER; inner += unit->inner * (1 + inner / 4)) {
            const ab_bf16_product p = {
                .a_step = inner, .rows = rows, .runs = runs, .inner = inner, .tiles = tiles};
            ab_bf16_product other = p;
            check_product(unit, p);
            other.start = start;
            check_product(unit, other);
            other.a_step = MOST_INNER - 1;
            other.continues = runs == 1;
            check_product(unit, other);
        }
}

static void sums_are_chains_of_fused_products(void **state) {
    const ab_bf16_unit *unit = ab_bf16_unit_avx512();
    (void)state;
    if (ab_isa_best() != AB_ISA_AVX512_BITALG || !unit) skip();
    fill();
    for (int64_t rows = 1; rows <= 26; rows++) {
        check_shapes(unit, rows, 1);
        check_shapes(unit, rows, MOST_RUNS);
    }
}

static void a_lower_cpu_level_has_no_unit(void **state) {
    (void)state;
    for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best() && isa < AB_ISA_AVX512_BITALG; isa++) {
        assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
        assert_null(ab_bf16_unit_get(true));
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_chains_of_fused_products),
        cmocka_unit_test(a_lower_cpu_level_has_no_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
