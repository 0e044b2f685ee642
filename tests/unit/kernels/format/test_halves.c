/* Sums and products of halves in registers against widening, fp32 arithmetic and rounding: every code, at
 * every CPU level, length and start. */
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "kernels/format/halves.h"
#include "kernels/vec/isa.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { CODES = 1 << 16, LONGEST = 131 };

static const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16};

static bool is_nan(const ab_format *format, uint16_t code) {
    float x;
    ab_widen(&x, &code, format, 1);
    return isnan(x);
}

/* Which NaN is not part of the contract. */
static void expect_same(const ab_format *format, const uint16_t *found, const uint16_t *expected, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (found[i] != expected[i] && !(is_nan(format, found[i]) && is_nan(format, expected[i])))
            fail_msg("%s: element %lld is %04x, expected %04x", format->name, (long long)i, found[i],
                     expected[i]);
}

/* b: codes or, for products, fp32. */
static void define(uint16_t *dst, const ab_format *format, const uint16_t *a, const void *b, bool product,
                   int64_t n) {
    static float x[CODES], y[CODES];
    ab_widen(x, a, format, n);
    ab_widen(y, b, product ? &ab_format_fp32 : format, n);
    for (int64_t i = 0; i < n; i++) x[i] = product ? x[i] * y[i] : x[i] + y[i];
    ab_narrow(dst, format, x, n);
}

static uint32_t word_at(uint32_t round, int64_t i) {
    return ab_rng_at(7, AB_RNG_SAMPLE, round, (uint64_t)i).word[0];
}

static uint16_t a[CODES], b[CODES], found[CODES], expected[CODES];
static float factor[CODES];

/* Second operands: random codes, and the first turned about, so that sums cancel and products are squares. */
static void draw(const ab_format *format, uint32_t round) {
    for (int64_t i = 0; i < CODES; i++) {
        a[i] = (uint16_t)i;
        b[i] = round ? (uint16_t)word_at(round, i) : (uint16_t)(i ^ 0x8000);
        const uint32_t bits = word_at(100 + round, i);
        memcpy(&factor[i], &bits, sizeof bits);
    }
    if (round % 2) ab_widen(factor, b, format, CODES);
}

static void every_code_gives_the_rounded_fp32_result(void **state) {
    (void)state;
    for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++)
        for (size_t f = 0; f < AB_COUNT_OF(formats) && ab_isa_force((ab_isa)isa) == AB_OK; f++)
            for (uint32_t round = 0; round < 8; round++) {
                draw(formats[f], round);
                define(expected, formats[f], a, b, false, CODES);
                ab_add_halves(found, formats[f], a, b, CODES);
                expect_same(formats[f], found, expected, CODES);
                define(expected, formats[f], a, factor, true, CODES);
                ab_scale_halves(found, formats[f], a, factor, CODES);
                expect_same(formats[f], found, expected, CODES);
            }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

static void check_length(const ab_format *format, int64_t start, int64_t n) {
    memset(found, 0xa5, sizeof found);
    define(expected + start, format, a + start, b + start, false, n);
    ab_add_halves(found + start, format, a + start, b + start, n);
    expect_same(format, found + start, expected + start, n);
    assert_true((start == 0 || found[start - 1] == 0xa5a5) && found[start + n] == 0xa5a5);
    define(expected + start, format, a + start, factor + start, true, n);
    memcpy(found + start, a + start, (size_t)n * sizeof *a); /* in place */
    ab_scale_halves(found + start, format, found + start, factor + start, n);
    expect_same(format, found + start, expected + start, n);
    assert_true((start == 0 || found[start - 1] == 0xa5a5) && found[start + n] == 0xa5a5);
}

static void any_length_and_start_and_nothing_beside(void **state) {
    (void)state;
    for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++)
        for (size_t f = 0; f < AB_COUNT_OF(formats) && ab_isa_force((ab_isa)isa) == AB_OK; f++) {
            draw(formats[f], 3);
            for (int64_t n = 0; n <= LONGEST; n++)
                for (int64_t start = 0; start < 3; start++) check_length(formats[f], start, n);
        }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_code_gives_the_rounded_fp32_result),
        cmocka_unit_test(any_length_and_start_and_nothing_beside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
