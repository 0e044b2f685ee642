/* What a cell notices at every step: planted NaNs are counted where they are, labels of chance are told from
 * labels that mean something, weights beyond a format are named, and an average that cannot move is counted;
 * against closed forms. And the signals probe against a network whose outputs are known. */
#define _GNU_SOURCE
#include "tests/unit/probe_testing.h"

#include "bench/train/observe/always_on_stats.h"

#include <math.h>

enum { N = 512, EACH = 100 };

static ab_data_shape images(int64_t classes) {
    return (ab_data_shape){
        .input = AB_INPUT_VALUES, .x = {1, {EACH}}, .targets = AB_TARGETS_CLASSES, .classes = classes};
}

/* Numbers in the data set of a batch's samples: 100, 110, ... */
static const int64_t *numbers(void) {
    static int64_t number[4 * N];
    for (int i = 0; i < 4 * N; i++) number[i] = 100 + 10 * i;
    return number;
}

static float noise(int64_t i) { return (float)ab_rng_normal(5, AB_RNG_SAMPLE, 1, (uint64_t)i); }

static void nonfinite_inputs_are_counted_where_they_are(void **state) {
    static float x[N * EACH];
    static int32_t y[N];
    ab_always_on_stats v = {0};
    const ab_data_shape shape = images(4);
    (void)state;
    for (int i = 0; i < N * EACH; i++) x[i] = noise(i);
    assert_int_equal(ab_always_on_batch(&v, &shape, 0, numbers(), x, y, N, EACH), AB_OK);
    assert_int_equal(v.inputs.batches, 0);
    ab_always_on_clear(&v);
    x[EACH] = -INFINITY; /* alone */
    assert_int_equal(ab_always_on_batch(&v, &shape, 2, numbers(), x, y, N, EACH), AB_OK);
    assert_int_equal(v.inputs.batches, 1);
    assert_int_equal(v.inputs.samples, 1);
    assert_int_equal(v.inputs.sample, 110);
    assert_int_equal(v.inputs.feature, 0);
    ab_always_on_clear(&v);
    x[EACH] = 0;
    for (int i = 0; i < N; i++) x[i * EACH + 7] = NAN; /* a place in every sample */
    x[3 * EACH + 50] = INFINITY;                       /* and one in one */
    assert_int_equal(ab_always_on_batch(&v, &shape, 5, numbers(), x, y, N, EACH), AB_OK);
    assert_int_equal(ab_always_on_batch(&v, &shape, 6, numbers(), x, y, N, EACH), AB_OK);
    assert_int_equal(v.inputs.batches, 2);
    assert_int_equal(v.inputs.step, 5);
    assert_int_equal(v.inputs.samples, N);
    assert_int_equal(v.inputs.features, 2);
    assert_int_equal(v.inputs.common, 1);
    assert_int_equal(v.inputs.sample, 100);
    assert_int_equal(v.inputs.feature, 7);
    assert_int_equal(v.inputs.constant, 7);
    ab_always_on_clear(&v);
}

/* x = noise + shift * label in every place: the expected ratio follows from the variances. */
static double ratio_with(double shift, bool control) {
    static float x[4 * N * EACH];
    static int32_t y[4 * N];
    ab_always_on_stats v = {0};
    const ab_data_shape shape = images(2);
    for (int i = 0; i < 4 * N; i++) {
        y[i] = (int32_t)ab_rng_below(9, AB_RNG_SAMPLE, 2, (uint64_t)i, 2);
        for (int j = 0; j < EACH; j++) x[i * EACH + j] = noise(i * EACH + j) + (float)(shift * y[i]);
    }
    assert_int_equal(ab_always_on_batch(&v, &shape, 0, numbers(), x, y, 4 * N, EACH), AB_OK);
    const double ratio = ab_always_on_label_ratio(&v.labels, control);
    ab_always_on_clear(&v);
    return ratio;
}

static void labels_of_chance_are_told_from_labels_that_mean_something(void **state) {
    (void)state;
    assert_true(fabs(ratio_with(0, false) - 1) < 0.6);
    assert_true(fabs(ratio_with(0.5, true) - 1) < 0.9);
    /* a bin is the sum of 1 or 2 places (100 in 64): its between-class variance m^2 s^2 / 4 beside m + m^2
     * s^2 / 4 in all */
    const double s = 0.5, between = (28 * 1 + 36 * 4) * s * s / 4, all = 28 + 36 * 2 + between;
    const double expected = between / all * (4 * N - 1);
    assert_true(fabs(ratio_with(s, false) / expected - 1) < 0.1);
}

/* Images whose classes differ in which channel is bright, not in how bright they are. */
static void classes_that_differ_in_colour_alone_are_told_from_labels_of_chance(void **state) {
    enum { SIDE = 8, CHANNELS = 3, IMAGE = SIDE * SIDE * CHANNELS };
    static float x[N * IMAGE];
    static int32_t y[N];
    const ab_data_shape shape = {.input = AB_INPUT_IMAGES,
                                 .x = {3, {SIDE, SIDE, CHANNELS}},
                                 .targets = AB_TARGETS_CLASSES,
                                 .classes = CHANNELS};
    ab_always_on_stats v = {0};
    (void)state;
    for (int i = 0; i < N; i++) {
        y[i] = (int32_t)ab_rng_below(9, AB_RNG_SAMPLE, 3, (uint64_t)i, CHANNELS);
        for (int j = 0; j < IMAGE; j++)
            x[i * IMAGE + j] = noise(i * IMAGE + j) + (j % CHANNELS == y[i] ? 1.0f : 0.0f);
    }
    assert_int_equal(ab_always_on_batch(&v, &shape, 0, numbers(), x, y, N, IMAGE), AB_OK);
    assert_true(ab_always_on_label_ratio(&v.labels, false) > 20); /* all channels in one: about 1 */
    assert_true(ab_always_on_label_ratio(&v.labels, true) < 5); /* of few bins that differ, chance is wide */
    ab_always_on_clear(&v);
}

/* Batches of steps that are under way at once, as in a window, each with its own labels; every third is
 * skipped. */
static void labels_are_counted_by_what_became_of_their_step(void **state) {
    enum { STEPS = 12, BATCH = 10, AHEAD = 4 };
    static float x[BATCH * EACH];
    ab_always_on_stats v = {0};
    const ab_data_shape shape = images(3);
    int64_t all[3] = {0}, skipped[3] = {0};
    (void)state;
    for (int begun = 0, ended = 0; ended < STEPS;) {
        for (; begun < ended + AHEAD && begun < STEPS; begun++) {
            int32_t y[BATCH];
            for (int i = 0; i < BATCH; i++) {
                y[i] = i < begun % 4 ? 2 : (i + begun) % 2;
                all[y[i]]++;
                if (begun % 3 == 0) skipped[y[i]]++;
            }
            assert_int_equal(ab_always_on_batch(&v, &shape, begun, numbers(), x, y, BATCH, EACH), AB_OK);
        }
        for (const int end = begun; ended < end; ended++) ab_always_on_step_end(&v, ended, ended % 3 == 0);
    }
    assert_int_equal(v.classes.skips, STEPS / 3);
    assert_memory_equal(v.classes.all, all, sizeof all);
    assert_memory_equal(v.classes.skipped, skipped, sizeof skipped);
    assert_int_equal(all[0] + all[1] + all[2], STEPS * BATCH);
    ab_always_on_clear(&v);
}

static void write_vitals(void *cell, ab_probe_sink *sink) {
    assert_int_equal(ab_cell_report_always_on_stats(cell, sink), AB_OK);
}

static void counts_are(const cJSON *list, const int64_t *expected) {
    assert_int_equal(cJSON_GetArraySize(list), 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal((int64_t)cJSON_GetArrayItem(list, i)->valuedouble, expected[i]);
}

/* The loss scale begins too high; batches are in the order of the data. */
static void a_cell_counts_the_labels_of_its_skipped_steps(void **state) {
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config =
        pt_config(net, "O2", &ab_format_fp16, "momentum", "loss_scale=apex:init=16777216");
    ab_data data = *config.data;
    data.shape = net->data;
    config.data = &data;
    ab_step_result result;
    int64_t all[3] = {0}, skipped[3] = {0};
    int skips = 0;
    (void)state;
    ab_cell *cell = pt_cell(&config);
    for (int step = 0; step < 10; step++) {
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        skips += result.skipped;
        for (int i = 0; i < PT_BATCH; i++) {
            const int label = (step * PT_BATCH + i) % PT_SAMPLES % 3;
            all[label]++;
            skipped[label] += result.skipped;
        }
    }
    assert_true(skips > 0 && skips < 10);
    cJSON *report = pt_report(write_vitals, cell);
    const cJSON *labels = pt_get(pt_get(report, "vitals"), "labels");
    counts_are(pt_get(labels, "counts"), all);
    counts_are(pt_get(labels, "skipped_counts"), skipped);
    cJSON_Delete(report);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

static void weights_that_are_no_numbers_or_too_large_are_named(void **state) {
    const float a[] = {1, -2, 3}, b[] = {NAN, 65504, 65520}, c[] = {INFINITY, -1e6f};
    ab_always_on_weights w = {.count = 0};
    (void)state;
    ab_always_on_add_weights(&w, "a", a, 3, &ab_format_fp16);
    ab_always_on_add_weights(&w, "b", b, 3, &ab_format_fp16);
    ab_always_on_add_weights(&w, "c", c, 2, &ab_format_fp16);
    assert_int_equal(w.nonfinite, 2);
    assert_string_equal(w.nonfinite_name, "b");
    assert_int_equal(w.beyond_half, 2); /* 65520 is the first that rounds to infinity */
    assert_string_equal(w.beyond_name, "b");
    assert_string_equal(w.largest_name, "c");
    assert_true(w.largest == 1e6);
}

/* From 1 towards w by 0.001 (w - 1): in fp16 half an ulp at 1 is 2^-11, so w - 1 below 0.488 is lost; bf16's
 * is 2^-8. */
static void an_average_that_cannot_move_is_counted(void **state) {
    const float weight[] = {1.0f, 1.2f, 1.4f, 1.6f, 9.0f}, mean[] = {1, 1, 1, 1, 1};
    ab_always_on_average fp16 = {0}, bf16 = {0}, fp32 = {0};
    (void)state;
    ab_always_on_average_of(&fp16, weight, mean, 5, &ab_format_fp16, 0.999);
    ab_always_on_average_of(&bf16, weight, mean, 5, &ab_format_bf16, 0.999);
    ab_always_on_average_of(&fp32, weight, mean, 5, &ab_format_fp32, 0.999);
    assert_int_equal(fp16.differing, 4);
    assert_int_equal(fp16.stuck, 2);
    assert_int_equal(bf16.stuck, 3);
    assert_int_equal(fp32.stuck, 0);
    assert_true(fabs(fp16.distance - (0.04 + 0.16 + 0.36 + 64)) < 1e-5);
}

/* A relu behind a bias of -100 is silent; one behind +100 never, and its size is known. */
static const char relu_ops[] =
    "{\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"low\", \"op\": \"add\", \"value\": -100}, {\"name\": \"dead\", \"op\": \"relu\"}, "
    "{\"name\": \"high\", \"op\": \"add\", \"in\": \"flat\", \"value\": 100}, {\"name\": \"alive\", \"op\": "
    "\"relu\"}, "
    "{\"name\": \"both\", \"op\": \"add\", \"in\": [\"dead\", \"alive\"]}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
    "\"cross_entropy\"}";

static void silent_units_and_sizes_are_seen(void **state) {
    (void)state;
    ab_net *net = pt_net(relu_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "sgd", NULL);
    ab_cell *cell = pt_cell(&config);
    int index;
    pt_probing probing;
    assert_int_equal(ab_probe_find("signals", &index), AB_OK);
    pt_start(&probing, (uint64_t)1 << index, cell, &config, &ab_format_fp16);
    pt_step(&probing, cell);
    cJSON *report = pt_set_report(&probing);
    const cJSON *list = pt_get(report, "signals"), *dead = pt_find(list, "op", "dead"),
                *alive = pt_find(list, "op", "alive");
    assert_true(pt_number(dead, "silent_last") == 1 && pt_number(dead, "rms_last") == 0);
    assert_true(pt_number(alive, "silent_last") == 0);
    assert_true(fabs(pt_number(alive, "rms_last") - 100) < 2);
    assert_int_equal(pt_integer(alive, "units"), 64);
    cJSON_Delete(report);
    ab_probe_set_destroy(probing.set);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* Sums of squares over time are those of the tensors. */
static void energy_of_a_step_is_the_sum_of_squares(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "sgd", NULL);
    config.optim.lr = 0;
    ab_cell *cell = pt_cell(&config);
    int index;
    pt_probing probing;
    assert_int_equal(ab_probe_find("gradients", &index), AB_OK);
    pt_start(&probing, (uint64_t)1 << index, cell, &config, &ab_format_fp16);
    pt_step(&probing, cell);
    float grad[3 * 64];
    ab_shape shape;
    assert_int_equal(ab_cell_read(cell, "fc.weight.grad", &shape, grad), AB_OK);
    double sum = 0;
    for (int64_t i = 0; i < ab_shape_count(&shape); i++) sum += (double)grad[i] * (double)grad[i];
    cJSON *report = pt_set_report(&probing);
    const cJSON *tensor = pt_find(pt_get(report, "unscaled_gradients"), "name", "fc.weight.grad");
    const cJSON *energy = pt_get(pt_get(tensor, "steps"), "energy");
    assert_true(fabs(cJSON_GetArrayItem(energy, 0)->valuedouble / sum - 1) < 1e-6);
    cJSON_Delete(report);
    ab_probe_set_destroy(probing.set);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nonfinite_inputs_are_counted_where_they_are),
        cmocka_unit_test(labels_of_chance_are_told_from_labels_that_mean_something),
        cmocka_unit_test(classes_that_differ_in_colour_alone_are_told_from_labels_of_chance),
        cmocka_unit_test(labels_are_counted_by_what_became_of_their_step),
        cmocka_unit_test(a_cell_counts_the_labels_of_its_skipped_steps),
        cmocka_unit_test(weights_that_are_no_numbers_or_too_large_are_named),
        cmocka_unit_test(an_average_that_cannot_move_is_counted),
        cmocka_unit_test(silent_units_and_sizes_are_seen),
        cmocka_unit_test(energy_of_a_step_is_the_sum_of_squares),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
