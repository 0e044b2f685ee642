/* Problems that people report again and again: each of the seventeen is recognised by name in a record that
 * has it, and in no record that has not. */
#include "reports/diagnose/known_issues.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 80, TEXT = 1 << 14 };

/* Keys (JSON, a comma behind each) of the configuration, the O0 cell and the cell; those that a sound record
 * has come after them, and the first of two equal keys counts. */
typedef struct record {
    const char *config, *o0, *cell;
    double cell_last; /* its last loss; O0's is 0.3 */
} record;

static const record sound = {"", "", "", 0.3};

static void losses(char *text, size_t size, double last) {
    size_t n = (size_t)snprintf(text, size, "[");
    for (int i = 0; i < STEPS; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%.6f", i ? "," : "",
                              2.3 + (last - 2.3) * i / (STEPS - 1));
    snprintf(text + n, size - n, "]");
}

/* The second cell's known problems; the caller frees. */
static cJSON *problems_of(const record *r) {
    static char text[TEXT], o0[TEXT / 4], cell[TEXT / 4];
    static ab_diagnosis diagnosis;
    losses(o0, sizeof o0, 0.3);
    losses(cell, sizeof cell, r->cell_last);
    const int written = snprintf(
        text, sizeof text,
        "{\"config\": {%s\"batch\": 64, \"lr\": 0.1, \"scale_window\": 2000, \"schedule\": \"constant\"}, "
        "\"data\": {\"classes\": 10}, \"cells\": ["
        "{%s\"id\": \"n/O0/1\", \"model\": \"n\", \"level\": \"O0\", \"half_format\": \"fp16\", \"device\": "
        "\"cpu\", "
        "\"seed\": 1, \"twin\": null, \"scale_policy\": \"1\", \"scale\": [[1, 80]], \"summary\": "
        "{\"loss_gap\": 0}, "
        "\"policy\": {\"cast_model_type\": \"fp32\", \"loss_scale\": 1}, \"loss\": %s}, "
        "{%s\"id\": \"n/O2/dynamic\", \"model\": \"n\", \"level\": \"O2\", \"half_format\": \"fp16\", "
        "\"device\": \"cpu\", \"seed\": 1, \"twin\": null, \"scale_policy\": \"dynamic\", "
        "\"scale\": [[65536, 80]], \"summary\": {\"loss_gap\": %.6f, \"ratio_samples_to_o0\": 1.4}, "
        "\"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": true, \"loss_scale\": \"dynamic\"}, "
        "\"loss\": %s}]}",
        r->config, r->o0, o0, r->cell, r->cell_last - 0.3, cell);
    assert_true(written > 0 && written < TEXT);
    cJSON *document = cJSON_Parse(text);
    if (!document) fail_msg("no JSON: %s", text);
    assert_int_equal(ab_diagnose(document, 1, &diagnosis), AB_OK);
    cJSON *list = ab_known_issue_json(&diagnosis);
    cJSON_Delete(document);
    return list;
}

static const cJSON *find(const cJSON *list, const char *id) {
    const cJSON *item;
    cJSON_ArrayForEach(item, list) {
        if (strcmp(cJSON_GetObjectItem(item, "id")->valuestring, id) == 0) return item;
    }
    return NULL;
}

/* It is there, and its text has `part`. */
static void expect(const record *r, const char *id, const char *part) {
    cJSON *list = problems_of(r);
    const cJSON *item = find(list, id);
    if (!item) fail_msg("%s was not recognised", id);
    const char *text = cJSON_GetObjectItem(item, "text")->valuestring;
    if (!strstr(text, part)) fail_msg("%s: '%s' has no '%s'", id, text, part);
    assert_non_null(strchr(cJSON_GetObjectItem(item, "threads")->valuestring, '#'));
    cJSON_Delete(list);
}

static void expect_no(const record *r, const char *id) {
    cJSON *list = problems_of(r);
    if (find(list, id)) fail_msg("%s is not in this record", id);
    cJSON_Delete(list);
}

static void steps_that_subnormal_operands_slow_down_are_named(void **state) {
    (void)state;
    record r = sound;
    r.cell = "\"summary\": {\"loss_gap\": 0, \"subnormal_slowdown\": {\"ratio\": 1.625, \"ratio_low\": 1.5, "
             "\"processes\": 3, \"since_step\": 40, \"largest_share\": 0.25, \"name\": \"fc1.weight\", "
             "\"layer\": \"fc1\", \"kind\": \"momentum_buffer\"}},";
    expect(&r, "subnormal_slowdown", "most: momentum_buffer of fc1.weight");
    expect(&r, "subnormal_slowdown", "1.62 times as long, at least 1.50; see --flush-denormal");
}

static void there_are_seventeen_and_a_sound_record_has_none(void **state) {
    (void)state;
    assert_int_equal(ab_known_issue_count(), 17);
    cJSON *list = problems_of(&sound);
    if (cJSON_GetArraySize(list) != 0)
        fail_msg("found %s", cJSON_GetObjectItem(cJSON_GetArrayItem(list, 0), "id")->valuestring);
    cJSON_Delete(list);
}

#define LAST_HALF_SKIPPED(scales)                                                                            \
    "\"scale\": " scales ", \"steps_skipped\": 40, \"skipped_steps\": "                                      \
    "[40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,"                  \
    "68,69,70,71,72,73,74,75,76,77,78,79],"

static const char endless[] = LAST_HALF_SKIPPED("[[65536, 40], [32, 20], [0.5, 20]]"),
                  at_one[] = LAST_HALF_SKIPPED("[[65536, 40], [2, 1], [1, 39]]"),
                  at_a_floor[] = LAST_HALF_SKIPPED("[[8, 80]]");

static const char never_applied[] =
    "\"scale\": [[8, 80]], \"steps_skipped\": 80, \"skipped_steps\": ["
    "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,"
    "30,31,32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52,53,54,55,"
    "56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72,73,74,75,76,77,78,79],";

static void skipping_that_no_scale_ends_is_told_from_skipping_as_meant(void **state) {
    (void)state;
    record r = sound;
    r.cell = endless;
    expect(&r, "endless_skipping", "from 65536 to 0.5");
    expect_no(&r, "scale_at_minimum");
    expect_no(&r, "expected_skips");
    r.config = "\"min_loss_scale\": 0.5,";
    expect(&r, "scale_at_minimum", "minimum of 0.5; the last step that was applied is 39");
    r.config = "\"min_loss_scale\": 8,";
    r.cell = at_a_floor;
    expect(&r, "scale_at_minimum", "minimum of 8");
    expect_no(&r, "endless_skipping"); /* it does not fall at all */
    r.cell = never_applied;
    expect(&r, "scale_at_minimum", "minimum of 8; no step was applied");
    r.config = "";
    r.cell = at_one; /* a scaler's own floor */
    expect(&r, "scale_at_minimum", "minimum of 1; the last step that was applied is 39");
    expect_no(&r, "endless_skipping");
    r = sound;
    r.cell = "\"scale\": [[65536, 1], [32768, 79]], \"steps_skipped\": 1, \"skipped_steps\": [0],";
    expect(&r, "expected_skips", "1 skipped");
    expect_no(&r, "endless_skipping");
}

static void a_schedule_that_runs_ahead_is_named(void **state) {
    (void)state;
    record r = sound;
    r.cell = "\"scale\": [[65536, 1], [32768, 79]], \"steps_skipped\": 1, \"skipped_steps\": [0],";
    r.config = "\"schedule\": \"cosine\", \"schedule_on_skip\": true,";
    expect(&r, "schedule_ahead", "at 1 steps");
    r.config = "\"schedule\": \"cosine\", \"schedule_on_skip\": false,";
    expect_no(&r, "schedule_ahead");
}

static void formats_that_frameworks_refuse_are_named(void **state) {
    (void)state;
    record r = sound;
    r.cell = "\"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": false, \"loss_scale\": "
             "\"dynamic\"},";
    expect(&r, "half_parameters", "are fp16");
    expect_no(&r, "scaled_bf16");
    r.cell = "\"policy\": {\"cast_model_type\": \"fp16\", \"master_weights\": null, \"loss_scale\": "
             "\"keras\"},"; /* half layers read fp32 weights */
    expect_no(&r, "half_parameters");
    r.cell =
        "\"half_format\": \"bf16\", \"policy\": {\"cast_model_type\": \"bf16\", \"master_weights\": true, "
        "\"loss_scale\": \"dynamic\"},";
    expect(&r, "scaled_bf16", "--scales 1");
    expect_no(&r, "half_parameters");
    r.cell = "\"half_format\": \"bf16\", \"scale\": [[1, 80]], \"policy\": {\"cast_model_type\": \"bf16\", "
             "\"master_weights\": true, \"loss_scale\": 1},";
    expect_no(&r, "scaled_bf16");
}

static void parameters_without_gradients_are_counted(void **state) {
    (void)state;
    record r = sound;
    r.o0 = "\"probes\": {\"tensors\": [{\"name\": \"a.weight.grad\", \"kind\": \"weight_gradient\", "
           "\"count\": 6, "
           "\"zero\": 6}, {\"name\": \"b.weight.grad\", \"kind\": \"weight_gradient\", \"count\": 6, "
           "\"zero\": 5}, "
           "{\"name\": \"x.grad\", \"kind\": \"activation_gradient\", \"count\": 6, \"zero\": 6}]},";
    expect(&r, "no_gradients",
           "1 of 2 parameters had no gradient but zeros in O0, the first is a.weight.grad");
}

static void a_level_that_is_slower_is_named(void **state) {
    (void)state;
    record r = sound;
    r.cell = "\"summary\": {\"loss_gap\": 0, \"ratio_samples_to_o0\": 0.5}, \"casts_per_step\": 7, "
             "\"emulated\": true,";
    expect(&r, "not_faster", "0.50x of O0's samples a second; 7 casts a step; this device only emulates");
}

static void what_was_lost_on_resume_is_named(void **state) {
    (void)state;
    record r = sound;
    r.cell =
        "\"vitals\": {\"resumed\": {\"tensors\": 12, \"tensors_differing\": 0, \"first_differing\": null, "
        "\"states\": 5, \"states_differing\": 1, \"differing_states\": [{\"name\": \"scaler.scale\", "
        "\"saved\": 512, "
        "\"used\": 65536}]}},";
    expect(&r, "lost_on_resume", "1 of 5 states (first scaler.scale: 512 saved, 65536 used)");
    r.cell = "\"vitals\": {\"resumed\": {\"tensors\": 12, \"tensors_differing\": 0, \"states\": 5, "
             "\"states_differing\": 0, \"differing_states\": []}},";
    expect_no(&r, "lost_on_resume");
}

static void batch_norms_of_a_sick_cell_are_named_by_their_formats(void **state) {
    (void)state;
    record r = sound;
    r.cell = "\"implementations\": [{\"op\": \"bn\", \"type\": \"batch_norm2d\", \"format\": \"fp16\"}],";
    expect_no(&r, "batch_norm_types");
    r.cell_last = 1.5;
    expect(&r, "batch_norm_types",
           "1 batch norm runs in fp16, statistics in fp16"); /* the model is cast whole */
    r.cell = "\"implementations\": [{\"op\": \"bn\", \"type\": \"batch_norm2d\", \"format\": \"fp16\"}],"
             "\"policy\": {\"cast_model_type\": \"fp16\", \"keep_batchnorm_fp32\": true, \"loss_scale\": "
             "\"dynamic\"},";
    expect(&r, "batch_norm_types", "1 batch norm runs in fp16, statistics in fp32");
}

/* Those that are a verdict's by another name. */
static void verdicts_carry_the_names_people_know(void **state) {
    (void)state;
    static const struct {
        const char *verdict, *problem;
    } pairs[] = {{"clip_before_unscale", "clipped_while_scaled"},
                 {"exp_log_in_half", "log_of_half"},
                 {"attention_logit_overflow", "attention_nan"},
                 {"activation_overflow", "forward_overflow"},
                 {"optimizer_state_underflow", "epsilon_is_zero"}};
    for (size_t i = 0; i < AB_COUNT_OF(pairs); i++) {
        ab_diagnosis d = {.verdicts = 1};
        char text[AB_VERDICT_TEXT];
        int found = 0;
        for (int k = 0; k < ab_verdict_rule_count(); k++)
            if (strcmp(ab_verdict_rule_at(k)->id, pairs[i].verdict) == 0)
                d.verdict[0].rule = ab_verdict_rule_at(k);
        assert_non_null(d.verdict[0].rule);
        ab_verdict_add_evidence(&d.verdict[0], "the number %d", 42);
        for (int k = 0; k < ab_known_issue_count(); k++) {
            if (strcmp(ab_known_issue_at(k)->id, pairs[i].problem) != 0) continue;
            assert_true(ab_known_issue_at(k)->here(&d, text, sizeof text));
            assert_non_null(strstr(text, "the number 42"));
            d.verdicts = 0;
            assert_false(ab_known_issue_at(k)->here(&d, text, sizeof text));
            found++;
        }
        assert_int_equal(found, 1);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_are_seventeen_and_a_sound_record_has_none),
        cmocka_unit_test(steps_that_subnormal_operands_slow_down_are_named),
        cmocka_unit_test(skipping_that_no_scale_ends_is_told_from_skipping_as_meant),
        cmocka_unit_test(a_schedule_that_runs_ahead_is_named),
        cmocka_unit_test(formats_that_frameworks_refuse_are_named),
        cmocka_unit_test(parameters_without_gradients_are_counted),
        cmocka_unit_test(a_level_that_is_slower_is_named),
        cmocka_unit_test(what_was_lost_on_resume_is_named),
        cmocka_unit_test(batch_norms_of_a_sick_cell_are_named_by_their_formats),
        cmocka_unit_test(verdicts_carry_the_names_people_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
