/* Windows of steps that the GPU decides, alone and four in a graph: for every optimizer that it has, with
 * clipping, averaged weights and micro-batches, losses, scales, skips and weights are those of steps that the
 * host decides, bit for bit where no norm of a parameter is involved. */
#define _GNU_SOURCE
#include "gpu/gpu_testing.h"

#include "bench/train/update/optim_device.h"
#include "kernels/ops/formulas.h"
#include "tests/unit/probe_testing.h"

#include <float.h>

enum { STEPS = 9, MOST = 4096 };

typedef struct trace {
    ab_step_result step[STEPS];
    int64_t time_ns[STEPS];
    float weight[MOST];
    int64_t weights;
} trace;

typedef struct choice {
    const char *level, *optimizer;
    double norm, value, ema;
    int micro_batches;
} choice;

static void run(const choice *c, bool no_graph, trace *t) {
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, c->level, &ab_format_fp16, c->optimizer, NULL);
    ab_shape shape;
    memset(t, 0, sizeof *t);
    config.device = gpu;
    config.no_graph = no_graph;
    config.recipe.clip = (ab_clip_config){.norm = c->norm, .value = c->value};
    config.recipe.micro_batches = c->micro_batches;
    config.recipe.ema_decay = c->ema;
    if (c->ema > 0) config.policy.keep.ema_format = &ab_format_fp32;
    ab_cell *cell = pt_cell(&config);
    assert_int_equal(ab_cell_window(cell) > 1, !no_graph);
    if (ab_cell_run_steps(cell, STEPS, t->step, t->time_ns) != AB_OK) fail_msg("%s", ab_error_message());
    const char *name = ab_cell_trained_at(cell, 0)->name;
    assert_int_equal(ab_cell_read(cell, name, &shape, NULL), AB_OK);
    t->weights = ab_shape_count(&shape);
    assert_true(t->weights <= MOST);
    assert_int_equal(ab_cell_read(cell, name, &shape, t->weight), AB_OK);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

static bool near(double a, double b, double tolerance) {
    return a == b || (isnan(a) && isnan(b)) || fabs(a - b) <= tolerance * (fabs(a) + fabs(b));
}

static void compare(const choice *c, bool exact) {
    static trace device, host;
    const double tolerance = exact ? 0 : 16 * (double)FLT_EPSILON;
    run(c, false, &device);
    run(c, true, &host);
    for (int i = 0; i < STEPS; i++) {
        const ab_step_result *a = &device.step[i], *b = &host.step[i];
        if (!near((double)a->loss, (double)b->loss, tolerance) || a->scale != b->scale ||
            a->skipped != b->skipped || !near(a->grad_norm, b->grad_norm, tolerance))
            fail_msg("%s %s step %d: loss %a, scale %g, norm %a by the GPU, %a, %g, %a by the host", c->level,
                     c->optimizer, i, (double)a->loss, a->scale, a->grad_norm, (double)b->loss, b->scale,
                     b->grad_norm);
        assert_true(device.time_ns[i] >= 0);
    }
    for (int64_t i = 0; i < device.weights; i++)
        assert_true(near((double)device.weight[i], (double)host.weight[i], tolerance));
}

static void every_optimizers_steps_are_the_hosts(void **state) {
    (void)state;
    int optimizers = 0;
    for (int i = 0; i < ab_optimizer_count(); i++) {
        const ab_optimizer *optimizer = ab_optimizer_at(i);
        const ab_update_kind kind = ab_optimizer_device_kind(optimizer);
        if (kind == AB_UPDATE_NONE) continue;
        compare(&(choice){.level = "O2", .optimizer = optimizer->name}, !ab_f_needs_norms((int)kind));
        optimizers++;
    }
    assert_int_equal(optimizers, 12);
}

static void recipes_are_the_hosts(void **state) {
    (void)state;
    compare(&(choice){"O0", "adamw", .norm = 0.5, .ema = 0.9, .micro_batches = 3}, true);
    compare(&(choice){"O1", "momentum", .norm = 0.5, .value = 0.01, .micro_batches = 2}, true);
    compare(&(choice){"O3", "nesterov", .value = 0.01, .ema = 0.5}, true);
    compare(&(choice){"O0", "lamb", .norm = 1}, false);
}

int main(void) {
    gpu_or_skip();
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_optimizers_steps_are_the_hosts),
                                       cmocka_unit_test(recipes_are_the_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
