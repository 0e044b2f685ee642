/* What a network that knows nothing would lose: the loss of the best constant prediction, against frequencies
 * and variances computed here, and the loss with the targets of other samples. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "bench/train/cell/cell.h"
#include "tests/unit/images_testing.h"

enum { BATCH = 16, BATCHES = 64, CLASSES = 10 };

#define TRUNK                                                                                                \
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"drop\", \"op\": \"dropout\", \"p\": 0.1}, "     \
    "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 16}, {\"name\": \"act\", \"op\": \"relu\"}, " \
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 10}, "
#define ONE_HOT "\"targets\": {\"kind\": \"one_hot\", \"classes\": 10}, "
#define BY_HAND                                                                                              \
    "{\"name\": \"log\", \"op\": \"log_softmax\"}, "                                                         \
    "{\"name\": \"own\", \"op\": \"mul\", \"in\": [\"log\", \"targets\"]}, "                                 \
    "{\"name\": \"sums\", \"op\": \"sum\", \"dim\": [1]}, {\"name\": \"mean\", \"op\": \"mean\"}, "          \
    "{\"name\": \"loss\", \"op\": \"neg\"}"

static ab_net *parse(const char *more, const char *ops) {
    char text[4096];
    ab_net *net = NULL;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 28, \"width\": 28, "
             "\"channels\": 1}, %s \"ops\": [%s]}",
             more, ops);
    if (ab_net_parse(text, strlen(text), "t.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static ab_data shaped; /* the images with targets as the network wants them */

static ab_cell *create(const ab_net *net, const char *level, unsigned faults) {
    const ab_level *found = NULL;
    ab_cell *cell = NULL;
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.05, .momentum = 0.9},
                             .recipe = {.faults = faults},
                             .batch = BATCH,
                             .seed = 1,
                             .data = &shaped,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    shaped = *images;
    shaped.shape = net->data;
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, &ab_format_fp16, NULL, 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("momentum", &config.optimizer), AB_OK);
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    return cell;
}

static void take(ab_cell *cell, int steps, float *loss) {
    ab_step_result result;
    for (int i = 0; i < steps; i++) {
        if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
        if (loss) loss[i] = result.loss;
    }
}

/* ---- best constant prediction ---------------------------------------------------------------- */

/* What evaluation of a trained network reports on one batch. */
static ab_eval_result evaluated(const char *ops) {
    ab_net *net = parse("", ops);
    ab_cell *cell = create(net, "O0", 0);
    ab_eval_result result;
    take(cell, 20, NULL);
    assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, BATCH, &result), AB_OK);
    ab_cell_destroy(cell);
    ab_net_free(net);
    return result;
}

/* Class weights, smoothing and ignored rows: the test loss is what the loss op itself computes, which it does
 * where the network names its scores. */
static void the_test_loss_is_the_networks_loss_with_class_weights(void **state) {
    (void)state;
    static const char *const attributes[] = {
        "", ", \"weight\": [1, 4, 0.5, 1, 1, 0.25, 2, 3, 1, 1]", ", \"label_smoothing\": 0.2",
        ", \"ignore_index\": 2",
        ", \"weight\": [1, 4, 0.5, 1, 1, 0.25, 2, 3, 1, 1], \"label_smoothing\": 0.1, \"ignore_index\": 2"};
    for (size_t i = 0; i < AB_COUNT_OF(attributes); i++) {
        char scored[2048], own[2048];
        snprintf(scored, sizeof scored, TRUNK "{\"name\": \"ce\", \"op\": \"cross_entropy\"%s}",
                 attributes[i]);
        snprintf(own, sizeof own, "%s], \"scores\": \"fc\", \"losses\": [\"ce\"", scored);
        const ab_eval_result a = evaluated(scored), b = evaluated(own);
        if (!(fabs(a.loss - b.loss) <= 3e-6 * b.loss))
            fail_msg("'%s': test loss %.9g, the loss op %.9g", attributes[i], a.loss, b.loss);
        if (strstr(attributes[i], "ignore_index")) assert_true(a.count < BATCH);
    }
}

/* Shares of the classes in the first batches of training, in file order. */
static void find_shares(double *share) {
    for (int c = 0; c < CLASSES; c++) share[c] = 0;
    for (int i = 0; i < BATCHES * BATCH; i++)
        share[images->split[AB_SPLIT_TRAIN].label[i]] += 1.0 / (BATCHES * BATCH);
}

static ab_always_on_constant constant_of(const char *more, const char *ops) {
    ab_net *net = parse(more, ops);
    ab_cell *cell = create(net, "O0", 0);
    ab_always_on_constant constant;
    if (ab_cell_constant_loss(cell, &constant) != AB_OK) fail_msg("%s", ab_error_message());
    for (int k = 0; k < constant.parts; k++) constant.part[k].op = NULL; /* the network's */
    ab_cell_destroy(cell);
    ab_net_free(net);
    return constant;
}

static void the_constant_of_a_cross_entropy_loses_the_entropy_of_the_classes(void **state) {
    (void)state;
    double share[CLASSES], entropy = 0;
    find_shares(share);
    for (int c = 0; c < CLASSES; c++) entropy -= share[c] * log(share[c]);
    ab_always_on_constant found = constant_of("", TRUNK "{\"name\": \"ce\", \"op\": \"cross_entropy\"}");
    assert_int_equal(found.batches, BATCHES);
    assert_true(fabs(found.loss - entropy) < 1e-5 * entropy);
    found = constant_of("\"losses\": [{\"op\": \"scaled\", \"weight\": 4}], ",
                        TRUNK "{\"name\": \"ce\", \"op\": \"cross_entropy\"}, "
                              "{\"name\": \"scaled\", \"op\": \"scale\", \"factor\": 256}");
    assert_true(fabs(found.loss - 1024 * entropy) < 1e-5 * 1024 * entropy);
    assert_int_equal(found.parts, 1);
    assert_true(fabs(found.part[0].loss - entropy) < 1e-5 * entropy);
    assert_true(fabs(found.part[0].factor - 1024) < 1e-3);
}

/* Squares: the variance of each output. With logits a binary cross entropy: the entropy of its share. */
static void the_constant_of_a_pointwise_loss_is_the_mean_or_its_logit(void **state) {
    (void)state;
    double share[CLASSES], variance = 0, entropy = 0;
    find_shares(share);
    for (int c = 0; c < CLASSES; c++) {
        variance += share[c] * (1 - share[c]);
        entropy -= share[c] * log(share[c]) + (1 - share[c]) * log(1 - share[c]);
    }
    const ab_always_on_constant mse = constant_of(ONE_HOT, TRUNK "{\"name\": \"l\", \"op\": \"mse\"}"),
                                sum = constant_of(ONE_HOT, TRUNK "{\"name\": \"l\", \"op\": \"mse\", "
                                                                 "\"reduction\": \"sum\"}"),
                                bce = constant_of(ONE_HOT,
                                                  TRUNK "{\"name\": \"l\", \"op\": \"bce_with_logits\"}");
    assert_true(fabs(mse.loss - variance / CLASSES) < 1e-5 * variance);
    assert_true(fabs(sum.loss - BATCH * variance) < 1e-5 * BATCH * variance);
    assert_true(fabs(bce.loss - entropy / CLASSES) < 1e-5 * entropy);
}

/* The targets are the inputs, so that the samples of every batch are needed. */
static void the_constant_of_inputs_is_their_mean(void **state) {
    (void)state;
    enum { PIXELS = 28 * 28, SAMPLES = BATCH * BATCHES };
    static double sum[PIXELS], squares[PIXELS];
    float pixel[PIXELS];
    int32_t label;
    double variance = 0;
    const ab_always_on_constant found =
        constant_of("", "{\"name\": \"flat\", \"op\": \"flatten\"}, "
                        "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 784}, "
                        "{\"name\": \"l\", \"op\": \"mse\", \"in\": [\"fc\", \"flat\"]}");
    for (int64_t i = 0; i < SAMPLES; i++) {
        ab_data_fill(images, AB_SPLIT_TRAIN, AB_NORMALIZE_STANDARD, &i, 1, pixel, &label);
        for (int k = 0; k < PIXELS; k++) sum[k] += (double)pixel[k];
        for (int k = 0; k < PIXELS; k++) squares[k] += (double)pixel[k] * (double)pixel[k];
    }
    for (int k = 0; k < PIXELS; k++) variance += (squares[k] - sum[k] * sum[k] / SAMPLES) / SAMPLES / PIXELS;
    assert_int_equal(found.batches, BATCHES);
    assert_true(variance > 0.1);
    assert_true(fabs(found.loss - variance) < 1e-4 * variance);
}

static void a_loss_of_weights_or_written_by_hand_has_no_best_constant(void **state) {
    (void)state;
    const ab_always_on_constant penalty =
        constant_of("\"losses\": [\"ce\", \"penalty\"], ",
                    TRUNK "{\"name\": \"ce\", \"op\": \"cross_entropy\"}, "
                          "{\"name\": \"squares\", \"op\": \"square\", \"in\": \"act\"}, "
                          "{\"name\": \"penalty\", \"op\": \"mean\"}");
    assert_int_equal(penalty.batches, 0);
    assert_int_equal(constant_of(ONE_HOT, TRUNK BY_HAND).batches, 0);
}

/* ---- targets of other samples ---------------------------------------------------------------- */

static ab_shuffled_result shuffled_of(ab_cell *cell) {
    ab_shuffled_result result;
    if (ab_cell_evaluate_shuffled(cell, AB_SPLIT_TEST, 0, &result) != AB_OK)
        fail_msg("%s", ab_error_message());
    return result;
}

static ab_shuffled_result after_steps(const char *more, const char *ops, int steps) {
    ab_net *net = parse(more, ops);
    ab_cell *cell = create(net, "O0", 0);
    take(cell, steps, NULL);
    const ab_shuffled_result result = shuffled_of(cell);
    ab_cell_destroy(cell);
    ab_net_free(net);
    return result;
}

static void only_predictions_that_know_their_targets_lose_more_with_those_of_others(void **state) {
    (void)state;
    const char *const ops = TRUNK "{\"name\": \"ce\", \"op\": \"cross_entropy\"}";
    const ab_shuffled_result fresh = after_steps("", ops, 0), trained = after_steps("", ops, 60);
    assert_int_equal(fresh.batches, 8);
    assert_int_equal(fresh.shuffles, 8);
    assert_true(fabs(fresh.shuffled - fresh.matched) < 4 * fresh.error);
    assert_true(trained.shuffled - trained.matched > 10 * trained.error && trained.error > 0);
}

/* The same loss in single ops, whose operands are gone when the pass ends. */
static void a_loss_written_by_hand_is_shuffled_like_the_op(void **state) {
    (void)state;
    const ab_shuffled_result op = after_steps(ONE_HOT, TRUNK "{\"name\": \"ce\", \"op\": \"cross_entropy\"}",
                                              9),
                             own = after_steps(ONE_HOT, TRUNK BY_HAND, 9);
    assert_true(fabs(op.matched - own.matched) < 1e-4 && fabs(op.shuffled - own.shuffled) < 1e-4);
    assert_true(op.shuffled > op.matched && fabs(op.error - own.error) < 1e-4);
}

static void without_targets_nothing_is_shuffled(void **state) {
    (void)state;
    ab_net *net = parse("", "{\"name\": \"flat\", \"op\": \"flatten\"}, "
                            "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 784}, "
                            "{\"name\": \"loss\", \"op\": \"mse\", \"in\": [\"fc\", \"flat\"]}");
    ab_cell *cell = create(net, "O0", 0);
    assert_int_equal(shuffled_of(cell).batches, 0);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void asking_changes_no_bit_of_the_training(void **state) {
    (void)state;
    const char *const levels[] = {"O0", "O2"};
    ab_net *net = parse("", TRUNK "{\"name\": \"ce\", \"op\": \"cross_entropy\"}");
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        float straight[8], asked[8];
        ab_always_on_constant constant;
        ab_cell *one = create(net, levels[l], 0), *two = create(net, levels[l], 0);
        take(one, 8, straight);
        take(two, 4, asked);
        (void)shuffled_of(two);
        assert_int_equal(ab_cell_constant_loss(two, &constant), AB_OK);
        take(two, 4, asked + 4);
        assert_memory_equal(straight, asked, sizeof straight);
        ab_cell_destroy(one);
        ab_cell_destroy(two);
    }
    ab_net_free(net);
}

static void outputs_that_are_no_numbers_are_right_for_no_class(void **state) {
    (void)state;
    ab_net *net = parse("", TRUNK "{\"name\": \"ce\", \"op\": \"cross_entropy\"}");
    ab_cell *cell = create(net, "O0", AB_FAULT_nan_initial_weight);
    ab_eval_result result;
    take(cell, 2, NULL);
    assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 100, &result), AB_OK);
    assert_int_equal(result.count, 100);
    assert_int_equal(result.correct, 0);
    assert_int_equal(result.ranked, 0);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_test_loss_is_the_networks_loss_with_class_weights),
        cmocka_unit_test(the_constant_of_a_cross_entropy_loses_the_entropy_of_the_classes),
        cmocka_unit_test(the_constant_of_a_pointwise_loss_is_the_mean_or_its_logit),
        cmocka_unit_test(the_constant_of_inputs_is_their_mean),
        cmocka_unit_test(a_loss_of_weights_or_written_by_hand_has_no_best_constant),
        cmocka_unit_test(only_predictions_that_know_their_targets_lose_more_with_those_of_others),
        cmocka_unit_test(a_loss_written_by_hand_is_shuffled_like_the_op),
        cmocka_unit_test(without_targets_nothing_is_shuffled),
        cmocka_unit_test(asking_changes_no_bit_of_the_training),
        cmocka_unit_test(outputs_that_are_no_numbers_are_right_for_no_class),
    };
    return cmocka_run_group_tests(tests, open_images, close_images);
}
