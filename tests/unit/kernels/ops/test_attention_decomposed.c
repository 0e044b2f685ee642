/* Attention as one op and written out in single ops (whose logits a probe can see) train alike: the same
 * losses and weights. */
#include "bench/train/cell/cell.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 4, BATCH = 8, WEIGHTS = 4096 };

#define BEFORE                                                                                               \
    "{\"name\": \"patch\", \"op\": \"conv2d\", \"out_channels\": 12, \"kernel_size\": 7, \"stride\": 7}, "   \
    "{\"name\": \"tokens\", \"op\": \"reshape\", \"shape\": [0, -1, 12]}, "                                  \
    "{\"name\": \"qkv\", \"op\": \"linear\", \"out_features\": 36}, "
#define FUSED                                                                                                \
    "{\"name\": \"sdpa\", \"op\": \"scaled_dot_product_attention\", \"num_heads\": 3, \"is_causal\": "       \
    "true}, "
#define PART(name, index, dims)                                                                              \
    "{\"name\": \"" name "0\", \"op\": \"select\", \"in\": \"heads\", \"dim\": 2, \"index\": " index "}, "   \
    "{\"name\": \"" name "\", \"op\": \"permute\", \"dims\": " dims "}, "
#define WRITTEN_OUT                                                                                          \
    "{\"name\": \"heads\", \"op\": \"reshape\", \"shape\": [0, 0, 3, 3, 4]}, " PART(                         \
        "q", "0", "[0, 2, 1, 3]") PART("k", "1", "[0, 2, 3, 1]")                                             \
        PART("v", "2",                                                                                       \
             "[0, 2, 1, 3]") "{\"name\": \"scores\", \"op\": \"matmul\", \"in\": [\"q\", \"k\"]}, "          \
                             "{\"name\": \"logits\", \"op\": \"scale\", \"factor\": 0.5}, "                  \
                             "{\"name\": \"masked\", \"op\": \"masked_fill\", \"causal\": true}, "           \
                             "{\"name\": \"probabilities\", \"op\": \"softmax\"}, "                          \
                             "{\"name\": \"mixed\", \"op\": \"matmul\", \"in\": [\"probabilities\", "        \
                             "\"v\"]}, "                                                                     \
                             "{\"name\": \"side\", \"op\": \"permute\", \"dims\": [0, 2, 1, 3]}, "           \
                             "{\"name\": \"sdpa\", \"op\": \"reshape\", \"shape\": [0, 0, 12]}, "
#define AFTER                                                                                                \
    "{\"name\": \"last\", \"op\": \"select\", \"dim\": 1, \"index\": -1}, "                                  \
    "{\"name\": \"head\", \"op\": \"linear\", \"out_features\": 10}, {\"name\": \"loss\", \"op\": "          \
    "\"cross_entropy\"}"

typedef struct training {
    float loss[STEPS], weight[WEIGHTS];
    int64_t count;
} training;

static ab_net *parse(const char *ops) {
    char text[8192];
    ab_net *net = NULL;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 28, \"width\": 28, "
             "\"channels\": 1}, \"ops\": [%s]}",
             ops);
    if (ab_net_parse(text, strlen(text), "t.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static ab_policy policy_of(const char *level) {
    const ab_level *found = NULL;
    ab_policy policy;
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, &ab_format_fp16, NULL, 0, &policy), AB_OK);
    return policy;
}

static void run_steps(ab_cell *cell, training *result) {
    for (int i = 0; i < STEPS; i++) {
        ab_step_result step;
        if (ab_cell_step(cell, NULL, &step) != AB_OK) fail_msg("%s", ab_error_message());
        result->loss[i] = step.loss;
    }
    ab_shape shape;
    assert_int_equal(ab_cell_read(cell, "qkv.weight", &shape, NULL), AB_OK);
    result->count = ab_shape_count(&shape);
    assert_true(result->count <= WEIGHTS);
    assert_int_equal(ab_cell_read(cell, "qkv.weight", &shape, result->weight), AB_OK);
}

static void train(const char *ops, const char *level, training *result) {
    ab_net *net = parse(ops);
    ab_data *data = NULL;
    ab_cell *cell = NULL;
    assert_int_equal(ab_data_open("synthetic", &net->data, 1, &data), AB_OK);
    ab_cell_config config = {.net = net,
                             .policy = policy_of(level),
                             .optim = {.lr = 0.05, .momentum = 0.9},
                             .batch = BATCH,
                             .seed = 1,
                             .data = data,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_optimizer_find("momentum", &config.optimizer), AB_OK);
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    run_steps(cell, result);
    ab_cell_destroy(cell);
    ab_data_close(data);
    ab_net_free(net);
}

/* At the half levels the single ops round in between, so they agree to a few of these roundings only. */
static void both_forms_train_alike(void **state) {
    (void)state;
    const struct {
        const char *level;
        double loss, weight;
    } rows[] = {{"O0", 1e-6, 1e-6}, {"O1", 3e-4, 1e-3}, {"O2", 3e-4, 1e-3}};
    for (size_t k = 0; k < AB_COUNT_OF(rows); k++) {
        static training fused, single;
        double norm = 0.0, apart = 0.0;
        train(BEFORE FUSED AFTER, rows[k].level, &fused);
        train(BEFORE WRITTEN_OUT AFTER, rows[k].level, &single);
        for (int i = 0; i < STEPS; i++)
            assert_true(fabs((double)fused.loss[i] - (double)single.loss[i]) < rows[k].loss);
        for (int64_t i = 0; i < fused.count; i++) {
            norm += pow((double)fused.weight[i], 2.0);
            apart += pow((double)fused.weight[i] - (double)single.weight[i], 2.0);
        }
        assert_true(sqrt(apart) < rows[k].weight * sqrt(norm));
        assert_true(fused.loss[STEPS - 1] != fused.loss[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(both_forms_train_alike)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
