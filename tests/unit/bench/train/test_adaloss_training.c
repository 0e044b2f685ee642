/* AdaLoss in training: scales of every layer and weights as a PyTorch program has them that walks the
 * backward pass as the original does (tests/golden/adaloss, scripts/peer_adaloss.py); what it saves from the
 * flush; where it does not apply. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/golden_check.h"
#include "tests/unit/images_testing.h"

/* ---- against PyTorch ------------------------------------------------------------------------- */

static int find_layer(const ab_cell *cell, const char *name) {
    for (int i = 0; i < ab_cell_layers(cell); i++)
        if (strcmp(ab_cell_layer_name(cell, i), name) == 0) return i;
    return -1;
}

static void check_scales(const cJSON *document) {
    golden_setup setup;
    const cJSON *layers = golden_get(document, "layers"), *steps = golden_get(document, "layer_scales"),
                *step = NULL;
    assert_int_equal(golden_create(golden_get(document, "config"), &setup), AB_OK);
    assert_int_equal(ab_cell_layers(setup.cell), cJSON_GetArraySize(layers));
    cJSON_ArrayForEach(step, steps) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(setup.cell, NULL, &result), AB_OK);
        for (int i = 0; i < cJSON_GetArraySize(layers); i++) {
            const int layer = find_layer(setup.cell, cJSON_GetArrayItem(layers, i)->valuestring);
            assert_true(layer >= 0);
            assert_true(ab_cell_layer_scales(setup.cell)[layer] ==
                        cJSON_GetNumberValue(cJSON_GetArrayItem(step, i)));
        }
    }
    golden_teardown(&setup);
}

static void check(const char *path, const cJSON *document) {
    golden_check(path, document);
    check_scales(document);
}

static void scales_and_weights_are_the_original_s(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/adaloss", "tests/golden/data", check), 3);
}

/* ---- networks of this test ------------------------------------------------------------------- */

static ab_net *net_of(const char *ops, double weight) {
    char text[2048];
    ab_net *net = NULL;
    snprintf(
        text, sizeof text,
        "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 28, \"width\": 28, "
        "\"channels\": 1}, \"ops\": [{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc1\", \"op\": "
        "\"linear\", \"out_features\": 32}, {\"name\": \"act1\", \"op\": \"relu\"}, %s{\"name\": \"fc3\", "
        "\"op\": \"linear\", \"out_features\": 10}, {\"name\": \"ce\", \"op\": \"cross_entropy\"}], "
        "\"losses\": [{\"op\": \"ce\", \"weight\": %g}]}",
        ops, weight);
    if (ab_net_parse(text, strlen(text), "t.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

#define SECOND                                                                                               \
    "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 32}, {\"name\": \"act2\", \"op\": "           \
    "\"relu\"}, "
/* torch would call it tied weights */
#define SHARED                                                                                               \
    "{\"name\": \"a\", \"op\": \"linear\", \"out_features\": 32}, {\"name\": \"b\", \"op\": \"linear\", "    \
    "\"out_features\": 32, \"share\": {\"weight\": \"a.weight\"}}, "

static ab_status cell_status(const ab_net *net, const char *level, const char *scale, ab_cell **cell) {
    const ab_level *found = NULL;
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.05, .momentum = 0.9},
                             .batch = 8,
                             .seed = 1,
                             .data = images,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    AB_TRY(ab_level_find(level, &found));
    AB_TRY(ab_policy_resolve(found, &ab_format_fp16, &scale, 1, &config.policy));
    AB_TRY(ab_optimizer_find("momentum", &config.optimizer));
    return ab_cell_create(&config, cell);
}

static ab_cell *cell_of(const ab_net *net, const char *level, const char *scale) {
    ab_cell *cell = NULL;
    if (cell_status(net, level, scale, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    return cell;
}

/* Values of fc1's gradient that are not 0, after one step. */
static int64_t nonzero_gradients(const ab_net *net, const char *scale) {
    ab_cell *cell = cell_of(net, "O2", scale);
    ab_step_result result;
    ab_shape shape;
    int64_t count = 0;
    assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
    assert_true(result.scale == 1 && !result.skipped);
    assert_int_equal(ab_cell_read(cell, "fc1.weight.grad", &shape, NULL), AB_OK);
    float *values = malloc((size_t)ab_shape_count(&shape) * sizeof *values);
    assert_non_null(values);
    assert_int_equal(ab_cell_read(cell, "fc1.weight.grad", &shape, values), AB_OK);
    for (int64_t i = 0; i < ab_shape_count(&shape); i++) count += values[i] != 0;
    free(values);
    ab_cell_destroy(cell);
    return count;
}

static void gradients_survive_that_a_scale_of_1_flushes(void **state) {
    (void)state;
    ab_net *net = net_of(SECOND, 1e-5);
    const int64_t plain = nonzero_gradients(net, "loss_scale=1"),
                  scaled = nonzero_gradients(net, "loss_scale=adaloss"),
                  all = nonzero_gradients(net, "loss_scale=adaloss:bound=1024,accum=65503");
    assert_true(plain < scaled && scaled < all);
    ab_net_free(net);
}

/* Only half gradients have a range to be fitted to. */
static void fp32_gradients_are_left_alone(void **state) {
    (void)state;
    ab_net *net = net_of(SECOND, 1e-5);
    ab_cell *with = cell_of(net, "O0", "loss_scale=adaloss"), *without = cell_of(net, "O0", "loss_scale=1");
    assert_int_equal(ab_cell_layers(with), 0);
    for (int i = 0; i < 3; i++) {
        ab_step_result a, b;
        assert_int_equal(ab_cell_step(with, NULL, &a), AB_OK);
        assert_int_equal(ab_cell_step(without, NULL, &b), AB_OK);
        assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
    }
    ab_cell_destroy(with);
    ab_cell_destroy(without);
    ab_net_free(net);
}

/* The statistics are looked at every third step only: what is remembered is in the checkpoint. */
static void a_resumed_cell_remembers_every_layer(void **state) {
    (void)state;
    ab_net *net = net_of(SECOND, 1e-3);
    char path[] = "/tmp/test_adaloss_XXXXXX";
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    ab_cell *cell = cell_of(net, "O2", "loss_scale=adaloss:every=3"),
            *other = cell_of(net, "O2", "loss_scale=adaloss:every=3");
    ab_step_result a, b;
    for (int i = 0; i < 4; i++) assert_int_equal(ab_cell_step(cell, NULL, &a), AB_OK);
    assert_int_equal(ab_cell_checkpoint(cell, path), AB_OK);
    if (ab_cell_resume(other, path) != AB_OK) fail_msg("%s", ab_error_message());
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ab_cell_step(cell, NULL, &a), AB_OK);
        assert_int_equal(ab_cell_step(other, NULL, &b), AB_OK);
        assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
        for (int l = 0; l < ab_cell_layers(cell); l++)
            assert_true(ab_cell_layer_scales(cell)[l] == ab_cell_layer_scales(other)[l]);
    }
    ab_cell_destroy(cell);
    ab_cell_destroy(other);
    unlink(path);
    ab_net_free(net);
}

static void what_the_original_has_not_is_refused(void **state) {
    (void)state;
    ab_net *net = net_of(SHARED, 1);
    ab_cell *cell = NULL;
    assert_int_not_equal(cell_status(net, "O2", "loss_scale=adaloss", &cell), AB_OK);
    assert_non_null(strstr(ab_error_message(), "op 'b' reads another op's weights"));
    ab_net_free(net);
}

/* A gradient that is not a number stops the original at the next layer. */
static void it_raises_where_the_statistics_are_no_numbers(void **state) {
    (void)state;
    ab_net *net =
        net_of("{\"name\": \"none\", \"op\": \"scale\", \"factor\": 0}, {\"name\": \"root\", \"op\": "
               "\"sqrt\"}, ",
               1);
    ab_cell *cell = cell_of(net, "O2", "loss_scale=adaloss");
    ab_step_result result;
    assert_int_not_equal(ab_cell_step(cell, NULL, &result), AB_OK);
    assert_non_null(strstr(ab_error_message(), "op 'fc1': loss scaler adaloss raises (scale_invalid)"));
    ab_cell_destroy(cell);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_and_weights_are_the_original_s),
        cmocka_unit_test(gradients_survive_that_a_scale_of_1_flushes),
        cmocka_unit_test(fp32_gradients_are_left_alone),
        cmocka_unit_test(a_resumed_cell_remembers_every_layer),
        cmocka_unit_test(what_the_original_has_not_is_refused),
        cmocka_unit_test(it_raises_where_the_statistics_are_no_numbers),
    };
    return cmocka_run_group_tests(tests, open_images, close_images);
}
