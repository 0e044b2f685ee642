/* The device seam, on a device that the host cannot touch: its memory has no access rights outside the calls
 * of its table, so anything that reads or writes a tensor behind the table's back ends the test. It computes
 * nothing itself (every op, cast and update is done by the host in its place), and must therefore give the
 * CPU's bits. This is no GPU and stands in for none. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/train/cell/cell.h"
#include "kernels/backend/backend_layout.h"
#include "kernels/backend/fallback.h"
#include "probes/set.h"
#include "support/far_memory.h"
#include "tests/unit/every_op_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Wants every result in the format of what it is of, and then declines. */
static int asked; /* how often */

static ab_status decline(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    (void)workspace_bytes;
    (void)state_bytes;
    asked++;
    if (io->dout) assert_ptr_equal(io->dout->format, io->out->format);
    if (io->din[0]) assert_ptr_equal(io->din[0]->format, io->in[0]->format);
    if (io->dparam[0]) assert_ptr_equal(io->dparam[0]->format, io->param[0]->format);
    if (!io->op->is_loss && io->in[0]->format) assert_ptr_equal(io->out->format, io->in[0]->format);
    if (io->param[0] && !io->op->norm && io->in[0]->format)
        assert_ptr_equal(io->param[0]->format, io->in[0]->format);
    return AB_UNAVAILABLE;
}

static const ab_op picky = {.name = "picky", .prepare = decline};
static const ab_op *picky_op(const ab_op *op) { return op ? &picky : op; }

static const ab_backend far_backend = {.abi = AB_DEVICE_ABI,
                                       .layout = ab_backend_layout,
                                       .kind = "far",
                                       .op = picky_op,
                                       .cast = ab_fallback_cast,
                                       .accumulate = ab_fallback_accumulate,
                                       .unscale = ab_fallback_unscale};

static const ab_device far_device = {.abi = AB_DEVICE_ABI,
                                     .name = "far",
                                     .alloc = far_alloc,
                                     .free = far_free,
                                     .fill_zero = far_fill_zero,
                                     .upload = far_copy,
                                     .download = far_copy,
                                     .synchronize = far_synchronize,
                                     .backend = &far_backend};

/* ---- cells on both devices ------------------------------------------------------------------- */

enum { STEPS = 4, BATCH = 4 };

typedef struct trace {
    float loss[STEPS];
    bool skipped[STEPS];
    double accuracy, test_loss;
    int64_t bytes;
    float weight[4096];
    char first[96];
} trace;

typedef struct choice {
    const char *net, *level, *optimizer;
    double scale; /* 0: the level's own */
    bool probed;
} choice;

static const char *layers_to; /* --to */

static void configure(const choice *c, const ab_net *net, const ab_device *device, ab_cell_config *config) {
    const ab_level *level;
    *config = (ab_cell_config){.net = net, .batch = BATCH, .seed = 3, .device = device};
    assert_int_equal(ab_level_find(c->level, &level), AB_OK);
    assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &config->policy), AB_OK);
    config->policy.layers = layers_to;
    if (c->scale != 0) config->policy.loss_scale = ab_loss_scale_fixed(c->scale);
    assert_int_equal(ab_optimizer_find(c->optimizer, &config->optimizer), AB_OK);
    config->optim = config->optimizer->defaults;
}

static void all_probes(ab_cell *cell, ab_probe_set **set, ab_observer **observer, ab_probe_tensor *tensors,
                       ab_probe_param *params) {
    assert_int_equal(ab_probe_set_create(ab_probes_all(), NULL, set), AB_OK);
    ab_watch watch = ab_probe_set_watch(*set);
    ab_cell_watch(cell, &watch);
    for (int i = 0; i < ab_cell_observed_count(cell); i++) {
        const ab_observed *about = ab_cell_observed_at(cell, i);
        tensors[i] = (ab_probe_tensor){about->name, about->layer, about->role, about->cast};
    }
    for (int i = 0; i < ab_cell_trained_count(cell); i++) params[i] = *ab_cell_trained_at(cell, i);
    ab_probe_setup setup = {.tensor = tensors,
                            .tensors = ab_cell_observed_count(cell),
                            .threads = 1,
                            .half = &ab_format_fp16,
                            .param = params,
                            .params = ab_cell_trained_count(cell),
                            .optimizer = {.lr = 0.01, .second_moment = -1},
                            .steps = STEPS,
                            .seed = 3};
    assert_int_equal(ab_probe_set_start(*set, &setup), AB_OK);
    *observer = ab_probe_set_observer(*set);
}

static void run(const choice *c, const ab_device *device, trace *t) {
    static ab_probe_tensor tensors[512];
    static ab_probe_param params[128];
    ab_net *net = NULL;
    ab_data *data = NULL;
    ab_cell *cell = NULL;
    ab_cell_config config;
    ab_probe_set *set = NULL;
    ab_observer *observer = NULL;
    assert_int_equal(ab_net_load(c->net, &net), AB_OK);
    assert_int_equal(ab_data_open("synthetic", &net->data, 3, &data), AB_OK);
    configure(c, net, device, &config);
    config.data = data;
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    if (c->probed) all_probes(cell, &set, &observer, tensors, params);
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, observer, &result), AB_OK);
        if (set) ab_probe_set_step_end(set, i);
        t->loss[i] = result.loss;
        t->skipped[i] = result.skipped;
    }
    ab_eval_result eval;
    ab_shape shape;
    assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 2 * BATCH + 1, &eval), AB_OK);
    t->accuracy = (double)eval.correct / (double)eval.count;
    t->test_loss = eval.loss;
    t->bytes = ab_cell_bytes_total(cell) - ab_cell_bytes(cell, AB_MEM_workspace);
    assert_int_equal(ab_cell_read(cell, ab_cell_trained_at(cell, 0)->name, &shape, NULL), AB_OK);
    assert_true(ab_shape_count(&shape) <= (int64_t)AB_COUNT_OF(t->weight));
    assert_int_equal(ab_cell_read(cell, ab_cell_trained_at(cell, 0)->name, &shape, t->weight), AB_OK);
    snprintf(t->first, sizeof t->first, "%s",
             ab_cell_describe(cell, ab_cell_plan(cell)->nodes - 1, "forward"));
    ab_cell_destroy(cell);
    if (set) ab_probe_set_destroy(set);
    ab_data_close(data);
    ab_net_free(net);
}

static void both(const choice *c) {
    static trace here, there;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    run(c, &ab_device_cpu, &here);
    far_transfers = 0;
    run(c, &far_device, &there);
    assert_true(far_transfers > 10 * STEPS);
    assert_memory_equal(here.loss, there.loss, sizeof here.loss);
    assert_memory_equal(here.skipped, there.skipped, sizeof here.skipped);
    assert_memory_equal(here.weight, there.weight, sizeof here.weight);
    assert_true(here.accuracy == there.accuracy && here.test_loss == there.test_loss);
    assert_int_equal(here.bytes, there.bytes);
    assert_int_equal(strncmp(there.first, "host:", 5), 0);
    assert_string_equal(there.first + 5, here.first);
    far_blocks = 0;
}

static void every_level_trains_to_the_same_bits(void **state) {
    (void)state;
    static const choice choices[] = {{"lenet5", "O0", "momentum", 0, false},
                                     {"lenet5", "O1", "momentum", 0, false},
                                     {"lenet5", "O2", "adam", 0, false},
                                     {"lenet5", "O3", "sgd", 8, false}};
    for (size_t i = 0; i < AB_COUNT_OF(choices); i++) both(&choices[i]);
}

static void residual_networks_sum_gradients_to_the_same_bits(void **state) {
    (void)state;
    both(&(choice){"resnet8", "O2", "nesterov", 0, false});
}

/* Ops of a device need not take mixed formats: those run on the host. */
static void roles_of_layers_give_the_same_bits(void **state) {
    (void)state;
    layers_to = "*:wgrad=fp32,fc*:dgrad=fp32,conv2:forward=fp32,fc3:weights=fp32";
    both(&(choice){"lenet5", "O3", "momentum", 0, true});
    layers_to = NULL;
}

static void a_device_is_asked_for_every_op_of_a_plain_plan(void **state) {
    (void)state;
    static const char *const levels[] = {
        "O0", "O1", "O2", "O3", "torch:autocast", "mindspore:O2", "keras:mixed_float16"};
    for (size_t n = 0; n < EO_NETS; n++) {
        ab_net *net = eo_net(n);
        for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
            const choice c = {"", levels[l], "sgd", 0, false};
            ab_cell *cell = NULL;
            ab_cell_config config;
            configure(&c, net, &far_device, &config);
            asked = 0;
            if (ab_cell_create(&config, &cell) != AB_OK) continue; /* bce with half numbers */
            int ops = 0;
            for (int i = 0; i < ab_cell_plan(cell)->nodes; i++)
                ops += ab_cell_plan(cell)->node[i].kind == AB_NODE_OP;
            assert_int_equal(asked, ops);
            ab_cell_destroy(cell);
            far_blocks = 0;
        }
        ab_net_free(net);
    }
}

static void probes_see_device_tensors_as_copies(void **state) {
    (void)state;
    both(&(choice){"lenet5", "O1", "momentum", 0, true});
    both(&(choice){"lenet5", "O2", "momentum", 0, true});
}

static uint64_t other_layout(void) { return ab_backend_layout() + 1; }

static void is_refused(const ab_backend *backend) {
    ab_device device = far_device;
    ab_net *net = NULL;
    ab_cell *cell = NULL;
    ab_cell_config config;
    device.backend = backend;
    assert_int_equal(ab_net_load("lenet5", &net), AB_OK);
    configure(&(choice){"lenet5", "O0", "sgd", 0, false}, net, &device, &config);
    assert_int_equal(ab_cell_create(&config, &cell), AB_UNAVAILABLE);
    assert_non_null(strstr(ab_error_message(), "another version of ampbench"));
    ab_net_free(net);
}

static void a_table_of_another_version_is_refused(void **state) {
    (void)state;
    ab_backend other = far_backend;
    other.layout = other_layout;
    is_refused(&other);
    other = far_backend;
    other.abi++;
    is_refused(&other);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_level_trains_to_the_same_bits),
                                       cmocka_unit_test(residual_networks_sum_gradients_to_the_same_bits),
                                       cmocka_unit_test(roles_of_layers_give_the_same_bits),
                                       cmocka_unit_test(a_device_is_asked_for_every_op_of_a_plain_plan),
                                       cmocka_unit_test(probes_see_device_tensors_as_copies),
                                       cmocka_unit_test(a_table_of_another_version_is_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
