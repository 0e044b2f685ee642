/* Activation checkpointing: blocks that compute their activations again train bit by bit as those that keep
 * them, at every level, with dropout, batch norm's running statistics and probes; and they need less memory.
 */
#include "bench/train/cell/cell.h"
#include "kernels/core/parallel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/images_testing.h"

enum { STEPS = 6, BATCH = 16 };

#define BLOCK(n, before)                                                                                     \
    "{\"name\": \"b" n                                                                                       \
    ".conv\", \"op\": \"conv2d\", \"out_channels\": 6, \"kernel_size\": 3, \"padding\": 1}, "                \
    "{\"name\": \"b" n ".bn\", \"op\": \"batch_norm2d\"}, {\"name\": \"b" n ".act\", \"op\": \"relu\"}, "    \
    "{\"name\": \"b" n ".drop\", \"op\": \"dropout\", \"p\": 0.3}, "                                         \
    "{\"name\": \"b" n ".exp\", \"op\": \"tanh\"}, "                                                         \
    "{\"name\": \"b" n ".add\", \"op\": \"add\", \"in\": [\"b" n ".exp\", \"" before "\"]}, "

static const char ops[] =
    "{\"name\": \"stem\", \"op\": \"conv2d\", \"out_channels\": 6, \"kernel_size\": 3, \"stride\": "
    "3}, " BLOCK("0", "stem") BLOCK("1", "b0.add")
        BLOCK("2", "b1.add") "{\"name\": \"pool\", \"op\": \"global_avg_pool\"}, {\"name\": \"fc\", \"op\": "
                             "\"linear\", \"out_features\": 10}, "
                             "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

static ab_net *net_of(const char *recompute) {
    char text[4096];
    ab_net *net = NULL;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 28, \"width\": 28, "
             "\"channels\": 1}, \"ops\": [%s], \"recompute\": \"%s\"}",
             ops, recompute);
    if (ab_net_parse(text, strlen(text), "t.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

typedef struct outcome {
    float loss[STEPS], weight[6 * 6 * 9], mean[6], variance[6];
    int64_t bytes;
    int64_t seen; /* values that a probe saw */
} outcome;

typedef struct counter {
    ab_observer base;
    _Atomic int64_t seen;
} counter;

static void count(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)id;
    (void)thread;
    (void)values;
    ((counter *)self)->seen += n;
}

static void read_as(const ab_cell *cell, const char *name, float *values) {
    ab_shape shape;
    if (ab_cell_read(cell, name, &shape, values) != AB_OK) fail_msg("%s", ab_error_message());
}

static outcome train(const char *recompute, const char *level, bool probed) {
    const ab_level *found = NULL;
    ab_net *net = net_of(recompute);
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.05, .momentum = 0.9},
                             .batch = BATCH,
                             .seed = 1,
                             .data = images,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, &ab_format_fp16, NULL, 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("momentum", &config.optimizer), AB_OK);
    ab_cell *cell = NULL;
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    outcome o = {.bytes = ab_cell_bytes(cell, AB_MEM_activations)};
    counter probe = {.base = {.see = count}};
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        if (ab_cell_step(cell, probed ? &probe.base : NULL, &result) != AB_OK)
            fail_msg("%s", ab_error_message());
        o.loss[i] = result.loss;
    }
    o.seen = probe.seen;
    read_as(cell, "b1.conv.weight", o.weight);
    read_as(cell, "b1.bn.running_mean", o.mean);
    read_as(cell, "b1.bn.running_var", o.variance);
    ab_cell_destroy(cell);
    ab_net_free(net);
    return o;
}

static void expect_same(const outcome *a, const outcome *b) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_memory_equal(a->weight, b->weight, sizeof a->weight);
    assert_memory_equal(a->mean, b->mean, sizeof a->mean);
    assert_memory_equal(a->variance, b->variance, sizeof a->variance);
}

static void training_has_the_same_bits_and_needs_less(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        outcome kept = train("none", levels[l], false), all = train("all", levels[l], false),
                one = train("b1", levels[l], false);
        expect_same(&kept, &all);
        expect_same(&kept, &one);
        assert_true(all.bytes < one.bytes && one.bytes < kept.bytes);
        assert_true(2 * all.bytes < kept.bytes + kept.bytes / 2);
        assert_true(kept.loss[0] != kept.loss[STEPS - 1]);
    }
}

static void probes_see_every_value_once(void **state) {
    (void)state;
    outcome kept = train("none", "O2", true), all = train("all", "O2", true);
    expect_same(&kept, &all);
    assert_true(kept.seen > 0);
    assert_int_equal(kept.seen, all.seen);
}

static void lanes_do_not_matter(void **state) {
    (void)state;
    outcome runs[2];
    for (int threads = 2; threads >= 1; threads--) {
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        runs[threads - 1] = train("all", "O1", false);
    }
    expect_same(&runs[0], &runs[1]);
}

static void patterns_that_name_no_block_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *recompute, *part;
    } bad[] = {
        {"\"b7\"", "no block of network t is called \"b7\"; there are \"b0\" to \"b0\"; did you mean 'b0'?"},
        {"3", "'recompute': expected names of blocks, all or none, found 3"},
        {"\",\"", "expected names of blocks, all or none, found ','"}};
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        char text[1024];
        ab_net *net = NULL;
        snprintf(
            text, sizeof text,
            "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"shape\": [4]}, \"ops\": "
            "[{\"name\": \"b0.fc\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"loss\", \"op\": "
            "\"cross_entropy\"}], \"recompute\": %s}",
            bad[i].recompute);
        assert_int_equal(ab_net_parse(text, strlen(text), "t.json", &net), AB_CONFIG);
        if (!strstr(ab_error_message(), bad[i].part)) fail_msg("%s", ab_error_message());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_has_the_same_bits_and_needs_less),
        cmocka_unit_test(probes_see_every_value_once),
        cmocka_unit_test(lanes_do_not_matter),
        cmocka_unit_test(patterns_that_name_no_block_are_refused),
    };
    return cmocka_run_group_tests(tests, open_images, close_images);
}
