/* Trainings of small networks in which somebody looks at every step, at some or at none: whatever a plan does
 * on steps that nobody looks at, losses and weights have the same bits. */
#ifndef AB_TESTS_UNIT_LOOKED_AT_TESTING_H
#define AB_TESTS_UNIT_LOOKED_AT_TESTING_H

#include "tests/unit/grey_images.h"
#include "tests/unit/probe_testing.h"

#include <math.h>

enum { SIDE = 8, VALUES = SIDE * SIDE, CLASSES = 3, TRAIN = 24, BATCH = PT_BATCH, RUN = 7, WEIGHTS = 20000 };

static uint8_t pixels[TRAIN * VALUES], labels[TRAIN];

static ab_data data;

static inline int make_data(void **state) {
    (void)state;
    const ab_images images = {.count = TRAIN, .pixel = pixels, .label = labels};
    grey_rows(pixels, labels, TRAIN, SIDE, CLASSES, 0);
    data = grey_images("tiny", SIDE, CLASSES, images, images, 0.35);
    return 0;
}

static inline ab_cell_config config_of(const ab_net *net, const char *level, const ab_format *half) {
    ab_cell_config config = pt_config(net, level, half, "momentum", NULL);
    config.optim = (ab_optimizer_config){.lr = 0.05, .momentum = 0.9};
    config.data = &data;
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
    ab_cell *cell = pt_cell(config);
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
