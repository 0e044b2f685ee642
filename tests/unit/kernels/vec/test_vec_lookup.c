/* Lookups by bytes against indexing the table, at every CPU level, for every length up to several vectors. */
#include "kernels/vec/isa.h"
#include "kernels/vec/vec_lookup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 300, GUARD = 0x5a };

/* All four bytes of a value differ from each other and from those of other values. */
static uint32_t value_of(int i) { return (uint32_t)(i + 1) * 0x9e3779b1u; }

static void each_level(void (*check)(void)) {
    for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best(); isa++) {
        assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
        check();
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

/* The values of indices [from, from + n) and nothing behind them are written. */
static void check_part(const ab_lookup_table *table, const void *values, size_t bytes, int from, int n) {
    uint8_t index[MOST + 64];
    unsigned char found[4 * MOST + 4];
    const char *value = values;
    for (int i = 0; i < MOST + 64; i++) index[i] = (uint8_t)(i * 167 + from);
    memset(found, GUARD, sizeof found);
    ab_vec_lookup_get()->look_up(found, table, index + from, n);
    for (int i = 0; i < n; i++)
        assert_memory_equal(found + (size_t)i * bytes, value + index[from + i] * bytes, bytes);
    for (size_t at = (size_t)n * bytes; at < sizeof found; at++) assert_int_equal(found[at], GUARD);
}

static void check_table(const void *values, size_t bytes) {
    ab_lookup_table table;
    ab_vec_lookup_get()->prepare(&table, values, (int)bytes);
    for (int n = 0; n < MOST; n++) check_part(&table, values, bytes, n % 64, n);
}

static void check_floats(void) {
    uint32_t bits[AB_LOOKUP];
    for (int i = 0; i < AB_LOOKUP; i++) bits[i] = value_of(i);
    check_table(bits, 4);
}

static void check_halves(void) {
    uint16_t codes[AB_LOOKUP];
    for (int i = 0; i < AB_LOOKUP; i++) codes[i] = (uint16_t)(value_of(i) >> 8);
    check_table(codes, 2);
}

static void floats_are_found_at_every_level(void **state) {
    (void)state;
    each_level(check_floats);
}

static void codes_of_16_bits_are_found_at_every_level(void **state) {
    (void)state;
    each_level(check_halves);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_are_found_at_every_level),
        cmocka_unit_test(codes_of_16_bits_are_found_at_every_level),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
