/* The proof engine finds planted mistakes, counts them exactly, and does not depend on the number of
 * threads. */
#include "bench/prove/oracle.h"
#include "bench/prove/prove.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const ab_rounding rne = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_NONE, 0, 0};

enum {
    FLUSHED = 0x33,
    SUBNORMAL = 0x37,
    NORMAL = 0x3f,
    OVERFLOWING = 0x47
}; /* first byte of the inputs' bits */

static uint32_t value_of(const ab_format *format, uint32_t code) {
    float value = (float)ab_format_decode(format, code);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Rounds as told, whatever is asked of it. */
static void convert_as(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                       uint32_t *codes, uint32_t *values) {
    for (int64_t i = 0; i < n; i++) {
        codes[i] = (uint32_t)ab_format_encode(format, rounding, (double)x[i]);
        values[i] = value_of(format, codes[i]);
    }
}

static void convert_right(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                          uint32_t *codes, uint32_t *values) {
    convert_as(format, rounding, x, n, codes, values);
}

static void convert_truncating(const ab_format *format, const ab_rounding *rounding, const float *x,
                               int64_t n, uint32_t *codes, uint32_t *values) {
    const ab_rounding other = {AB_ROUND_TOWARD_ZERO, false, AB_FTZ_NONE, 0, 0};
    (void)rounding;
    convert_as(format, &other, x, n, codes, values);
}

static void convert_ties_away(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                              uint32_t *codes, uint32_t *values) {
    const ab_rounding other = {AB_ROUND_NEAREST_AWAY, false, AB_FTZ_NONE, 0, 0};
    (void)rounding;
    convert_as(format, &other, x, n, codes, values);
}

static void convert_flushing(const ab_format *format, const ab_rounding *rounding, const float *x, int64_t n,
                             uint32_t *codes, uint32_t *values) {
    const ab_rounding other = {AB_ROUND_NEAREST_EVEN, false, AB_FTZ_AFTER, 0, 0};
    (void)rounding;
    convert_as(format, &other, x, n, codes, values);
}

static void convert_wrong_value(const ab_format *format, const ab_rounding *rounding, const float *x,
                                int64_t n, uint32_t *codes, uint32_t *values) {
    convert_as(format, rounding, x, n, codes, values);
    if (x[0] == 1) values[5] ^= 1;
}

static ab_proof_verdict verdict_on(void (*convert)(const ab_format *, const ab_rounding *, const float *,
                                                   int64_t, uint32_t *, uint32_t *),
                                   int block) {
    const ab_subject subject = {"planted", convert, false};
    ab_proof_verdict verdict;
    assert_int_equal(ab_prove_subject(&subject, &ab_format_fp16, &rne, block, 1, &verdict, NULL), AB_OK);
    assert_int_equal(verdict.inputs, 1 << 24);
    return verdict;
}

static void planted_mistakes_are_counted_exactly(void **state) {
    (void)state;
    assert_int_equal(verdict_on(convert_right, NORMAL).mismatches, 0);
    /* 13 bits go: above the tie 4095 of 8192 differ, at the tie every other one */
    assert_int_equal(verdict_on(convert_truncating, NORMAL).mismatches, (1 << 24) / 16384 * (2 * 4095 + 1));
    assert_int_equal(verdict_on(convert_ties_away, NORMAL).mismatches, (1 << 24) / 16384);
    assert_int_equal(verdict_on(convert_flushing, NORMAL).mismatches, 0);
    assert_int_equal(verdict_on(convert_wrong_value, 0x3f).mismatches, 1);
}

static void planted_flushing_shows_where_results_are_subnormal(void **state) {
    ab_proof_verdict verdict = verdict_on(convert_flushing, FLUSHED);
    (void)state;
    assert_int_equal(verdict.input, 0x33000001); /* the first above 2^-25 */
    assert_int_equal(verdict.expected, 1);
    assert_int_equal(verdict.got, 0);
    assert_int_equal(verdict.mismatches, 0x34000000 - 0x33000001);
    assert_int_equal(verdict_on(convert_flushing, SUBNORMAL).mismatches, 1 << 24);
}

static void tallies_count_results_by_kind(void **state) {
    const ab_subject subject = {"right", convert_right, false};
    ab_proof_verdict verdict;
    ab_proof_tally tally;
    (void)state;
    assert_int_equal(ab_prove_subject(&subject, &ab_format_fp16, &rne, OVERFLOWING, 1, &verdict, &tally),
                     AB_OK);
    assert_int_equal(tally.normal, 0x477ff000 - 0x47000000);
    assert_int_equal(tally.infinite, 0x48000000 - 0x477ff000);
    assert_int_equal(tally.zero + tally.subnormal + tally.nan, 0);
    assert_int_equal(ab_prove_subject(&subject, &ab_format_fp16, &rne, 0x7f, 1, &verdict, &tally), AB_OK);
    assert_int_equal(tally.infinite, 0x800001);
    assert_int_equal(tally.nan, 0x7fffff);
}

static void outcomes_do_not_depend_on_the_number_of_threads(void **state) {
    const ab_subject subject = {"planted", convert_ties_away, false};
    const int before = omp_get_max_threads();
    ab_proof_verdict verdict[2];
    ab_proof_tally tally[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        omp_set_num_threads(i == 0 ? 1 : 3);
        assert_int_equal(
            ab_prove_subject(&subject, &ab_format_fp8_e5m2, &rne, 0x3c, 4, &verdict[i], &tally[i]), AB_OK);
    }
    omp_set_num_threads(before);
    assert_int_equal(tally[0].checksum, tally[1].checksum);
    assert_int_equal(verdict[0].mismatches, verdict[1].mismatches);
    assert_int_equal(verdict[0].input, verdict[1].input);
}

static void what_the_oracle_does_not_cover_is_refused(void **state) {
    static const char *const names[] = {"fp64", "e9m4", "e8m24"};
    const ab_rounding stochastic = {AB_ROUND_STOCHASTIC, false, AB_FTZ_NONE, 8, 0};
    const ab_format *format = NULL;
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        assert_int_equal(ab_format_find(names[i], &format), AB_OK);
        assert_int_equal(ab_prove_check(format, &rne), AB_UNAVAILABLE);
    }
    assert_int_equal(ab_prove_check(&ab_format_fp16, &stochastic), AB_UNAVAILABLE);
    assert_int_equal(ab_prove_check(&ab_format_fp32, &rne), AB_OK);
}

static void the_cpus_instruction_is_only_compared_with_what_it_does(void **state) {
    const ab_rounding saturating = {AB_ROUND_NEAREST_EVEN, true, AB_FTZ_NONE, 0, 0};
    const ab_hardware_convert *hardware = ab_hardware_find(&ab_format_fp16, &rne);
    (void)state;
    assert_null(ab_hardware_find(&ab_format_fp16, &saturating));
    assert_null(ab_hardware_find(&ab_format_fp8_e4m3, &rne));
    if (hardware != NULL) {
        const float x[8] = {1, 65520, 0x1p-25F, -2, 0, 0x1.8p-25F, 1e-8F, 3};
        uint16_t codes[8];
        hardware->convert(codes, x, 8);
        for (int i = 0; i < 8; i++)
            assert_int_equal(codes[i], ab_format_encode(&ab_format_fp16, &rne, (double)x[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planted_mistakes_are_counted_exactly),
        cmocka_unit_test(planted_flushing_shows_where_results_are_subnormal),
        cmocka_unit_test(tallies_count_results_by_kind),
        cmocka_unit_test(outcomes_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(what_the_oracle_does_not_cover_is_refused),
        cmocka_unit_test(the_cpus_instruction_is_only_compared_with_what_it_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
