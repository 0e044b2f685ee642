/* Schedules against the rates that torch's and transformers' own schedulers set
 * (tests/golden/schedules.json), against closed forms, and their configuration as text. */
#include "bench/train/schedule/schedule.h"

#include "support/json_file.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* A golden row's configuration as the option's text. */
static void text_of(const cJSON *row, char *text, size_t size) {
    const char *separator = ":";
    const cJSON *item = NULL;
    snprintf(text, size, "%s", cJSON_GetStringValue(cJSON_GetObjectItem(row, "schedule")));
    cJSON_ArrayForEach(item, cJSON_GetObjectItem(row, "config")) {
        if (strcmp(item->string, "lr") == 0) continue;
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%s=%.17g", separator, item->string, item->valuedouble);
        separator = ",";
    }
}

static void agrees(const char *text, const char *what, int t, double found, const cJSON *expected) {
    double value = strtod(expected->valuestring, NULL);
    if (fabs(found - value) > 1e-12 * fmax(fabs(value), 1e-3))
        fail_msg("%s: %s at %d is %.17g, expected %.17g", text, what, t, found, value);
}

static void rates_are_those_of_torch_and_transformers(void **state) {
    (void)state;
    cJSON *document = ab_test_read_json(AB_SOURCE_DIR "/tests/golden/schedules.json");
    assert_non_null(document);
    bool seen[32] = {false};
    const cJSON *row = NULL;
    cJSON_ArrayForEach(row, cJSON_GetObjectItem(document, "cases")) {
        const cJSON *lr = cJSON_GetObjectItem(row, "lr"), *momentum = cJSON_GetObjectItem(row, "momentum");
        const ab_schedule *schedule = NULL;
        ab_schedule_config config;
        char text[256];
        text_of(row, text, sizeof text);
        if (ab_schedule_parse(text, &schedule, &config) != AB_OK) fail_msg("%s", ab_error_message());
        config.lr = cJSON_GetObjectItem(cJSON_GetObjectItem(row, "config"), "lr")->valuedouble;
        for (int t = 0; t < cJSON_GetArraySize(lr); t++) {
            ab_schedule_point point = ab_schedule_rate(schedule, &config, t);
            agrees(text, "lr", t, point.lr, cJSON_GetArrayItem(lr, t));
            assert_int_equal(point.momentum >= 0, cJSON_IsArray(momentum));
            if (cJSON_IsArray(momentum))
                agrees(text, "momentum", t, point.momentum, cJSON_GetArrayItem(momentum, t));
        }
        for (int i = 0; i < ab_schedule_count(); i++) seen[i] |= ab_schedule_at(i) == schedule;
    }
    for (int i = 0; i < ab_schedule_count(); i++)
        if (!seen[i]) fail_msg("%s has no recorded rates", ab_schedule_at(i)->name);
    cJSON_Delete(document);
}

static double rate(const char *text, double lr, int64_t t) {
    const ab_schedule *schedule = NULL;
    ab_schedule_config config;
    if (ab_schedule_parse(text, &schedule, &config) != AB_OK) fail_msg("%s", ab_error_message());
    config.lr = lr;
    return ab_schedule_rate(schedule, &config, t).lr;
}

/* Neither falling below the final rate nor rising again. */
static void the_last_rate_stays(void **state) {
    (void)state;
    assert_true(rate("cosine:total=10,final=0.25", 1, 10) == 0.25);
    assert_true(rate("cosine:total=10,final=0.25", 1, 1000) == 0.25);
    assert_true(rate("linear:total=10", 1, 1000) == 0);
    assert_true(rate("polynomial:total=10,power=2,final=0.5", 1, 1000) == 0.5);
    assert_true(rate("one_cycle:total=10", 1, 9) == rate("one_cycle:total=10", 1, 1000));
    assert_true(fabs(rate("one_cycle:total=10", 1, 9) - 1 / 25.0 / 1e4) < 1e-18);
}

static void warm_up_rises_in_a_line(void **state) {
    (void)state;
    assert_true(rate("constant:warmup=4", 2, 0) == 0);
    assert_true(rate("constant:warmup=4", 2, 1) == 0.5);
    assert_true(rate("constant:warmup=4", 2, 4) == 2);
    assert_true(rate("constant:warmup=4,warmup_start=0.5", 2, 0) == 1);
    for (int64_t step = 0; step < 4; step++) /* lr (t + 1) / W: from lr / W to lr */
        assert_true(rate("constant:warmup=4,warmup_shift=1", 2, step) == 2 * (double)(step + 1) / 4);
    assert_true(rate("constant:warmup=4,warmup_shift=1", 2, 4) == 2);
    assert_true(rate("step:step_size=2,gamma=0.5,warmup=4", 2, 5) == 2);
    assert_true(rate("step:step_size=2,gamma=0.5,warmup=4", 2, 6) == 1);
}

static void refused(const char *text, const char *message) {
    const ab_schedule *schedule = NULL;
    ab_schedule_config config;
    ab_status status = ab_schedule_parse(text, &schedule, &config);
    if (status == AB_OK) status = ab_schedule_check(schedule, &config);
    assert_int_equal(status, AB_USAGE);
    if (!strstr(ab_error_message(), message)) fail_msg("%s: %s", text, ab_error_message());
}

static void bad_text_is_named(void **state) {
    (void)state;
    refused("cosin", "did you mean 'cosine'?");
    refused("", "expected one of constant, step");
    refused("cosine:totl=3", "did you mean 'total'?");
    refused("constant:warmup_shift=2", "expected an integer from 0 to 1, found '2'");
    refused("cosine:gamma=3",
            "expected one of total, warmup, warmup_start, warmup_shift, final, found 'gamma'");
    refused("cosine:warmup_start=0.1", "warmup_start needs steps to warm up: cosine:warmup=N");
    refused("constant:warmup_shift=1", "warmup_shift needs steps to warm up: constant:warmup=N");
    refused("cosine:total", "expected KEY=VALUE, found 'total'");
    refused("cosine:=3", "expected KEY=VALUE, found '=3'");
    refused("cosine:total=2.5", "total: expected an integer from 1");
    refused("cosine:total=nan", "total: expected an integer");
    refused("cosine:total=0", "total: expected an integer from 1");
    refused("linear:final=-1", "final: expected a number from 0");
    refused("linear:final=1x", "found '1x'");
    refused("step", "step_size=N");
    refused("linear:total=5,warmup=5", "warmup 5 leaves nothing of the total of 5");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_those_of_torch_and_transformers),
        cmocka_unit_test(the_last_rate_stays),
        cmocka_unit_test(warm_up_rises_in_a_line),
        cmocka_unit_test(bad_text_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
