/* Loss scalers inside training: a cell tells its scaler what the gradients were, and does what the scaler
 * says. */
#include "bench/train/cell/cell.h"
#include "kernels/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/grey_images.h"

enum { BATCH = 8, SIDE = 4, CLASSES = 3 };

static uint8_t pixels[BATCH * SIDE * SIDE], labels[BATCH];
static ab_data data;
static ab_net *net;

static int make(void **state) {
    (void)state;
    static const char text[] =
        "{\"format\": \"ampbench-net-1\", \"name\": \"tiny\", \"input\": {\"height\": 4, \"width\": 4, "
        "\"channels\": 1}, \"ops\": [{\"name\": \"flat\", \"op\": \"flatten\"},"
        "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 6}, {\"name\": \"relu\", \"op\": "
        "\"relu\"},"
        "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, "
        "{\"name\": \"loss\", \"op\": \"cross_entropy\"}]}";
    grey_noise(pixels, labels, BATCH, SIDE, CLASSES, 5);
    const ab_images batch = {.count = BATCH, .pixel = pixels, .label = labels};
    data = grey_images("one batch", SIDE, CLASSES, batch, batch, 0.1);
    return ab_net_parse(text, strlen(text), "tiny.json", &net) != AB_OK;
}

static int unmake(void **state) {
    (void)state;
    ab_net_free(net);
    return 0;
}

static ab_cell *cell_of(const char *level, const char *scaler) {
    const ab_level *found = NULL;
    ab_cell *cell = NULL;
    char set[96];
    const char *override = set;
    snprintf(set, sizeof set, "loss_scale=%s", scaler);
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.01},
                             .batch = BATCH,
                             .seed = 1,
                             .data = &data,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    if (ab_policy_resolve(found, &ab_format_fp16, &override, 1, &config.policy) != AB_OK)
        fail_msg("%s", ab_error_message());
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    return cell;
}

/* All weight gradients, as the optimizer got them. */
static int read_gradients(const ab_cell *cell, float values[256]) {
    static const char *const names[] = {"fc1.weight.grad", "fc1.bias.grad", "fc2.weight.grad",
                                        "fc2.bias.grad"};
    int count = 0;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        ab_shape shape;
        assert_int_equal(ab_cell_read(cell, names[i], &shape, values + count), AB_OK);
        count += (int)ab_shape_count(&shape);
        assert_true(count <= 256);
    }
    return count;
}

static void logmax_is_told_the_largest_gradient(void **state) {
    (void)state;
    ab_cell *cell = cell_of("O2", "openseq2seq-logmax");
    ab_scaler twin = *ab_cell_scaler(cell);
    for (int k = 0; k < 5; k++) {
        ab_step_result result;
        float values[256];
        double amax = 0;
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        int count = read_gradients(cell, values);
        for (int i = 0; i < count; i++) amax = fmax(amax, fabs((double)values[i]));
        ab_scaler_seen seen = {.overflow = result.overflow, .amax = amax};
        assert_int_equal(ab_scaler_update(&twin, &seen).skip, result.skipped);
        assert_true(ab_cell_scaler(cell)->scale == twin.scale && twin.scale > 1);
    }
    ab_cell_destroy(cell);
}

static void als_is_told_how_many_gradients_lie_above_its_edge(void **state) {
    (void)state;
    ab_cell *cell = cell_of("O2", "graphcore-als:proportion=0.25,init=16384,edge=0.01");
    int halved = 0, doubled = 0;
    for (int k = 0; k < 12; k++) {
        ab_step_result result;
        float values[256];
        int above = 0;
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        assert_false(result.skipped);
        int count = read_gradients(cell, values);
        for (int i = 0; i < count; i++) above += !(fabs((double)values[i]) * result.scale <= 0.01 * 65504);
        bool high = above > count / 4.0;
        assert_true(ab_cell_scaler(cell)->scale == result.scale * (high ? 0.5 : 2));
        halved += high;
        doubled += !high;
    }
    assert_true(halved > 0 && doubled > 0);
    ab_cell_destroy(cell);
}

static void a_dialect_that_raises_ends_training_with_its_reason(void **state) {
    (void)state;
    ab_cell *cell = cell_of("O2", "deepspeed:init=1e30,min=1e30,hysteresis=1");
    ab_step_result result;
    assert_int_equal(ab_cell_step(cell, NULL, &result), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "step 0: loss scaler deepspeed raises (at_floor)"));
    ab_cell_destroy(cell);
}

static void a_scale_that_grows_to_infinity_ends_training(void **state) {
    (void)state;
    ab_cell *cell = cell_of("O0", "megatron:init=3e38,window=1");
    ab_step_result result;
    assert_int_equal(ab_cell_step(cell, NULL, &result), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "step 0: loss scaler megatron (scale_inf)"));
    ab_cell_destroy(cell);
}

/* FixedLossScaleManager(drop_overflow_update=False) with an optimizer that was not told the scale. */
static void gradients_stay_scaled_where_mindspore_leaves_them_so(void **state) {
    (void)state;
    static const char *const scalers[] = {
        "1", "mindspore-fixed:drop_overflow_update=False",
        "mindspore-fixed:drop_overflow_update=False,optimizer_loss_scale=128", "mindspore-fixed"};
    static const double factor[] = {1, 128, 1, 1};
    float first[256];
    int count = 0;
    for (int s = 0; s < 4; s++) {
        ab_cell *cell = cell_of("O0", scalers[s]);
        ab_step_result result;
        float values[256];
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        count = read_gradients(cell, s ? values : first);
        for (int i = 0; s && i < count; i++) assert_true((double)values[i] == factor[s] * (double)first[i]);
        ab_cell_destroy(cell);
    }
    assert_true(count > 100);
}

/* DeepSpeed grows the scale before it divides by it. */
static void deepspeed_halves_the_gradients_of_a_step_that_grows(void **state) {
    (void)state;
    static const char *const scalers[] = {"apex:init=1024,window=3", "deepspeed:init=1024,window=2",
                                          "deepspeed-fused:init=1024,window=2",
                                          "deepspeed-unfused:init=1024,window=2"};
    float first[256];
    for (int s = 0; s < 4; s++) { /* all grow in step 2 */
        ab_cell *cell = cell_of("O2", scalers[s]);
        ab_step_result result;
        float values[256];
        for (int k = 0; k < 3; k++) {
            assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
            assert_true(result.scale == 1024 && ab_cell_scaler(cell)->scale == (k == 2 ? 2048 : 1024));
        }
        int count = read_gradients(cell, s ? values : first);
        for (int i = 0; s && i < count; i++) assert_true(values[i] == first[i] / 2);
        ab_cell_destroy(cell);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logmax_is_told_the_largest_gradient),
        cmocka_unit_test(als_is_told_how_many_gradients_lie_above_its_edge),
        cmocka_unit_test(a_dialect_that_raises_ends_training_with_its_reason),
        cmocka_unit_test(a_scale_that_grows_to_infinity_ends_training),
        cmocka_unit_test(gradients_stay_scaled_where_mindspore_leaves_them_so),
        cmocka_unit_test(deepspeed_halves_the_gradients_of_a_step_that_grows),
    };
    return cmocka_run_group_tests(tests, make, unmake);
}
