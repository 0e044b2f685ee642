/* Array conversions at every CPU level agree bit for bit with the scalar definition, on hostile data, at
 * every length and start, and write nothing else. */
#include "kernels/core/rng.h"
#include "kernels/format/convert.h"
#include "kernels/vec/isa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LONGEST = 257, STARTS = 17, ROOM = LONGEST + STARTS + 32, GUARD = 0xa5 };

static const ab_rounding rne = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};

static const ab_format *find(const char *name) {
    const ab_format *format = NULL;
    assert_int_equal(ab_format_find(name, &format), AB_OK);
    return format;
}

static float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static uint32_t bits_of(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* ---- data ------------------------------------------------------------------------------------ */

static const uint32_t specials[] = {
    0x00000000, 0x80000000, 0x7f800000, 0xff800000, 0x7f800001, 0x7fffffff, 0xffc01234, 0x00000001,
    0x807fffff, 0x00800000, 0x33000000, 0x33000001, 0xb3800000, 0x387fe000, 0x387fffff, 0x477fe000,
    0x477fefff, 0x477ff000, 0x3f801000, 0x3f803000, 0x3f808000, 0x3f818000, 0x7f7fffff, 0x7f7f8000,
    0x43e80000, 0x43e80001, 0x43e00000, 0x3a800000, 0x3a800001, 0x38ffffff, 0x477fffff, 0xc7700000,
};

/* Kind 0: any bits; 1: specials, ties and limits; 2: around half's range, with many ties; 3: one value
 * only. */
static float datum(int kind, uint32_t seed, uint64_t i) {
    uint32_t word = ab_rng_at(seed, AB_RNG_SAMPLE, (uint32_t)kind, i).word[0];
    if (kind == 1) return float_of(specials[word % AB_COUNT_OF(specials)]);
    if (kind == 2) /* fractions of 10 bits, half of them followed by the bit that makes a tie in fp16 */
        return float_of((word & 0x80000000U) | (100 + (word >> 8) % 46) << 23 | (word & 0x3ffU) << 13 |
                        (word >> 30 & 1) << 12);
    if (kind == 3) return float_of(specials[seed % AB_COUNT_OF(specials)]);
    return float_of(word);
}

enum { KINDS = 4 };

/* Calls `check` at every level that this CPU has. */
static void at_each_level(void (*check)(void)) {
    const ab_isa before = ab_isa_get();
    for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best(); isa++) {
        assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
        check();
    }
    assert_int_equal(ab_isa_force(before), AB_OK);
}

/* Bytes of `memory` outside [from, to) still hold the guard. */
static void check_guard(const uint8_t *memory, size_t size, size_t from, size_t to) {
    for (size_t i = 0; i < size; i++)
        if (i < from || i >= to) assert_int_equal(memory[i], GUARD);
}

static uint64_t code_at(const void *codes, size_t bytes, int64_t i) {
    const uint8_t *at = (const uint8_t *)codes + (size_t)i * bytes;
    uint64_t code = 0;
    for (size_t b = 0; b < bytes; b++)
        code |= (uint64_t)at[b] << 8 * b; /* little-endian, as every CPU tested on */
    return code;
}

/* ---- narrow and widen ------------------------------------------------------------------------ */

static void check_narrow(const ab_format *format, int kind, int64_t n, int64_t start) {
    static uint8_t stored[ROOM * 8];
    static float source[ROOM], back[ROOM];
    size_t bytes = ab_format_bytes(format, 1), from = (size_t)start * bytes, to = from + (size_t)n * bytes;
    bool contained = format->storage_bytes == 0;
    for (int64_t i = 0; i < n; i++) source[start + i] = datum(kind, (uint32_t)n, (uint64_t)i);
    memset(stored, GUARD, sizeof stored);
    memset(back, GUARD, sizeof back);
    ab_narrow(stored + from, format, source + start, n);
    check_guard(stored, sizeof stored, from, to);
    ab_widen(back + start, stored + from, format, n);
    check_guard((uint8_t *)back, sizeof back, (size_t)start * sizeof *back,
                (size_t)(start + n) * sizeof *back);
    for (int64_t i = 0; i < n; i++) {
        uint64_t code = ab_format_encode(format, &rne, (double)source[start + i]);
        uint32_t value = bits_of((float)ab_format_decode(format, code));
        if (format == &ab_format_fp32)
            code = value = bits_of(source[start + i]); /* a copy: nan is left alone */
        assert_int_equal(code_at(stored + from, bytes, i), contained ? value : code);
        assert_int_equal(bits_of(back[start + i]), value);
    }
}

static void narrow_and_widen_all_lengths(void) {
    static const char *const names[] = {"fp16",     "bf16", "fp32", "fp64", "fp8_e4m3",
                                        "fp8_e5m2", "tf32", "e6m9", "e9m4"};
    for (size_t f = 0; f < AB_COUNT_OF(names); f++) {
        const ab_format *format = find(names[f]);
        for (int64_t n = 0; n <= LONGEST; n += n < 70 ? 1 : 17)
            for (int kind = 0; kind < KINDS; kind++) check_narrow(format, kind, n, n * 7 % STARTS);
        check_narrow(format, 1, LONGEST, 1);
    }
}

static void narrow_and_widen_agree_with_the_definition(void **state) {
    (void)state;
    at_each_level(narrow_and_widen_all_lengths);
}

static void widen_all_patterns(void) {
    static const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16};
    enum { PATTERNS = 65536 };
    static uint16_t codes[PATTERNS];
    static float values[PATTERNS];
    for (uint32_t code = 0; code < PATTERNS; code++) codes[code] = (uint16_t)code;
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
        ab_widen(values, codes, formats[f], PATTERNS);
        for (uint32_t code = 0; code < PATTERNS; code++)
            assert_int_equal(bits_of(values[code]), bits_of((float)ab_format_decode(formats[f], code)));
    }
}

static void all_16_bit_patterns_widen_exactly(void **state) {
    (void)state;
    at_each_level(widen_all_patterns);
}

static void fp32_in_place_is_left_alone(void **state) {
    float x[2] = {float_of(0x7f800001), 1.5F};
    (void)state;
    ab_narrow(x, &ab_format_fp32, x, 2);
    ab_widen(x, x, &ab_format_fp32, 2);
    assert_int_equal(bits_of(x[0]), 0x7f800001);
}

static void empty_arrays_may_be_null(void **state) {
    (void)state;
    for (int i = 0; i < ab_format_count(); i++) {
        ab_narrow(NULL, ab_format_at(i), NULL, 0);
        ab_widen(NULL, NULL, ab_format_at(i), 0);
        ab_round_array(NULL, ab_format_at(i), &rne, 0);
        ab_encode_array(NULL, ab_format_at(i), &rne, NULL, 0);
        ab_decode_array(NULL, NULL, ab_format_at(i), 0);
    }
}

/* Rows of 7 of every 11 values. Formats without a storage type stay fp32 values. */
static void rows_are_widened_as_arrays_are(void **state) {
    (void)state;
    enum { ROWS = 5, WIDTH = 7, STEP = 11, ALL = ROWS * STEP };
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16,
                                               &ab_format_fp64, &ab_format_fp8_e4m3};
    for (size_t k = 0; k < AB_COUNT_OF(formats); k++) {
        float values[ALL], dense[ROWS * WIDTH], row[WIDTH];
        uint64_t stored[ALL];
        const size_t bytes = ab_format_bytes(formats[k], 1);
        for (int i = 0; i < ALL; i++) values[i] = (float)(i - 20) / 7.0f;
        memset(stored, GUARD, sizeof stored);
        ab_narrow(stored, formats[k], values, ALL);
        ab_widen_rows(dense, stored, formats[k], ROWS, WIDTH, STEP);
        for (size_t r = 0; r < ROWS; r++) {
            ab_widen(row, (const char *)stored + r * STEP * bytes, formats[k], WIDTH);
            assert_memory_equal(row, dense + r * WIDTH, sizeof row);
        }
    }
}

static void fp64_is_rounded_to_fp32_once(void **state) {
    const double x[3] = {1 + 0x1p-24, 1 + 0x1p-24 + 0x1p-50, 1e300};
    float y[3];
    (void)state;
    ab_widen(y, x, &ab_format_fp64, 3);
    assert_true(y[0] == 1 && y[1] == 1 + 0x1p-23F && bits_of(y[2]) == 0x7f800000);
}

/* ---- any format and rounding ----------------------------------------------------------------- */

static void check_any(const ab_format *format, const ab_rounding *rounding, int kind, int64_t n,
                      int64_t start) {
    static uint8_t codes[ROOM * 8];
    static float x[ROOM], values[ROOM], decoded[ROOM];
    size_t bytes = ab_code_bytes(format), from = (size_t)start * bytes;
    memset(codes, GUARD, sizeof codes);
    memset(values, GUARD, sizeof values);
    for (int64_t i = 0; i < n; i++) x[i] = values[start + i] = datum(kind, (uint32_t)n, (uint64_t)i);
    ab_encode_array(codes + from, format, rounding, x, n);
    ab_round_array(values + start, format, rounding, n);
    ab_decode_array(decoded, codes + from, format, n);
    check_guard(codes, sizeof codes, from, from + (size_t)n * bytes);
    check_guard((uint8_t *)values, sizeof values, (size_t)start * sizeof *values,
                (size_t)(start + n) * sizeof *values);
    for (int64_t i = 0; i < n; i++) {
        uint64_t code = ab_format_encode(format, rounding, (double)x[i]);
        uint32_t value = bits_of((float)ab_format_decode(format, code));
        assert_int_equal(code_at(codes + from, bytes, i), code);
        assert_int_equal(bits_of(values[start + i]), value);
        assert_int_equal(bits_of(decoded[i]), value);
    }
}

static void any_format_and_rounding(void) {
    static const char *const names[] = {"fp64",     "fp32",     "tf32", "fp16",   "bf16",  "fp8_e4m3",
                                        "fp8_e5m2", "fp4_e2m1", "e6m9", "e2m1",   "e7m21", "e7m22",
                                        "e5m23",    "e8m22",    "e9m3", "e11m20", "e3m40"};
    for (size_t f = 0; f < AB_COUNT_OF(names); f++) {
        const ab_format *format = find(names[f]);
        for (int option = 0; option < 30; option++) {
            ab_rounding rounding = {(ab_round_mode)(option % 5), option / 5 % 2 != 0, (ab_ftz)(option / 10),
                                    0, 0};
            for (int kind = 0; kind < KINDS; kind++)
                check_any(format, &rounding, kind, 3 + option * 7, option % STARTS);
        }
        for (int64_t n = 0; n <= 70; n++) check_any(format, &rne, (int)(n % KINDS), n, n % STARTS);
    }
}

static void every_rounding_agrees_with_the_definition(void **state) {
    (void)state;
    at_each_level(any_format_and_rounding);
}

static void code_bytes_hold_the_bits(void **state) {
    static const struct {
        const char *name;
        size_t bytes;
    } expected[] = {{"fp4_e2m1", 1}, {"fp8_e4m3", 1}, {"e6m2", 2},  {"fp16", 2},
                    {"tf32", 4},     {"fp32", 4},     {"e11m21", 8}};
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(expected); i++)
        assert_int_equal(ab_code_bytes(find(expected[i].name)), expected[i].bytes);
}

/* ---- stochastic ------------------------------------------------------------------------------ */

static void stochastic_arrays_use_the_words_that_they_promise(void **state) {
    const ab_rounding rounding = {AB_ROUND_STOCHASTIC, false, AB_FTZ_NONE, 12, 0};
    float values[LONGEST];
    (void)state;
    for (int i = 0; i < LONGEST; i++) values[i] = datum(2, 5, (uint64_t)i);
    ab_round_array_stochastic(values, &ab_format_fp16, &rounding, 42, 7, 1001, LONGEST);
    for (int i = 0; i < LONGEST; i++) {
        uint64_t at = 1001 + (uint64_t)i;
        ab_rounding own = rounding;
        own.random = ab_rng_at(42, AB_RNG_ROUNDING, 7, at / 4).word[at % 4];
        float expected = (float)ab_format_round(&ab_format_fp16, &own, (double)datum(2, 5, (uint64_t)i));
        assert_int_equal(bits_of(values[i]), bits_of(expected));
    }
}

static void stochastic_rounding_does_not_depend_on_the_split(void **state) {
    const ab_rounding rounding = {AB_ROUND_STOCHASTIC, false, AB_FTZ_NONE, 32, 0};
    float whole[LONGEST], parts[LONGEST];
    (void)state;
    for (int i = 0; i < LONGEST; i++) whole[i] = parts[i] = datum(2, 9, (uint64_t)i);
    ab_round_array_stochastic(whole, &ab_format_bf16, &rounding, 1, 2, 3, LONGEST);
    ab_round_array_stochastic(parts, &ab_format_bf16, &rounding, 1, 2, 3, 101);
    ab_round_array_stochastic(parts + 101, &ab_format_bf16, &rounding, 1, 2, 3 + 101, LONGEST - 101);
    assert_memory_equal(whole, parts, sizeof whole);
}

/* ---- CPU levels ------------------------------------------------------------------------------ */

static void levels_are_found_by_name_and_never_raised(void **state) {
    ab_isa isa = AB_ISA_PLAIN;
    (void)state;
    for (int i = AB_ISA_PLAIN; i <= AB_ISA_AVX512_BITALG; i++) {
        assert_int_equal(ab_isa_find(ab_isa_name((ab_isa)i), &isa), AB_OK);
        assert_int_equal(isa, i);
        if (i > (int)ab_isa_best()) assert_int_equal(ab_isa_force((ab_isa)i), AB_UNAVAILABLE);
    }
    assert_int_equal(ab_isa_find("avx", &isa), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "nearest: avx2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(narrow_and_widen_agree_with_the_definition),
        cmocka_unit_test(all_16_bit_patterns_widen_exactly),
        cmocka_unit_test(fp32_in_place_is_left_alone),
        cmocka_unit_test(empty_arrays_may_be_null),
        cmocka_unit_test(rows_are_widened_as_arrays_are),
        cmocka_unit_test(fp64_is_rounded_to_fp32_once),
        cmocka_unit_test(every_rounding_agrees_with_the_definition),
        cmocka_unit_test(code_bytes_hold_the_bits),
        cmocka_unit_test(stochastic_arrays_use_the_words_that_they_promise),
        cmocka_unit_test(stochastic_rounding_does_not_depend_on_the_split),
        cmocka_unit_test(levels_are_found_by_name_and_never_raised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
