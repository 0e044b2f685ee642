/* Trainings of small networks in which somebody looks at every step, at some or at none: whatever a plan does
 * on steps that nobody looks at, losses and weights have the same bits. */
#ifndef AB_TESTS_UNIT_LOOKED_AT_TESTING_H
#define AB_TESTS_UNIT_LOOKED_AT_TESTING_H

#include "bench/train/cell/cell.h"

#include "kernels/core/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SIDE = 8, VALUES = SIDE * SIDE, CLASSES = 3, TRAIN = 24, BATCH = 8, RUN = 7, WEIGHTS = 20000 };

static uint8_t pixels[TRAIN * VALUES], labels[TRAIN];

static const ab_data data = {.name = "tiny",
                             .height = SIDE,
                             .width = SIDE,
                             .channels = 1,
                             .stored_height = SIDE,
                             .stored_width = SIDE,
                             .classes = CLASSES,
                             .split = {{.count = TRAIN, .pixel = pixels, .label = labels},
                                       {.count = TRAIN, .pixel = pixels, .label = labels}},
                             .mean = 0.35,
                             .std = 0.3};

static inline int make_data(void **state) {
    (void)state;
    for (int n = 0; n < TRAIN; n++) {
        labels[n] = (uint8_t)(n % CLASSES);
        for (int i = 0; i < VALUES; i++)
            pixels[n * VALUES + i] =
                (uint8_t)(ab_rng_below(3, AB_RNG_SYNTHETIC, 0, (uint64_t)(n * VALUES + i), 80) +
                          (i / SIDE / 3 == labels[n] ? 150u : 0u));
    }
    return 0;
}

static inline ab_net *net_of(const char *ops) {
    char text[4096];
    ab_net *net;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"tiny\", \"input\": {\"height\": 8, \"width\": 8, "
             "\"channels\": 1}, \"ops\": [%s]}",
             ops);
    if (ab_net_parse(text, strlen(text), "tiny.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static inline ab_cell_config config_of(const ab_net *net, const char *level, const ab_format *half) {
    const ab_level *found = NULL;
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.05, .momentum = 0.9},
                             .batch = BATCH,
                             .seed = 1,
                             .data = &data,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, half, NULL, 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("momentum", &config.optimizer), AB_OK);
    return config;
}

static inline void look(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

/* Losses and the weights that they lead to. */
typedef struct course {
    float loss[RUN], weight[WEIGHTS];
    int64_t weights;
} course;

/* Looks at every `each`-th step; 0: at none. */
static inline void run_course(const ab_cell_config *config, int each, course *c) {
    ab_observer observer = {.see = look};
    ab_cell *cell = NULL;
    if (ab_cell_create(config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    for (int i = 0; i < RUN; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, each && i % each == 0 ? &observer : NULL, &result), AB_OK);
        c->loss[i] = result.loss;
    }
    const ab_plan *plan = ab_cell_plan(cell);
    c->weights = 0;
    for (int i = 0; i < plan->tensors; i++) {
        ab_shape shape;
        if (plan->tensor[i].category != AB_MEM_weights) continue;
        assert_true(c->weights + ab_shape_count(&plan->tensor[i].shape) <= WEIGHTS);
        assert_int_equal(ab_cell_read(cell, plan->tensor[i].name, &shape, c->weight + c->weights), AB_OK);
        c->weights += ab_shape_count(&shape);
    }
    ab_cell_destroy(cell);
}

static inline bool same(const course *a, const course *b) {
    return a->weights == b->weights && memcmp(a->loss, b->loss, sizeof a->loss) == 0 &&
           memcmp(a->weight, b->weight, (size_t)a->weights * sizeof *a->weight) == 0;
}

#endif
