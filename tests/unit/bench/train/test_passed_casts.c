/* Ops that pass by the casts beside them (plan_casts.c): steps that somebody looks at, in which every cast
 * runs, give the same bits, and plans leave the casts in where passing them by would be wrong. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/looked_at_testing.h"

#include "kernels/core/parallel.h"
#include "kernels/vec/isa.h"

/* Ops that mix formats, between products and the fp32 stream beside them. */
static const char ops[] =
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"norm1\", \"op\": \"layer_norm\"}, "
    "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 40}, "
    "{\"name\": \"gelu1\", \"op\": \"gelu\", \"approximate\": \"tanh\"}, "
    "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 64}, "
    "{\"name\": \"sum\", \"op\": \"add\", \"in\": [\"flat\", \"fc2\"]}, "
    "{\"name\": \"norm2\", \"op\": \"layer_norm\"}, "
    "{\"name\": \"fc3\", \"op\": \"linear\", \"out_features\": 33}, {\"name\": \"gelu2\", \"op\": \"gelu\"}, "
    "{\"name\": \"fc4\", \"op\": \"linear\", \"out_features\": 64}, "
    "{\"name\": \"gate\", \"op\": \"mul\", \"in\": [\"sum\", \"fc4\"]}, "
    "{\"name\": \"fc5\", \"op\": \"linear\", \"out_features\": 64}, "
    "{\"name\": \"minus\", \"op\": \"sub\", \"in\": [\"fc5\", \"gate\"]}, "
    "{\"name\": \"norm3\", \"op\": \"layer_norm\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

static void steps_that_pass_casts_by_give_the_bits_of_steps_that_run_them(void **state) {
    (void)state;
    static const char *const levels[] = {"O1", "torch:autocast", "O2"};
    static course run, passed, mixed;
    ab_net *net = pt_net(ops);
    for (int k = 0; k < 6; k++)
        for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best() && isa <= AB_ISA_AVX512; isa++) {
            const ab_cell_config config =
                config_of(net, levels[k / 2], k % 2 ? &ab_format_bf16 : &ab_format_fp16);
            assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
            assert_int_equal(ab_parallel_start(1 + isa % 2), AB_OK);
            run_course(&config, 1, &run);
            run_course(&config, 0, &passed);
            run_course(&config, 3, &mixed);
            assert_true(isfinite(run.loss[RUN - 1]) && run.loss[0] != run.loss[RUN - 1]);
            assert_true(same(&run, &passed) && same(&run, &mixed));
        }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
    ab_net_free(net);
}

/* ---- batches ---------------------------------------------------------------------------------- */

/* Layers that read the images, and what they are the first of. */
static const char *const first_layers[] = {
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": "
    "24}, {\"name\": \"relu1\", \"op\": \"relu\"}, ",
    "{\"name\": \"conv\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3}, {\"name\": \"flat\", "
    "\"op\": "
    "\"flatten\"}, "};

static ab_net *net_from(const char *first) {
    char text[1024];
    ab_net *net;
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"tiny\", \"input\": {\"height\": 8, \"width\": 8, "
             "\"channels\": 1}, \"ops\": [%s{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
             "{\"name\": \"loss\", \"op\": \"cross_entropy\"}]}",
             first);
    if (ab_net_parse(text, strlen(text), "tiny.json", &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

/* Whether the fp32 input tensor holds images after a step and an evaluation. */
static bool writes_input(const ab_cell_config *config, ab_observer *observer) {
    float values[BATCH * VALUES];
    ab_step_result result;
    ab_eval_result score;
    ab_shape shape;
    ab_cell *cell = NULL;
    bool any = false;
    if (ab_cell_create(config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    assert_int_equal(ab_cell_step(cell, observer, &result), AB_OK);
    if (!observer) assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 0, &score), AB_OK);
    assert_int_equal(ab_cell_read(cell, "input", &shape, values), AB_OK);
    for (int i = 0; i < BATCH * VALUES; i++) any = any || values[i] != 0;
    ab_cell_destroy(cell);
    return any;
}

static void images_that_are_only_cast_are_written_in_half(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    static course looked_at, alone;
    for (int k = 0; k < 16; k++) {
        ab_observer observer = {.see = look};
        ab_net *net = net_from(first_layers[k % 2]);
        const bool half = k / 4 > 0;
        const ab_cell_config config =
            config_of(net, levels[k / 4], k / 2 % 2 ? &ab_format_bf16 : &ab_format_fp16);
        assert_true(writes_input(&config, &observer));
        assert_int_equal(writes_input(&config, NULL), !half);
        run_course(&config, 1, &looked_at);
        run_course(&config, 0, &alone);
        assert_true(looked_at.loss[0] != looked_at.loss[RUN - 1] && same(&looked_at, &alone));
        ab_net_free(net);
    }
}

/* An input that is not finite in fp32, or whose statistics are still taken, is read as it is. */
static void images_that_somebody_reads_are_written_in_fp32(void **state) {
    (void)state;
    ab_net *net = net_from(first_layers[0]);
    ab_cell_config config = config_of(net, "O2", &ab_format_fp16);
    ab_data read = data;
    config.data = &read;
    assert_false(writes_input(&config, NULL));
    read.std = 1e-45;
    assert_true(writes_input(&config, NULL));
    read.std = data.std;
    config.recipe.faults = AB_FAULT_shuffled_labels;
    assert_true(writes_input(&config, NULL));
    ab_net_free(net);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static const ab_plan_node *node_at(const ab_plan *plan, const char *name) {
    for (int n = 0; n < plan->nodes; n++) {
        const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
        if (op && strcmp(op->name, name) == 0) return &plan->node[n];
    }
    fail_msg("no op %s", name);
    return NULL;
}

static const char *name_at(const ab_plan *plan, int tensor) {
    return tensor == AB_NONE ? "none" : plan->tensor[tensor].name;
}

static int passed_casts(const ab_plan *plan) {
    int count = 0;
    for (int n = 0; n < plan->nodes; n++)
        count += plan->node[n].passed_forward + plan->node[n].passed_backward;
    return count;
}

static ab_plan *plan_of(const ab_net *net, const char *level) {
    const ab_cell_config config = config_of(net, level, &ab_format_fp16);
    ab_plan *plan = NULL;
    assert_int_equal(ab_plan_create(net, &config.policy, BATCH, 1, &plan), AB_OK);
    return plan;
}

static void plans_name_the_tensors_behind_casts(void **state) {
    (void)state;
    ab_net *net = pt_net(ops);
    ab_plan *plan = plan_of(net, "O1");
    const ab_plan_node *gelu = node_at(plan, "gelu1"), *sum = node_at(plan, "sum"),
                       *gate = node_at(plan, "gate");
    assert_string_equal(name_at(plan, gelu->past.in[0]), "fc1.out"); /* kept: backward reads it again */
    assert_string_equal(name_at(plan, gelu->past.out), "gelu1.out.fp16");
    assert_string_equal(name_at(plan, gelu->past.in_grad[0]), "fc1.out.grad");
    assert_string_equal(name_at(plan, gelu->past.out_grad), "gelu1.out.fp16.grad");
    assert_string_equal(name_at(plan, sum->past.in[0]), "none");
    assert_string_equal(name_at(plan, sum->past.in[1]), "fc2.out");
    assert_string_equal(name_at(plan, sum->past.out), "none"); /* norm2 and gate read it in fp32 */
    assert_string_equal(name_at(plan, gate->past.in[1]), "fc4.out");
    assert_string_equal(name_at(plan, gate->past.in_grad[1]), "fc4.out.grad");
    assert_string_equal(name_at(plan, node_at(plan, "norm2")->past.out), "norm2.out.fp16");
    ab_plan_destroy(plan);
    ab_net_free(net);
}

static void plans_without_casts_pass_none_by(void **state) {
    (void)state;
    ab_net *net = pt_net(ops);
    for (int k = 0; k < 2; k++) {
        ab_plan *plan = plan_of(net, k ? "O3" : "O0");
        assert_int_equal(passed_casts(plan), 0);
        ab_plan_destroy(plan);
    }
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_that_pass_casts_by_give_the_bits_of_steps_that_run_them),
        cmocka_unit_test(images_that_are_only_cast_are_written_in_half),
        cmocka_unit_test(images_that_somebody_reads_are_written_in_fp32),
        cmocka_unit_test(plans_name_the_tensors_behind_casts),
        cmocka_unit_test(plans_without_casts_pass_none_by),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
