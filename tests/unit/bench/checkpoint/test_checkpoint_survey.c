/* Checkpoints that frameworks saved (scripts/golden_checkpoints.py): their layouts, and the updates that
 * their next step loses, beside what PyTorch's own tensors say. */
#include "bench/checkpoint/record.h"
#include "bench/checkpoint/survey.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define RUNS AB_CHECKPOINTS_DIR "/runs/"
#define RANKS AB_DISTRIBUTED_DIR "/mcore/"

static void open_good(const char *path, ab_checkpoint *c) {
    if (ab_checkpoint_open(path, c) != AB_OK) fail_msg("%s", ab_error_message());
}

static bool same(double x, double y) { return x == y || (isnan(x) && isnan(y)); }

static void layouts_are_told_apart(void **state) {
    (void)state;
    static const double none = (double)NAN;
    const struct {
        const char *path, *layout, *weights, *moments;
        int weight_count, moment_count;
        double scale, tracker, skipped, steps;
    } rows[] = {
        {RUNS "healthy.pt", "pytorch", "fp32", "fp32", 4, 4, 65536, 5, none, 5},
        {RUNS "some_bf16.pt", "pytorch", "bf16", "bf16", 4, 4, none, none, none, 5},
        {RUNS "trainer/checkpoint-4", "hugging_face", "fp32", "fp32", 4, 4, none, none, none, 4},
        {RUNS "trainer_bf16/checkpoint-2", "hugging_face", "bf16", "bf16", 4, 4, none, none, none, 2},
        {RUNS "accelerate", "accelerate", "fp32", "fp32", 4, 4, 0.25, 0, none, 3},
        {RUNS "lightning.ckpt", "lightning", "bf16", "bf16", 4, 4, none, none, none, 3},
        {RUNS "deepspeed", "deepspeed", "fp16", "fp32", 4, 1, 1, none, 8, 9},
        {RUNS "megatron", "megatron", "bf16", "fp32", 4, 4, 0x1p30, 3, none, 5},
        {RANKS "ranks", "megatron", "bf16", "fp32", 53, 53, none, none, none, 5},
        {RANKS "dist", "megatron_dist", "bf16", "fp32", 17, 17, none, none, none, 5},
        {RUNS "apex.pt", "apex", "fp16", NULL, 4, 0, 0x1p-20, 0, none, none},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_checkpoint c;
        open_good(rows[i].path, &c);
        const ab_format *moments = ab_checkpoint_moments_format(&c);
        if (strcmp(c.layout->name, rows[i].layout) != 0) fail_msg("%s: %s", rows[i].path, c.layout->name);
        assert_string_equal(ab_checkpoint_weights_format(&c)->name, rows[i].weights);
        assert_string_equal(moments ? moments->name : "none", rows[i].moments ? rows[i].moments : "none");
        assert_int_equal(c.weights, rows[i].weight_count);
        assert_int_equal(c.moment_count, rows[i].moment_count);
        if (!same(c.scale, rows[i].scale) || !same(c.tracker, rows[i].tracker) ||
            !same(c.skipped, rows[i].skipped) || !same(c.steps, rows[i].steps))
            fail_msg("%s: scale %g, tracker %g, skipped %g, steps %g", rows[i].path, c.scale, c.tracker,
                     c.skipped, c.steps);
        ab_checkpoint_close(&c);
    }
}

static void moments_find_their_weights(void **state) {
    (void)state;
    static const char *const names[] = {"inner.weight", "inner.bias", "outer.weight", "outer.bias"};
    static const char *const paths[] = {RUNS "some_bf16.pt", RUNS "megatron", RUNS "trainer/checkpoint-4"};
    for (size_t p = 0; p < AB_COUNT_OF(paths); p++) {
        ab_checkpoint c;
        open_good(paths[p], &c);
        assert_int_equal(c.groups > 0, true);
        for (int i = 0; i < c.moment_count; i++) {
            const ab_checkpoint_moments *m = &c.moments[i];
            assert_true(m->weight >= 0 && m->group >= 0);
            /* transformers puts weights first, which decay: the safetensors file is in the order of names */
            const char *expected = p < 2 ? names[i] : c.weight[m->weight].name;
            assert_string_equal(c.weight[m->weight].name, expected);
        }
        ab_checkpoint_close(&c);
    }
}

/* Distributed checkpoints name their parameters: DeepSpeed's and torch.distributed.checkpoint's. */
static void moments_of_several_processes_find_their_weights_by_name(void **state) {
    (void)state;
    static const struct {
        const char *path, *layout;
        int moments;
        double scale, steps;
    } rows[] = {{AB_DISTRIBUTED_DIR "/zero1", "deepspeed", 6, 256, 3},
                {AB_DISTRIBUTED_DIR "/zero2", "deepspeed", 6, 256, 3},
                {AB_DISTRIBUTED_DIR "/zero3", "deepspeed", 6, 256, 3},
                {AB_DISTRIBUTED_DIR "/dcp", "pytorch", 1, 1024, 7}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_checkpoint c;
        open_good(rows[i].path, &c);
        assert_string_equal(c.layout->name, rows[i].layout);
        assert_int_equal(c.moment_count, rows[i].moments);
        for (int k = 0; k < c.moment_count; k++) {
            const ab_checkpoint_moments *m = &c.moments[k];
            char name[256];
            assert_int_equal(m->pairing, AB_CHECKPOINT_BY_NAME);
            snprintf(name, sizeof name, ".state.%s.exp_avg_sq", c.weight[m->weight].name);
            assert_non_null(strstr(m->second.name, name));
        }
        if (c.scale != rows[i].scale || c.steps != rows[i].steps || !(c.group[0].lr > 0))
            fail_msg("%s: scale %g, steps %g, lr %g", rows[i].path, c.scale, c.steps, c.group[0].lr);
        ab_checkpoint_close(&c);
    }
}

/* What the script computed from torch's own tensors and its AdamW's formula. */
static void lost_updates_are_those_of_torch(void **state) {
    (void)state;
    static const char *const names[] = {"lost_bf16", "some_bf16", "some_fp16"};
    cJSON *expected = NULL;
    assert_int_equal(ab_json_load(RUNS "expected.json", &expected), AB_OK);
    for (size_t k = 0; k < AB_COUNT_OF(names); k++) {
        char path[512];
        ab_checkpoint c;
        int64_t lost = 0, nonzero = 0;
        snprintf(path, sizeof path, "%s%s.pt", RUNS, names[k]);
        open_good(path, &c);
        for (int i = 0; i < c.moment_count; i++) {
            ab_checkpoint_account a;
            assert_int_equal(ab_checkpoint_account_of(&c, i, &a), AB_OK);
            assert_true(a.judged && a.lost_energy <= a.energy);
            lost += a.lost;
            nonzero += a.nonzero;
        }
        const cJSON *pair = ab_json_at(expected, names[k]);
        assert_int_equal(lost, (int64_t)cJSON_GetArrayItem(pair, 0)->valuedouble);
        assert_int_equal(nonzero, (int64_t)cJSON_GetArrayItem(pair, 1)->valuedouble);
        ab_checkpoint_close(&c);
    }
    cJSON_Delete(expected);
}

static void masters_lose_nothing(void **state) {
    (void)state;
    static const char *const paths[] = {RUNS "megatron", RUNS "deepspeed", RUNS "healthy.pt"};
    for (size_t p = 0; p < AB_COUNT_OF(paths); p++) {
        ab_checkpoint c;
        ab_checkpoint_account a;
        open_good(paths[p], &c);
        assert_int_equal(ab_checkpoint_account_of(&c, 0, &a), AB_OK);
        assert_false(a.judged);
        ab_checkpoint_close(&c);
    }
}

static void motion_is_counted(void **state) {
    (void)state;
    static const char *const before[] = {RUNS "trainer/checkpoint-2", RUNS "trainer_bf16/checkpoint-2"},
                             *const after[] = {RUNS "trainer/checkpoint-4", RUNS "trainer_bf16/checkpoint-4"};
    for (int i = 0; i < 2; i++) {
        ab_checkpoint first, last;
        ab_checkpoint_motion motion;
        cJSON *document = NULL;
        open_good(before[i], &first);
        open_good(after[i], &last);
        assert_int_equal(ab_checkpoint_motion_of(&first, &last, &motion), AB_OK);
        assert_int_equal(motion.elements, 12 * 16 + 16 + 16 + 1);
        assert_int_equal(motion.moved, i == 0 ? motion.elements : 0);
        assert_int_equal(motion.still, i == 0 ? 0 : 4);
        if (ab_checkpoint_record(&first, &last, &document) != AB_OK) fail_msg("%s", ab_error_message());
        assert_true(ab_json_number(document, "checkpoint.since.steps", 0) == 2);
        cJSON_Delete(document);
        ab_checkpoint_close(&last);
        ab_checkpoint_close(&first);
    }
}

static void other_folders_are_no_checkpoints(void **state) {
    (void)state;
    ab_checkpoint c;
    assert_false(ab_checkpoint_recognise(AB_SOURCE_DIR "/docs"));
    assert_false(ab_checkpoint_recognise(AB_SOURCE_DIR "/tests/fixtures/result_tiny.json"));
    assert_true(ab_checkpoint_recognise(RUNS "megatron"));
    assert_int_equal(ab_checkpoint_open(AB_SOURCE_DIR "/docs", &c), AB_INPUT);
    ab_checkpoint_close(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_are_told_apart),
        cmocka_unit_test(moments_find_their_weights),
        cmocka_unit_test(moments_of_several_processes_find_their_weights_by_name),
        cmocka_unit_test(lost_updates_are_those_of_torch),
        cmocka_unit_test(masters_lose_nothing),
        cmocka_unit_test(motion_is_counted),
        cmocka_unit_test(other_folders_are_no_checkpoints),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
