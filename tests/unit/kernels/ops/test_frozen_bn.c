/* Frozen batch norms: they normalise with running statistics that stay, their gradients are those of what
 * they compute, in mixed formats too: torch 2.11 computes half input with fp32 parameters in eval mode. */
#include "bench/train/cell/cell.h"
#include "kernels/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/grey_images.h"

enum { BATCH = 8, SIDE = 8, CLASSES = 3 };

static const ab_format *const fp16 = &ab_format_fp16;
static uint8_t pixels[BATCH * SIDE * SIDE], labels[BATCH];
static ab_data data;

static int make_data(void **state) {
    (void)state;
    grey_noise(pixels, labels, BATCH, SIDE, CLASSES, 5);
    const ab_images batch = {.count = BATCH, .pixel = pixels, .label = labels};
    data = grey_images("one batch", SIDE, CLASSES, batch, batch, 0.1);
    return 0;
}

/* `mode`: of the second batch norm; the first says nothing. */
static ab_net *net_of(const char *mode) {
    char text[1024];
    ab_net *net;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"tiny\", \"input\": {\"height\": 8, \"width\": 8, "
             "\"channels\": 1}, "
             "\"ops\": [{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3},"
             "{\"name\": \"bn1\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu1\", \"op\": \"relu\"},"
             "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3},"
             "{\"name\": \"bn2\", \"op\": \"batch_norm2d\"%s}, {\"name\": \"flat\", \"op\": \"flatten\"},"
             "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
             "\"cross_entropy\"}]}",
             mode);
    if (ab_net_parse(text, strlen(text), "tiny.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static ab_cell_config config_of(const ab_net *net, const char *level, const char *set, const char *layers) {
    const ab_level *found = NULL;
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 1e-4},
                             .batch = BATCH,
                             .seed = 1,
                             .data = &data,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, fp16, &set, set ? 1 : 0, &config.policy), AB_OK);
    config.policy.layers = layers;
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    return config;
}

static ab_cell *cell_of(const ab_net *net, const char *level, const char *set, const char *layers) {
    ab_cell *cell = NULL;
    ab_cell_config config = config_of(net, level, set, layers);
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    return cell;
}

static double step(ab_cell *cell) {
    ab_step_result result;
    if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
    return (double)result.loss;
}

static bool statistics_moved(const ab_cell *cell, const char *name) {
    char mean_name[64], var_name[64];
    float mean[4], var[4];
    ab_shape shape;
    bool moved = false;
    snprintf(mean_name, sizeof mean_name, "%s.running_mean", name);
    snprintf(var_name, sizeof var_name, "%s.running_var", name);
    assert_int_equal(ab_cell_read(cell, mean_name, &shape, mean), AB_OK);
    assert_int_equal(ab_cell_read(cell, var_name, &shape, var), AB_OK);
    for (int c = 0; c < 4; c++) moved = moved || mean[c] != 0.0f || var[c] != 1.0f;
    return moved;
}

static void only_frozen_statistics_stay(void **state) {
    (void)state;
    ab_net *net = net_of(", \"mode\": \"eval\"");
    ab_cell *cell = cell_of(net, "O0", NULL, NULL);
    for (int i = 0; i < 3; i++) (void)step(cell);
    assert_true(statistics_moved(cell, "bn1"));
    assert_false(statistics_moved(cell, "bn2"));
    ab_cell_destroy(cell);
    ab_net_free(net);
    net = net_of(", \"mode\": \"train\"");
    assert_false(ab_net_op_frozen(&net->op[4]));
    assert_int_equal(ab_net_freeze(net), 2);
    assert_true(ab_net_op_frozen(&net->op[1]) && ab_net_op_frozen(&net->op[4]) &&
                !ab_net_op_frozen(&net->op[0]));
    cell = cell_of(net, "O0", NULL, NULL);
    for (int i = 0; i < 3; i++) (void)step(cell);
    assert_false(statistics_moved(cell, "bn1") || statistics_moved(cell, "bn2"));
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* Training a frozen network computes what evaluating it does. */
static void a_frozen_step_has_the_loss_of_an_evaluation(void **state) {
    (void)state;
    for (int frozen = 0; frozen < 2; frozen++) {
        ab_net *net = net_of("");
        if (frozen) assert_int_equal(ab_net_freeze(net), 2);
        ab_cell *cell = cell_of(net, "O0", NULL, NULL);
        ab_eval_result eval;
        assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TRAIN, 0, &eval), AB_OK);
        assert_int_equal(fabs(step(cell) - eval.loss) < 1e-5 * eval.loss, frozen);
        ab_cell_destroy(cell);
        ab_net_free(net);
    }
}

static double squared_gradients(const ab_cell *cell) {
    static const char *const names[] = {"conv1.weight", "conv1.bias", "bn1.weight", "bn1.bias",
                                        "conv2.weight", "conv2.bias", "bn2.weight", "bn2.bias",
                                        "fc.weight",    "fc.bias"};
    double sum = 0;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        char name[64];
        float values[512];
        ab_shape shape;
        snprintf(name, sizeof name, "%s.grad", names[i]);
        assert_int_equal(ab_cell_read(cell, name, &shape, NULL), AB_OK);
        assert_true(ab_shape_count(&shape) <= 512);
        assert_int_equal(ab_cell_read(cell, name, &shape, values), AB_OK);
        for (int64_t k = 0; k < ab_shape_count(&shape); k++) sum += (double)values[k] * (double)values[k];
    }
    return sum;
}

/* A small step against the gradient lowers the loss by lr |gradient|^2, if the gradient is that of the loss.
 */
static void gradients_are_those_of_the_frozen_network(void **state) {
    (void)state;
    ab_net *net = net_of("");
    assert_int_equal(ab_net_freeze(net), 2);
    ab_cell *cell = cell_of(net, "O0", NULL, NULL);
    double before = step(cell), expected = 1e-4 * squared_gradients(cell), after = step(cell);
    assert_true(expected > 1e-5);
    if (fabs((before - after) / expected - 1) > 0.02)
        fail_msg("the loss fell by %.6g, lr |gradient|^2 is %.6g", before - after, expected);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* Half input with fp32 parameters (O1, O2, autocast) and one format (O3, --to). */
static void every_mixture_of_formats_trains(void **state) {
    (void)state;
    static const char *const rows[][3] = {{"O2", NULL, NULL},
                                          {"O1", NULL, NULL},
                                          {"torch:autocast", NULL, NULL},
                                          {"O2", "keep_batchnorm_fp32=False", NULL},
                                          {"O2", NULL, "bn1=half,bn2=half"},
                                          {"O2", NULL, "bn?=fp32"},
                                          {"O1", NULL, "bn*=half"},
                                          {"O3", NULL, NULL},
                                          {"O0", NULL, NULL}};
    ab_net *net = net_of("");
    assert_int_equal(ab_net_freeze(net), 2);
    ab_cell *cell = cell_of(net, "O0", NULL, NULL);
    const double loss = step(cell), gradients = squared_gradients(cell);
    ab_cell_destroy(cell);
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        cell = cell_of(net, rows[i][0], rows[i][1] ? rows[i][1] : "loss_scale=128", rows[i][2]);
        assert_true(fabs(step(cell) / loss - 1) < 1e-2);
        if (!rows[i][1]) assert_true(fabs(squared_gradients(cell) / gradients - 1) < 2e-2);
        for (int k = 0; k < 3; k++) (void)step(cell);
        assert_false(statistics_moved(cell, "bn1") || statistics_moved(cell, "bn2"));
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* A block that is computed again is computed frozen again. */
static void recomputing_a_frozen_block_changes_no_bit(void **state) {
    (void)state;
    static const char text[] =
        "{\"format\": \"ampbench-net-1\", \"name\": \"blocks\", \"input\": {\"height\": 8, \"width\": 8, "
        "\"channels\": 1}, "
        "\"ops\": [{\"name\": \"h0.conv\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3},"
        "{\"name\": \"h0.bn\", \"op\": \"batch_norm2d\"}, {\"name\": \"h0.relu\", \"op\": \"relu\"},"
        "{\"name\": \"h1.conv\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3},"
        "{\"name\": \"h1.bn\", \"op\": \"batch_norm2d\"}, {\"name\": \"h1.relu\", \"op\": \"relu\"},"
        "{\"name\": \"flat\", \"op\": \"flatten\"},"
        "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
        "\"cross_entropy\"}]}";
    double loss[2][3];
    for (int again = 0; again < 2; again++) {
        ab_net *net;
        assert_int_equal(ab_net_parse(text, strlen(text), "blocks.json", &net), AB_OK);
        assert_int_equal(ab_net_freeze(net), 2);
        if (again) assert_int_equal(ab_net_recompute(net, "all"), AB_OK);
        ab_cell_config config = config_of(net, "O3", NULL, NULL);
        config.optim.lr = 0.1;
        ab_cell *cell = NULL;
        assert_int_equal(ab_cell_create(&config, &cell), AB_OK);
        for (int i = 0; i < 3; i++) loss[again][i] = step(cell);
        ab_cell_destroy(cell);
        ab_net_free(net);
    }
    assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_frozen_statistics_stay),
        cmocka_unit_test(a_frozen_step_has_the_loss_of_an_evaluation),
        cmocka_unit_test(gradients_are_those_of_the_frozen_network),
        cmocka_unit_test(every_mixture_of_formats_trains),
        cmocka_unit_test(recomputing_a_frozen_block_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
