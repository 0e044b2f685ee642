/* Running means and variances in a format of their own (--set batch_norm_statistics): training does not see
 * it, evaluation does. What is stored is what rounding every update to the half format gives, and updates
 * below half an ulp are lost. */
#include "bench/train/cell/cell.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/images_testing.h"

enum { BATCH = 16, STEPS = 40, CHANNELS = 4 };

static ab_net *net_of(double momentum) {
    char text[1024];
    ab_net *net = NULL;
    snprintf(
        text, sizeof text,
        "{\"format\": \"ampbench-net-1\", \"name\": \"tiny\", \"input\": {\"height\": 28, \"width\": 28, "
        "\"channels\": 1}, \"ops\": [{\"name\": \"conv\", \"op\": \"conv2d\", \"out_channels\": 4, "
        "\"kernel_size\": 3, \"stride\": 3, \"bias\": false}, {\"name\": \"bn\", \"op\": "
        "\"batch_norm2d\", \"momentum\": %g}, {\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": "
        "\"fc\", \"op\": \"linear\", \"out_features\": 10}, {\"name\": \"loss\", \"op\": "
        "\"cross_entropy\"}]}",
        momentum);
    if (ab_net_parse(text, strlen(text), "tiny.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static ab_cell *cell_of(const ab_net *net, const char *level, const ab_format *half, const char *set) {
    const ab_level *found = NULL;
    ab_cell *cell = NULL;
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.01},
                             .batch = BATCH,
                             .seed = 1,
                             .data = images,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, half, &set, set ? 1 : 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    return cell;
}

static const char *const buffers[] = {"bn.running_mean", "bn.running_var"};

static void read_buffer(const ab_cell *cell, int i, float *values) {
    ab_shape shape;
    assert_int_equal(ab_cell_read(cell, buffers[i], &shape, values), AB_OK);
    assert_int_equal(ab_shape_count(&shape), CHANNELS);
}

/* Round to nearest even, written apart from the project's conversions: fp16 above its subnormals, and bf16.
 */
static double rounded(double x, int precision) {
    int exponent;
    frexp(x, &exponent);
    const double ulp = ldexp(1.0, exponent - precision);
    return x == 0 ? 0 : nearbyint(x / ulp) * ulp;
}

/* The batch's own statistics, from how far they moved the fp32 ones; then the half ones by the recurrence. */
static void stored_statistics_are_rounded_at_every_step(void **state) {
    (void)state;
    const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    for (size_t h = 0; h < AB_COUNT_OF(halves); h++) {
        ab_net *net = net_of(0.25);
        ab_cell *wide = cell_of(net, "O0", halves[h], "batch_norm_statistics=fp32");
        ab_cell *narrow = cell_of(net, "O0", halves[h], "batch_norm_statistics=half");
        double expected[2][CHANNELS] = {{0, 0, 0, 0}, {1, 1, 1, 1}};
        for (int i = 0; i < 10; i++) {
            float before[2][CHANNELS], after[2][CHANNELS], found[2][CHANNELS];
            ab_step_result a, b;
            for (int k = 0; k < 2; k++) read_buffer(wide, k, before[k]);
            assert_int_equal(ab_cell_step(wide, NULL, &a), AB_OK);
            assert_int_equal(ab_cell_step(narrow, NULL, &b), AB_OK);
            assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
            for (int k = 0; k < 2; k++) read_buffer(wide, k, after[k]);
            for (int k = 0; k < 2; k++) read_buffer(narrow, k, found[k]);
            for (int k = 0; k < 2; k++) {
                for (int c = 0; c < CHANNELS; c++) {
                    double batch = ((double)after[k][c] - 0.75 * (double)before[k][c]) / 0.25;
                    expected[k][c] = rounded(0.75 * expected[k][c] + 0.25 * batch, halves[h]->precision);
                    /* a tie that fp32's own rounding has moved falls to the other side: the next step
                     * corrects it */
                    assert_true(fabs((double)found[k][c] - expected[k][c]) <=
                                ldexp(fabs(expected[k][c]), 1 - halves[h]->precision));
                    expected[k][c] = (double)found[k][c];
                }
            }
        }
        ab_cell_destroy(wide);
        ab_cell_destroy(narrow);
        ab_net_free(net);
    }
}

/* torch's momentum 0.001 in bf16: (batch - 1) / 1000 is below half an ulp of 1 (2^-8) until the batch's
 * variance is above 2.95, or below it (2^-9 below 1) while it is above -0.95. So a variance of 1 stays, while
 * fp32 follows. */
static void a_small_momentum_leaves_a_bf16_variance_where_it_is(void **state) {
    (void)state;
    ab_net *net = net_of(0.001);
    ab_cell *wide = cell_of(net, "O0", &ab_format_bf16, NULL);
    ab_cell *narrow = cell_of(net, "O0", &ab_format_bf16, "batch_norm_statistics=bf16");
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(wide, NULL, &result), AB_OK);
        assert_int_equal(ab_cell_step(narrow, NULL, &result), AB_OK);
    }
    float moved[CHANNELS], stuck[CHANNELS];
    read_buffer(wide, 1, moved);
    read_buffer(narrow, 1, stuck);
    for (int c = 0; c < CHANNELS; c++) {
        assert_true(fabs((double)moved[c] - 1) > 0.002);
        assert_true(stuck[c] == 1);
    }
    ab_cell_destroy(wide);
    ab_cell_destroy(narrow);
    ab_net_free(net);
}

/* bf16 at torch's default of 0.1 stops while a tenth of the distance is still half an ulp: up to 4 % off, and
 * the test loss shows it. */
static void only_the_evaluation_of_a_trained_cell_differs(void **state) {
    (void)state;
    ab_net *net = net_of(0.1);
    ab_eval_result evaluation[2];
    float variance[2][CHANNELS];
    double furthest = 0;
    for (int h = 0; h < 2; h++) {
        ab_cell *cell = cell_of(net, "O2", &ab_format_bf16, h ? "batch_norm_statistics=half" : NULL);
        ab_step_result result;
        for (int i = 0; i < STEPS; i++) assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 64, &evaluation[h]), AB_OK);
        read_buffer(cell, 1, variance[h]);
        ab_cell_destroy(cell);
    }
    for (int c = 0; c < CHANNELS; c++)
        furthest = fmax(furthest, fabs((double)variance[1][c] / (double)variance[0][c] - 1));
    assert_true(furthest > 0x1p-9 && furthest < 0.05);
    assert_true(evaluation[0].loss != evaluation[1].loss);
    assert_true(fabs(evaluation[0].loss - evaluation[1].loss) < 0.02 * evaluation[0].loss);
    ab_net_free(net);
}

/* A half model's statistics can be kept in fp32, and take the bytes of their format. */
static void the_switch_goes_both_ways(void **state) {
    (void)state;
    const struct {
        const char *level, *set;
        const ab_format *format;
    } rows[] = {{"O3", NULL, &ab_format_fp16},
                {"O3", "batch_norm_statistics=fp32", &ab_format_fp32},
                {"O2", NULL, &ab_format_fp32},
                {"O2", "batch_norm_statistics=fp16", &ab_format_fp16},
                {"O1", "batch_norm_statistics=half", &ab_format_fp16},
                {"mindspore:O3", NULL, &ab_format_fp32},
                {"O1", "batch_norm_statistics=None", &ab_format_fp32}};
    ab_net *net = net_of(0.1);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_cell *cell = cell_of(net, rows[i].level, &ab_format_fp16, rows[i].set);
        const ab_plan *plan = ab_cell_plan(cell);
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        for (int k = 0; k < 2; k++)
            assert_ptr_equal(plan->tensor[ab_plan_find(plan, buffers[k])].format, rows[i].format);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

static void refused(ab_status status, const char *part) {
    assert_int_not_equal(status, AB_OK);
    if (!strstr(ab_error_message(), part)) fail_msg("expected '%s' in: %s", part, ab_error_message());
}

static void what_does_not_apply_is_refused(void **state) {
    (void)state;
    const char *const half = "batch_norm_statistics=half", *const wrong = "batch_norm_statistics=bf16",
                      *const nothing = "batch_norm_statistics=False";
    const ab_level *level = NULL;
    ab_policy policy;
    ab_plan *plan = NULL;
    ab_net *plain = NULL;
    assert_int_equal(ab_level_find("O2", &level), AB_OK);
    refused(ab_policy_resolve(level, &ab_format_fp16, &wrong, 1, &policy), "contradicts --half fp16");
    refused(ab_policy_resolve(level, &ab_format_fp16, &nothing, 1, &policy), "expected half, fp16 or fp32");
    assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, &half, 1, &policy), AB_OK);
    assert_int_equal(ab_net_load("mlp", &plain), AB_OK);
    refused(ab_plan_create(plain, &policy, BATCH, 1, &plan), "network mlp has no batch norms");
    ab_net_free(plain);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stored_statistics_are_rounded_at_every_step),
        cmocka_unit_test(a_small_momentum_leaves_a_bf16_variance_where_it_is),
        cmocka_unit_test(only_the_evaluation_of_a_trained_cell_differs),
        cmocka_unit_test(the_switch_goes_both_ways),
        cmocka_unit_test(what_does_not_apply_is_refused),
    };
    return cmocka_run_group_tests(tests, open_images, close_images);
}
