/* Re-proves the 25 pairs of tests/golden/format_checksums.txt on all 2^32 inputs, each at every CPU level
 * that this CPU has and against its own instruction, and compares the checksums. About a minute a pair and
 * core. */
#include "bench/prove/prove.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The committed checksum of "format,mode". */
static uint64_t committed(const char *pair) {
    char line[128], name[64];
    uint64_t checksum = 0;
    FILE *file = fopen(AB_SOURCE_DIR "/tests/golden/format_checksums.txt", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        if (sscanf(line, "%63s %" SCNx64, name, &checksum) == 2 && strcmp(name, pair) == 0) {
            fclose(file);
            return checksum;
        }
    }
    fclose(file);
    fail_msg("tests/golden/format_checksums.txt has no %s", pair);
    return 0;
}

static void prove_pair(const ab_format *format, ab_round_mode mode) {
    const ab_rounding rounding = {mode, false, AB_FTZ_NONE, 0, 0};
    char pair[64];
    ab_proof proof;
    snprintf(pair, sizeof pair, "%s,%s", format->name, ab_round_mode_name(mode));
    assert_int_equal(ab_prove(format, &rounding, true, &proof), AB_OK);
    for (int i = 0; i < proof.verdicts; i++) {
        const ab_proof_verdict *v = &proof.verdict[i];
        print_message("%-14s %-14s %10" PRIu64 " inputs %" PRIu64 " mismatches\n", pair, v->subject,
                      v->inputs, v->mismatches);
    }
    print_message("%-14s %016" PRIx64 " in %.1f s\n", pair, proof.tally.checksum, proof.seconds);
    assert_int_equal(ab_proof_mismatches(&proof), 0);
    assert_int_equal(proof.tally.checksum, committed(pair));
}

/* *state points to the format's pointer. */
static void all_inputs_round_right_in_every_mode(void **state) {
    const ab_format *const *format = *state;
    for (int mode = AB_ROUND_NEAREST_EVEN; mode <= AB_ROUND_DOWN; mode++)
        prove_pair(*format, (ab_round_mode)mode);
}

int main(void) {
    static const ab_format *proven[] = {&ab_format_fp16, &ab_format_bf16, &ab_format_fp8_e5m2,
                                        &ab_format_fp8_e4m3, &ab_format_tf32};
    struct CMUnitTest tests[AB_COUNT_OF(proven)];
    for (size_t i = 0; i < AB_COUNT_OF(proven); i++) {
        tests[i] =
            (struct CMUnitTest)cmocka_unit_test_prestate(all_inputs_round_right_in_every_mode, &proven[i]);
        tests[i].name = proven[i]->name;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
