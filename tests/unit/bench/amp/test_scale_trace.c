#define _POSIX_C_SOURCE 200809L
/* Traces: runs of steps taken at once end where single steps end, and patterns are read as people write them.
 */
#include "bench/amp/trace/scale_trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *const machines[] = {"fixed",
                                       "fixed-skip:init=64",
                                       "apex",
                                       "apex:window=3",
                                       "apex:window=0",
                                       "apex-legacy:window=4,factor=2",
                                       "apex-legacy",
                                       "torch",
                                       "torch:window=1",
                                       "torch:window=-2",
                                       "apex-hysteresis:window=3,hysteresis=3",
                                       "mindspore-host",
                                       "mindspore-host:window=1",
                                       "mindspore-cell:window=5",
                                       "mindspore-functional:window=3",
                                       "mindspore-fixed",
                                       "deepspeed",
                                       "deepspeed:window=3,consecutive=True",
                                       "deepspeed-fused:window=2",
                                       "deepspeed-unfused",
                                       "megatron:window=7",
                                       "megatron:window=2.5",
                                       "megatron-constant",
                                       "fairseq:window=6,tolerance=0.2",
                                       "keras:window=4",
                                       "keras:window=0",
                                       "openseq2seq-backoff:window=9",
                                       "apex-hysteresis",
                                       "apex-hysteresis:hysteresis=500",
                                       "apex-legacy:window=1",
                                       "deepspeed:hysteresis=5",
                                       "deepspeed-fused",
                                       "deepspeed-unfused:window=1",
                                       "fairseq:window=7",
                                       "keras",
                                       "megatron",
                                       "megatron:hysteresis=700,window=5",
                                       "mindspore-cell",
                                       "mindspore-functional:window=1",
                                       "mindspore-host:window=7",
                                       "openseq2seq-backoff"};

/* ---- traces against single steps ------------------------------------------------------------- */

typedef struct single {
    ab_scaler scaler;
    int64_t steps, skipped, warm_up, fault_step;
    const ab_scaler_fault *fault;
} single;

/* Takes a pattern step by step and compares every step with the runs of a trace. */
static single take_singly(const ab_scaler_config *config, const ab_pattern *pattern,
                          const ab_scaler_trace *trace) {
    single s = {.fault = NULL};
    ab_scaler_start(&s.scaler, config);
    for (int r = 0, run = 0; r < pattern->runs; r++) {
        for (int64_t i = 0; i < pattern->run[r].count; i++) {
            double scale = s.scaler.scale;
            ab_scaler_seen seen = {.overflow = pattern->run[r].value != 0};
            ab_scaler_outcome outcome = ab_scaler_update(&s.scaler, &seen);
            while (run < trace->runs && s.steps >= trace->run[run].first + trace->run[run].count) run++;
            if (run < trace->runs)
                assert_true(trace->run[run].scale == scale && trace->run[run].skipped == outcome.skip);
            if (outcome.fault && (!s.fault || outcome.fault->raises)) {
                s.fault = outcome.fault;
                s.fault_step = s.steps;
            }
            if (outcome.skip && s.skipped == s.steps) s.warm_up++;
            s.steps++;
            s.skipped += outcome.skip;
            if (outcome.fault && outcome.fault->raises) return s;
        }
    }
    return s;
}

static void check_pattern(const char *machine, const char *text) {
    ab_scaler_config config;
    ab_pattern pattern;
    ab_scaler_trace trace;
    assert_int_equal(ab_scaler_parse(machine, &config), AB_OK);
    if (ab_pattern_flags("--overflow", text, &pattern) != AB_OK) fail_msg("%s", ab_error_message());
    const ab_format *fp16 = NULL;
    assert_int_equal(ab_format_find("fp16", &fp16), AB_OK);
    assert_int_equal(ab_scaler_trace_run(&config, &pattern, NULL, fp16, 1, &trace), AB_OK);
    single s = take_singly(&config, &pattern, &trace);
    bool same = trace.steps == s.steps && trace.skipped == s.skipped && trace.warm_up == s.warm_up &&
                trace.fault == s.fault && trace.fault_step == s.fault_step &&
                ab_scaler_same(&trace.scaler, &s.scaler);
    if (!same)
        fail_msg("%s over %s: %lld steps, %lld skipped, scale %.17g; singly %lld, %lld, %.17g", machine, text,
                 (long long)trace.steps, (long long)trace.skipped, trace.scaler.scale, (long long)s.steps,
                 (long long)s.skipped, s.scaler.scale);
    ab_scaler_trace_clear(&trace);
    ab_pattern_clear(&pattern);
}

static void runs_end_where_single_steps_end(void **state) {
    (void)state;
    static const char *const patterns[] = {"0",
                                           "1",
                                           "0011010001",
                                           "5000x0",
                                           "1500x1",
                                           "3x1,2100x0,1x1,1999x0,1x1,2000x0,2x1,2001x0",
                                           "1200x1,10x0",
                                           "30x0,900x1,4000x0,1x1,1x0,1x1",
                                           "7x0,1x1,7x0,1x1,40000x0,3x1,5x0"};
    for (size_t m = 0; m < AB_COUNT_OF(machines); m++)
        for (size_t p = 0; p < AB_COUNT_OF(patterns); p++) check_pattern(machines[m], patterns[p]);
}

/* Beyond many thousand steps repetitions are skipped over. */
static void long_repetitions_end_where_single_steps_end(void **state) {
    (void)state;
    check_pattern("torch:window=3,init=1e38", "5x1,300001x0,2x1");
    check_pattern("apex:window=0", "200001x1,3x0");
    check_pattern("mindspore-functional:window=7", "300003x0,1x1");
    check_pattern("torch:window=7", "3x0,300001x1,300002x0");
    check_pattern("fixed", "3x0,300001x1,2x0");
    check_pattern("megatron:hysteresis=1000", "3x0,300001x1,2x0,1x1");
}

/* Up to six runs of up to 3,000 steps, many of them short. */
static void random_runs_end_where_single_steps_end(void **state) {
    (void)state;
    uint64_t seed = 1;
    for (size_t m = 0; m < AB_COUNT_OF(machines); m++) {
        for (int p = 0; p < 8; p++) {
            char text[160] = "";
            for (int r = 0; r < 6; r++) {
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                const unsigned most = seed >> 40 & 1u ? 3000 : 12, count = 1 + (unsigned)(seed >> 41) % most;
                snprintf(text + strlen(text), sizeof text - strlen(text), "%s%ux%u", r ? "," : "", count,
                         (unsigned)(seed >> 33 & 1u));
            }
            check_pattern(machines[m], text);
        }
    }
}

/* Equal steps are not computed one by one, whatever came before them. */
static void equal_steps_cost_little_in_every_scaler(void **state) {
    (void)state;
    static const char *const patterns[] = {"3000000x0", "3000000x1", "3x1,3000000x0",
                                           "3x0,3000000x1,3000000x0"};
    const ab_format *fp16 = NULL;
    assert_int_equal(ab_format_find("fp16", &fp16), AB_OK);
    for (size_t m = 0; m < AB_COUNT_OF(machines); m++) {
        for (size_t p = 0; p < AB_COUNT_OF(patterns); p++) {
            ab_scaler_config config;
            ab_pattern pattern;
            ab_scaler_trace trace;
            assert_int_equal(ab_scaler_parse(machines[m], &config), AB_OK);
            assert_int_equal(ab_pattern_flags("--overflow", patterns[p], &pattern), AB_OK);
            assert_int_equal(ab_scaler_trace_run(&config, &pattern, NULL, fp16, 1, &trace), AB_OK);
            if (trace.computed > 300000)
                fail_msg("%s over %s: %lld steps computed one by one", machines[m], patterns[p],
                         (long long)trace.computed);
            ab_scaler_trace_clear(&trace);
            ab_pattern_clear(&pattern);
        }
    }
}

static void a_billion_steps_are_counted(void **state) {
    (void)state;
    ab_scaler_config config;
    ab_pattern amax;
    ab_scaler_trace trace;
    const ab_format *fp16 = NULL;
    assert_int_equal(ab_format_find("fp16", &fp16), AB_OK);
    assert_int_equal(ab_scaler_parse("graphcore-als", &config), AB_OK);
    assert_int_equal(ab_pattern_numbers("--amax", "1000000000x0.01", &amax), AB_OK);
    assert_int_equal(ab_scaler_trace_run(&config, NULL, &amax, fp16, 1e6, &trace), AB_OK);
    assert_int_equal(trace.steps, 1000000000);
    /* 8188 / 0.01 lies between 2^19 and 2^20, and the scale goes to and fro between them for ever */
    assert_true(fabs(trace.sum_log2 / 1e9 - 19.5) < 1e-6);
    ab_scaler_trace_clear(&trace);
    ab_pattern_clear(&amax);
}

/* With a constant gradient a scaler hunts for the largest scale that fits, and overflows once in a window
 * after. */
static void gradients_overflow_at_the_scale_where_they_leave_the_format(void **state) {
    (void)state;
    ab_scaler_config config;
    ab_pattern amax;
    ab_scaler_trace trace;
    const ab_format *fp16 = NULL;
    assert_int_equal(ab_format_find("fp16", &fp16), AB_OK);
    assert_int_equal(ab_scaler_parse("torch:init=2^24,window=100", &config), AB_OK);
    assert_int_equal(ab_pattern_numbers("--amax", "10100x1", &amax),
                     AB_OK); /* 65519 fits, 65520 does not: 2^15 */
    assert_int_equal(ab_scaler_trace_run(&config, NULL, &amax, fp16, 1, &trace), AB_OK);
    assert_int_equal(trace.warm_up, 9);      /* 2^24 ... 2^16 */
    assert_int_equal(trace.skipped, 9 + 99); /* then every 101st */
    assert_true(trace.scaler.scale == 0x1p15);
    ab_scaler_trace_clear(&trace);
    ab_pattern_clear(&amax);
}

/* ---- patterns -------------------------------------------------------------------------------- */

static void patterns_are_read(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int runs;
        int64_t steps, first;
    } rows[] = {{"0", 1, 1, 1},
                {"0001", 2, 4, 3},
                {"1000x0,3x1", 2, 1003, 1000},
                {"00,2x0,0", 1, 5, 5},
                {" 0 1\n1\r\n0 ", 3, 4, 1},
                {"10x1", 1, 10, 10},
                {"1000000000x0", 1, 1000000000, 1000000000}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_pattern pattern;
        assert_int_equal(ab_pattern_flags("--overflow", rows[i].text, &pattern), AB_OK);
        assert_int_equal(pattern.runs, rows[i].runs);
        assert_int_equal(pattern.steps, rows[i].steps);
        assert_int_equal(pattern.run[0].count, rows[i].first);
        ab_pattern_clear(&pattern);
    }
    ab_pattern numbers;
    assert_int_equal(ab_pattern_numbers("--amax", "3x0.5, 2^-3 1e-2\n2xinf,nan", &numbers), AB_OK);
    assert_int_equal(numbers.runs, 5);
    assert_int_equal(numbers.steps, 8);
    assert_true(numbers.run[1].value == 0.125 && numbers.run[3].value == HUGE_VAL &&
                isnan(numbers.run[4].value));
    ab_pattern_clear(&numbers);
}

static void bad_patterns_name_the_character_and_its_position(void **state) {
    (void)state;
    static const char *const flags[][2] = {{"", "the end at position 1"},
                                           {"0120", "'2' at position 3"},
                                           {"5x2", "'2' at position 3"},
                                           {"0x1", "'x' at position 2"},
                                           {"-3x1", "'-' at position 1"},
                                           {"1,", "the end at position 3"},
                                           {"0\n0\nz", "'z' at position 5"},
                                           {"9007199254740993x0", "2^53"},
                                           {"99999999999999999999x0", "'9' at position 1"}};
    static const char *const numbers[][2] = {
        {"", "the end"}, {"1,-2", "'-' at position 3"}, {"1;2", "a comma"}, {"2^", "'2' at position 1"}};
    for (size_t i = 0; i < AB_COUNT_OF(flags) + AB_COUNT_OF(numbers); i++) {
        ab_pattern pattern;
        bool flag = i < AB_COUNT_OF(flags);
        const char *const *row = flag ? flags[i] : numbers[i - AB_COUNT_OF(flags)];
        ab_status status = flag ? ab_pattern_flags("--overflow", row[0], &pattern)
                                : ab_pattern_numbers("--amax", row[0], &pattern);
        assert_int_equal(status, AB_USAGE);
        if (!strstr(ab_error_message(), row[1])) fail_msg("'%s': %s", row[0], ab_error_message());
    }
}

static void a_pattern_may_be_a_file(void **state) {
    (void)state;
    char path[] = "/tmp/ampbench-pattern-XXXXXX", at[64];
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    const char text[] = "000\n1\n12x0,\n1\n";
    assert_int_equal(write(descriptor, text, strlen(text)), (int)strlen(text));
    close(descriptor);
    snprintf(at, sizeof at, "@%s", path);
    ab_pattern pattern;
    assert_int_equal(ab_pattern_flags("--overflow", at, &pattern), AB_OK);
    assert_int_equal(pattern.steps, 17);
    ab_pattern_clear(&pattern);
    unlink(path);
    assert_int_equal(ab_pattern_flags("--overflow", at, &pattern), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), path));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_end_where_single_steps_end),
        cmocka_unit_test(long_repetitions_end_where_single_steps_end),
        cmocka_unit_test(random_runs_end_where_single_steps_end),
        cmocka_unit_test(equal_steps_cost_little_in_every_scaler),
        cmocka_unit_test(a_billion_steps_are_counted),
        cmocka_unit_test(gradients_overflow_at_the_scale_where_they_leave_the_format),
        cmocka_unit_test(patterns_are_read),
        cmocka_unit_test(bad_patterns_name_the_character_and_its_position),
        cmocka_unit_test(a_pattern_may_be_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
