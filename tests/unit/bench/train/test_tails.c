/* Batch norms that compute the relu, or the addition and the relu, behind them, and poolings that compute the
 * gradient of the relu before them (plan_tails.c): steps that somebody looks at, in which every op runs by
 * itself, give the same bits, and plans find the tails and fronts there are and no others. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/looked_at_testing.h"

#include "kernels/core/parallel.h"
#include "kernels/vec/isa.h"

/* Channels that fill no vector. A block whose shortcut is the identity, read by two convolutions; one with a
 * batch norm on the shortcut; a batch norm that relu follows; one that nothing follows. */
static const char residual[] =
    "{\"name\": \"conv0\", \"op\": \"conv2d\", \"out_channels\": 6, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"bn0\", \"op\": \"batch_norm2d\"}, {\"name\": \"relu0\", \"op\": \"relu\"}, "
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 6, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"bn1\", \"op\": \"batch_norm2d\"}, "
    "{\"name\": \"add1\", \"op\": \"add\", \"in\": [\"relu0\", \"bn1\"]}, {\"name\": \"relu1\", \"op\": "
    "\"relu\"}, "
    "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out_channels\": 17, \"kernel_size\": 3, \"stride\": 2}, "
    "{\"name\": \"bn2\", \"op\": \"batch_norm2d\"}, "
    "{\"name\": \"conv3\", \"op\": \"conv2d\", \"in\": \"relu1\", \"out_channels\": 17, \"kernel_size\": 3, "
    "\"stride\": 2}, {\"name\": \"bn3\", \"op\": \"batch_norm2d\"}, "
    "{\"name\": \"add3\", \"op\": \"add\", \"in\": [\"bn2\", \"bn3\"]}, {\"name\": \"relu3\", \"op\": "
    "\"relu\"}, "
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": "
    "20}, "
    "{\"name\": \"bn4\", \"op\": \"batch_norm1d\"}, {\"name\": \"relu4\", \"op\": \"relu\"}, "
    "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, {\"name\": \"bn5\", \"op\": "
    "\"batch_norm1d\"}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

/* Poolings after relus: of windows side by side, that leave pixels out, and that overlap; the last relu is
 * read twice. */
static const char pooled[] =
    "{\"name\": \"conv0\", \"op\": \"conv2d\", \"out_channels\": 6, \"kernel_size\": 3, \"padding\": 2}, "
    "{\"name\": \"relu0\", \"op\": \"relu\"}, "
    "{\"name\": \"pool0\", \"op\": \"max_pool2d\", \"kernel_size\": 2}, "
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 17, \"kernel_size\": 3, \"padding\": 2}, "
    "{\"name\": \"relu1\", \"op\": \"relu\"}, "
    "{\"name\": \"pool1\", \"op\": \"max_pool2d\", \"kernel_size\": 2}, "
    "{\"name\": \"conv2\", \"op\": \"conv2d\", \"out_channels\": 8, \"kernel_size\": 3, \"padding\": 2}, "
    "{\"name\": \"relu2\", \"op\": \"relu\"}, "
    "{\"name\": \"pool2\", \"op\": \"max_pool2d\", \"kernel_size\": 3, \"stride\": 1}, "
    "{\"name\": \"conv3\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 1}, "
    "{\"name\": \"relu3\", \"op\": \"relu\"}, "
    "{\"name\": \"pool3\", \"op\": \"max_pool2d\", \"kernel_size\": 1}, "
    "{\"name\": \"sum\", \"op\": \"add\", \"in\": [\"relu3\", \"pool3\"]}, "
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc\", \"op\": \"linear\", "
    "\"out_features\": 3}, {\"name\": \"loss\", \"op\": \"cross_entropy\"}";

/* ---- bits ------------------------------------------------------------------------------------ */

static void check_bits(const ab_net *net, const char *level, const ab_format *half) {
    static course run, fused, mixed;
    const ab_cell_config config = config_of(net, level, half);
    run_course(&config, 1, &run);
    run_course(&config, 0, &fused);
    run_course(&config, 3, &mixed);
    assert_true(isfinite(run.loss[RUN - 1]) && run.loss[0] != run.loss[RUN - 1]);
    assert_true(same(&run, &fused) && same(&run, &mixed));
}

static void fused_steps_give_the_bits_of_steps_op_by_op(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "torch:autocast", "O2", "O3"};
    for (int kind = 0; kind < 3; kind++) {
        ab_net *net = pt_net(kind == 2 ? pooled : residual);
        if (kind == 1) assert_int_equal(ab_net_freeze(net), 6);
        for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best() && isa <= AB_ISA_AVX512; isa++) {
            assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
            assert_int_equal(ab_parallel_start(1 + isa % 2), AB_OK);
            for (int k = 0; k < 10; k++)
                check_bits(net, levels[k / 2], k % 2 ? &ab_format_bf16 : &ab_format_fp16);
        }
        ab_net_free(net);
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

/* Evaluation after the same steps. */
static void evaluations_have_the_loss_of_shown_ones(void **state) {
    (void)state;
    ab_net *net = pt_net(residual);
    ab_observer observer = {.see = look};
    ab_eval_result score[2];
    for (int shown = 0; shown < 2; shown++) {
        const ab_cell_config config = config_of(net, "O2", &ab_format_fp16);
        ab_step_result result;
        ab_cell *cell = NULL;
        assert_int_equal(ab_cell_create(&config, &cell), AB_OK);
        for (int i = 0; i < 3; i++)
            assert_int_equal(ab_cell_step(cell, shown ? &observer : NULL, &result), AB_OK);
        assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 0, &score[shown]), AB_OK);
        ab_cell_destroy(cell);
    }
    assert_true(score[0].loss == score[1].loss);
    ab_net_free(net);
}

/* ---- plans ----------------------------------------------------------------------------------- */

static int node_at(const ab_plan *plan, const char *name) {
    for (int n = 0; n < plan->nodes; n++) {
        const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
        if (op && strcmp(op->name, name) == 0) return n;
    }
    fail_msg("no op %s", name);
    return AB_NONE;
}

static ab_plan *plan_of(const char *ops, const char *level, ab_net **net) {
    *net = pt_net(ops);
    const ab_cell_config config = config_of(*net, level, &ab_format_fp16);
    ab_plan *plan = NULL;
    assert_int_equal(ab_plan_create(*net, &config.policy, BATCH, 1, &plan), AB_OK);
    return plan;
}

static void cells_say_which_ops_another_computes(void **state) {
    (void)state;
    static const char *const fused[] = {"relu0", "add1", "relu1", "add3", "relu3", "relu4"},
                             *const apart[] = {"bn1", "bn3", "bn5", "conv1", "fc2"};
    ab_net *net = pt_net(residual);
    for (int k = 0; k < 4; k++) {
        const char *pass = k % 2 ? "backward" : "forward";
        const ab_cell_config config = config_of(net, k / 2 ? "O2" : "O0", &ab_format_bf16);
        ab_cell *cell = NULL;
        assert_int_equal(ab_cell_create(&config, &cell), AB_OK);
        const ab_plan *plan = ab_cell_plan(cell);
        for (size_t i = 0; i < AB_COUNT_OF(fused); i++)
            assert_string_equal(ab_cell_describe(cell, node_at(plan, fused[i]), pass), "fused");
        for (size_t i = 0; i < AB_COUNT_OF(apart); i++) {
            const char *how = ab_cell_describe(cell, node_at(plan, apart[i]), pass);
            assert_true(!how || strcmp(how, "fused") != 0);
        }
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

static void plans_find_relus_and_additions_behind_batch_norms(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    static const char *const rows[][3] = {
        {"bn0", NULL, "relu0"}, {"bn1", "add1", "relu1"}, {"bn3", "add3", "relu3"}, {"bn4", NULL, "relu4"}};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        ab_net *net;
        ab_plan *plan = plan_of(residual, levels[l], &net);
        int tails = 0;
        for (int n = 0; n < plan->nodes; n++) tails += plan->node[n].relu != AB_NONE;
        assert_int_equal(tails, (int)AB_COUNT_OF(rows));
        for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
            const int head = node_at(plan, rows[i][0]), relu = node_at(plan, rows[i][2]);
            const int add = rows[i][1] ? node_at(plan, rows[i][1]) : AB_NONE;
            assert_int_equal(plan->node[head].relu, relu);
            assert_int_equal(plan->node[head].add, add);
            assert_true(plan->node[head].tail_backward && plan->node[relu].head == head);
            if (add != AB_NONE) assert_int_equal(plan->node[add].head, head);
        }
        ab_plan_destroy(plan);
        ab_net_free(net);
    }
}

static void plans_find_relus_before_poolings(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    static const char *const rows[][2] = {{"relu0", "pool0"}, {"relu1", "pool1"}, {"relu2", "pool2"}};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        ab_net *net;
        ab_plan *plan = plan_of(pooled, levels[l], &net);
        int fronts = 0;
        for (int n = 0; n < plan->nodes; n++) fronts += plan->node[n].front != AB_NONE;
        assert_int_equal(fronts, (int)AB_COUNT_OF(rows));
        for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
            const int relu = node_at(plan, rows[i][0]), pool = node_at(plan, rows[i][1]);
            assert_true(plan->node[pool].front == relu && plan->node[relu].behind == pool);
            assert_int_equal(plan->tensor[plan->node[relu].in_grad[0]].shares, plan->node[relu].out_grad);
        }
        ab_plan_destroy(plan);
        ab_net_free(net);
    }
}

#define CONV "{\"name\": \"conv\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 1}, "
#define BN "{\"name\": \"bn\", \"op\": \"batch_norm2d\"}, "
#define RELU "{\"name\": \"relu\", \"op\": \"relu\"}, "
#define POOLED                                                                                               \
    "{\"name\": \"pool\", \"op\": \"global_avg_pool\"}, {\"name\": \"fc\", \"op\": \"linear\", "             \
    "\"out_features\": 3}, "                                                                                 \
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}"

/* Another op reads the result between; the sum broadcasts, or adds it to itself; another activation. */
static void plans_leave_other_ops_apart(void **state) {
    (void)state;
    static const char *const nets[] = {
        CONV BN RELU "{\"name\": \"sum\", \"op\": \"add\", \"in\": [\"relu\", \"bn\"]}, " POOLED,
        CONV BN "{\"name\": \"twice\", \"op\": \"add\", \"in\": [\"bn\", \"bn\"]}, " RELU POOLED,
        "{\"name\": \"one\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 8}, "
        "{\"name\": \"conv\", \"op\": \"conv2d\", \"in\": \"input\", \"out_channels\": 4, \"kernel_size\": "
        "1}, " BN "{\"name\": \"sum\", \"op\": \"add\", \"in\": [\"bn\", \"one\"]}, " RELU POOLED,
        CONV BN "{\"name\": \"plus\", \"op\": \"add\", \"value\": 1}, " RELU POOLED,
        CONV BN "{\"name\": \"silu\", \"op\": \"silu\"}, " RELU POOLED,
        CONV "{\"name\": \"gn\", \"op\": \"group_norm\", \"num_groups\": 2}, " RELU POOLED};
    for (size_t i = 0; i < AB_COUNT_OF(nets); i++) {
        ab_net *net;
        ab_plan *plan = plan_of(nets[i], "O0", &net);
        for (int n = 0; n < plan->nodes; n++)
            assert_true(plan->node[n].relu == AB_NONE && plan->node[n].head == AB_NONE);
        ab_plan_destroy(plan);
        ab_net_free(net);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_steps_give_the_bits_of_steps_op_by_op),
        cmocka_unit_test(evaluations_have_the_loss_of_shown_ones),
        cmocka_unit_test(cells_say_which_ops_another_computes),
        cmocka_unit_test(plans_find_relus_and_additions_behind_batch_norms),
        cmocka_unit_test(plans_find_relus_before_poolings),
        cmocka_unit_test(plans_leave_other_ops_apart),
    };
    return cmocka_run_group_tests(tests, make_data, NULL);
}
