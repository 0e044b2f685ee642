/* Loss scalers against recorded trajectories of the packages they are named after (tests/golden/scalers, made
 * by scripts/peer_scalers.py): the scale after every step, which steps were taken, and the step that raised,
 * bit for bit. */
#include "bench/amp/scaler/scaler.h"
#include "tests/support/json_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *text_of(const cJSON *object, const char *key) {
    return cJSON_GetObjectItemCaseSensitive(object, key)->valuestring;
}

/* ---- one trace ------------------------------------------------------------------------------- */

typedef struct place {
    const cJSON *run; /* of the expected steps; NULL behind the last */
    int used;
} place;

static void expect_step(place *at, const ab_scaler *scaler, bool skipped, const cJSON *trace, int step) {
    const cJSON *scale = at->run->child, *ran = scale->next, *count = ran->next;
    double expected = cJSON_IsString(scale) ? HUGE_VAL : scale->valuedouble;
    if (scaler->scale != expected || skipped != !cJSON_IsTrue(ran))
        fail_msg("%s, pattern %s, step %d: expected %.17g %s, found %.17g %s", text_of(trace, "config"),
                 text_of(trace, "pattern"), step, expected, cJSON_IsTrue(ran) ? "taken" : "skipped",
                 scaler->scale, skipped ? "skipped" : "taken");
    if (++at->used < count->valueint) return;
    *at = (place){at->run->next, 0};
}

static void expect_end(const cJSON *trace, int step, const ab_scaler_fault *fault) {
    const cJSON *raised = cJSON_GetObjectItemCaseSensitive(trace, "raised");
    int expected = cJSON_IsNull(raised) ? -1 : cJSON_GetObjectItemCaseSensitive(raised, "step")->valueint;
    int found = fault ? step : -1;
    if (expected != found)
        fail_msg("%s, pattern %s: expected to raise at step %d, found %d (-1: never)",
                 text_of(trace, "config"), text_of(trace, "pattern"), expected, found);
}

static void check_trace(const cJSON *trace, const char *pattern) {
    ab_scaler_config config;
    ab_scaler scaler;
    if (ab_scaler_parse(text_of(trace, "config"), &config) != AB_OK) fail_msg("%s", ab_error_message());
    ab_scaler_start(&scaler, &config);
    place at = {cJSON_GetObjectItemCaseSensitive(trace, "runs")->child, 0};
    const ab_scaler_fault *raised = NULL;
    int step = 0;
    for (; pattern[step]; step++) {
        ab_scaler_seen seen = {.overflow = pattern[step] == '1'};
        ab_scaler_outcome outcome = ab_scaler_update(&scaler, &seen);
        if (outcome.fault && outcome.fault->raises) raised = outcome.fault;
        if (raised) break;
        if (!at.run) fail_msg("%s: more steps than recorded", text_of(trace, "config"));
        expect_step(&at, &scaler, outcome.skip, trace, step);
    }
    expect_end(trace, step, raised);
    assert_null(at.run);
}

/* ---- dialects -------------------------------------------------------------------------------- */

/* The recordings, a line per dialect. */
static const char recordings_file[] = AB_SOURCE_DIR "/tests/golden/scalers/traces.jsonl";

static cJSON *recording_of(const char *dialect) {
    char name[64];
    snprintf(name, sizeof name, "%s.json", dialect);
    cJSON *found = ab_test_read_json_line(recordings_file, name);
    assert_non_null(found);
    return found;
}

static int check_dialect(const char *dialect) {
    cJSON *file = recording_of(dialect);
    const cJSON *trace, *patterns = cJSON_GetObjectItemCaseSensitive(file, "patterns");
    int count = 0;
    cJSON_ArrayForEach(trace, cJSON_GetObjectItemCaseSensitive(file, "traces")) {
        check_trace(trace, text_of(patterns, text_of(trace, "pattern")));
        count++;
    }
    cJSON_Delete(file);
    return count;
}

#define GOLDEN(dialect, file)                                                                                \
    static void dialect##_is_the_packages(void **state) {                                                    \
        (void)state;                                                                                         \
        assert_true(check_dialect(file) >= 20);                                                              \
    }

GOLDEN(torch, "torch")
GOLDEN(megatron, "megatron")
GOLDEN(megatron_constant, "megatron-constant")
GOLDEN(fairseq, "fairseq")
GOLDEN(deepspeed, "deepspeed")
GOLDEN(deepspeed_fused, "deepspeed-fused")
GOLDEN(deepspeed_unfused, "deepspeed-unfused")
GOLDEN(keras, "keras")
GOLDEN(mindspore_host, "mindspore-host")
GOLDEN(mindspore_cell, "mindspore-cell")
GOLDEN(mindspore_functional, "mindspore-functional")

/* Every recorded package has a test above. */
static void every_recording_is_checked(void **state) {
    (void)state;
    char *text = ab_test_read(recordings_file);
    assert_non_null(text);
    int files = 0;
    for (const char *at = text; (at = strstr(at, "{\"file\": ")) != NULL; at++) files++;
    free(text);
    assert_int_equal(files, 11);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torch_is_the_packages),
        cmocka_unit_test(megatron_is_the_packages),
        cmocka_unit_test(megatron_constant_is_the_packages),
        cmocka_unit_test(fairseq_is_the_packages),
        cmocka_unit_test(deepspeed_is_the_packages),
        cmocka_unit_test(deepspeed_fused_is_the_packages),
        cmocka_unit_test(deepspeed_unfused_is_the_packages),
        cmocka_unit_test(keras_is_the_packages),
        cmocka_unit_test(mindspore_host_is_the_packages),
        cmocka_unit_test(mindspore_cell_is_the_packages),
        cmocka_unit_test(mindspore_functional_is_the_packages),
        cmocka_unit_test(every_recording_is_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
