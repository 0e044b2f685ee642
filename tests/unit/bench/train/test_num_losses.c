/* Losses with a loss scaler of their own (apex's num_losses and loss_id): the trajectories and weights of a
 * PyTorch program that takes apex's steps (tests/golden/losses, scripts/peer_losses.py), and what must hold
 * besides. */
#define _POSIX_C_SOURCE 200809L

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/golden_check.h"
#include "tests/unit/images_testing.h"

enum { STEPS = 12, BATCH = 8 };

/* ---- against PyTorch ------------------------------------------------------------------------- */

static unsigned recorded_overflows(const cJSON *list) {
    const cJSON *item = NULL;
    unsigned set = 0;
    cJSON_ArrayForEach(item, list) set |= 1u << item->valueint;
    return set;
}

static void check_scales(const cJSON *document) {
    golden_setup setup;
    const cJSON *scales = golden_get(document, "scales"), *overflows = golden_get(document, "overflows");
    assert_int_equal(golden_create(golden_get(document, "config"), &setup), AB_OK);
    assert_int_equal(cJSON_GetArraySize(scales), STEPS);
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(setup.cell, NULL, &result), AB_OK);
        for (int k = 0; k < 2; k++)
            assert_true(result.scales[k] ==
                        cJSON_GetNumberValue(cJSON_GetArrayItem(cJSON_GetArrayItem(scales, i), k)));
        assert_int_equal(result.overflows, recorded_overflows(cJSON_GetArrayItem(overflows, i)));
    }
    golden_teardown(&setup);
}

static void check(const char *path, const cJSON *document) {
    golden_check(path, document);
    check_scales(document);
}

static void scales_and_weights_are_those_of_a_program_that_takes_apex_s_steps(void **state) {
    (void)state;
    assert_int_equal(golden_for_each("tests/golden/losses", "tests/golden/data", check), 5);
}

/* ---- networks of this test ------------------------------------------------------------------- */

#define TRUNK                                                                                                \
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": "  \
    "24}, "                                                                                                  \
    "{\"name\": \"h0.act\", \"op\": \"relu\"}, {\"name\": \"h0.fc\", \"op\": \"linear\", \"out_features\": " \
    "24}, "                                                                                                  \
    "{\"name\": \"act\", \"op\": \"relu\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 10}, "  \
    "{\"name\": \"ce\", \"op\": \"cross_entropy\", \"in\": \"fc\"}, "
#define SQUARES                                                                                              \
    "{\"name\": \"squares\", \"op\": \"square\", \"in\": \"act\"}, {\"name\": \"penalty\", \"op\": "         \
    "\"mean\"}"
#define LOGS                                                                                                 \
    SQUARES ", {\"name\": \"none\", \"op\": \"scale\", \"factor\": 0, \"in\": \"act\"}, "                    \
            "{\"name\": \"logs\", \"op\": \"log\"}, {\"name\": \"broken\", \"op\": \"mean\"}"

static ab_status parse_status(const char *ops, const char *losses, ab_net **net) {
    char text[4096];
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 28, \"width\": 28, "
             "\"channels\": 1}, \"ops\": [%s], \"losses\": %s}",
             ops, losses);
    return ab_net_parse(text, strlen(text), "t.json", net);
}

static ab_net *parse(const char *ops, const char *losses) {
    ab_net *net = NULL;
    if (parse_status(ops, losses, &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static ab_status resolve(const char *level, const char *losses, ab_policy *policy) {
    const ab_level *found = NULL;
    const char *const overrides[] = {losses};
    AB_TRY(ab_level_find(level, &found));
    return ab_policy_resolve(found, &ab_format_fp16, overrides, 1, policy);
}

static ab_cell_config config_of(const ab_net *net, const char *level, const char *losses) {
    ab_cell_config config = {.net = net,
                             .optim = {.lr = 0.05, .momentum = 0.9},
                             .batch = BATCH,
                             .seed = 1,
                             .data = images,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .scale_window = 5,
                             .device = &ab_device_cpu};
    assert_int_equal(resolve(level, losses, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("momentum", &config.optimizer), AB_OK);
    return config;
}

static ab_cell *create(const ab_cell_config *config) {
    ab_cell *cell = NULL;
    if (ab_cell_create(config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    return cell;
}

static void take(ab_cell *cell, int steps, ab_step_result *result) {
    for (int i = 0; i < steps; i++)
        if (ab_cell_step(cell, NULL, &result[i]) != AB_OK) fail_msg("%s", ab_error_message());
}

static void train(const ab_cell_config *config, ab_step_result *result) {
    ab_cell *cell = create(config);
    take(cell, STEPS, result);
    ab_cell_destroy(cell);
}

/* ---- what must hold -------------------------------------------------------------------------- */

/* One backward pass of the sum and two passes differ by the order of additions. */
static void two_passes_add_up_to_the_pass_of_the_sum(void **state) {
    (void)state;
    ab_net *net = parse(TRUNK SQUARES, "[\"ce\", {\"op\": \"penalty\", \"weight\": 0.25}]");
    const char *const levels[] = {"O0", "O1", "O2"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        ab_step_result together[STEPS], apart[STEPS];
        ab_cell_config one = config_of(net, levels[l], "num_losses=1"),
                       two = config_of(net, levels[l], "num_losses=2");
        train(&one, together);
        train(&two, apart);
        for (int i = 0; i < STEPS; i++)
            assert_true(fabs((double)together[i].loss - (double)apart[i].loss) <=
                        (l ? 1e-3 : 1e-6) * fabs((double)together[i].loss));
        assert_true(apart[0].loss == together[0].loss && apart[STEPS - 1].loss < apart[0].loss);
    }
    ab_net_free(net);
}

/* torch does not walk the graph of another loss, so what is not a number there stays there. */
static void a_broken_loss_does_not_reach_another_loss_s_scaler(void **state) {
    (void)state;
    ab_net *net = parse(TRUNK LOGS, "[\"ce\", \"penalty\", \"broken\"]");
    ab_cell_config config = config_of(net, "O2", "num_losses=3");
    ab_step_result result[STEPS];
    train(&config, result);
    for (int i = 0; i < STEPS; i++) {
        assert_int_equal(result[i].overflows, 1u << 2);
        assert_true(result[i].skipped && result[i].scales[2] == ldexp(65536.0, -i));
        assert_true(result[i].scales[0] == ldexp(65536.0, i / 5) &&
                    result[i].scales[1] == result[i].scales[0]);
    }
    ab_net_free(net);
}

static void losses_of_one_id_share_a_scaler_and_a_pass(void **state) {
    (void)state;
    ab_net *net = parse(TRUNK LOGS, "[{\"op\": \"ce\", \"loss_id\": 1}, \"penalty\", {\"op\": \"broken\", "
                                    "\"loss_id\": 0}]");
    ab_cell_config config = config_of(net, "O1", "num_losses=2");
    ab_step_result result[STEPS];
    train(&config, result);
    assert_int_equal(result[0].overflows, 1u);
    assert_true(result[1].scales[0] == 32768 && result[1].scales[1] == 65536);
    ab_net_free(net);
}

/* What the backward pass of the first loss read is still there for the second one's, wherever buffers lie. */
static void recomputing_blocks_changes_no_bit(void **state) {
    (void)state;
    ab_net *net = parse(TRUNK SQUARES, "[\"ce\", {\"op\": \"penalty\", \"weight\": 0.25}]");
    ab_step_result kept[STEPS], again[STEPS];
    ab_cell_config config = config_of(net, "O2", "num_losses=2");
    train(&config, kept);
    assert_int_equal(ab_net_recompute(net, "h0"), AB_OK);
    train(&config, again);
    for (int i = 0; i < STEPS; i++) assert_memory_equal(&kept[i].loss, &again[i].loss, sizeof kept[i].loss);
    ab_net_free(net);
}

/* Two micro-batches of 8 are a batch of 16, up to rounding; an overflow in one of them counts. */
static void micro_batches_add_up(void **state) {
    (void)state;
    ab_net *net = parse(TRUNK SQUARES, "[\"ce\", {\"op\": \"penalty\", \"weight\": 0.25}]");
    ab_step_result parts[STEPS], whole[STEPS];
    ab_cell_config config = config_of(net, "O2", "num_losses=2");
    config.recipe.micro_batches = 2;
    train(&config, parts);
    config.recipe.micro_batches = 1;
    config.batch = 2 * BATCH;
    train(&config, whole);
    for (int i = 0; i < STEPS; i++)
        assert_true(fabs((double)parts[i].loss - (double)whole[i].loss) <=
                    2e-3 * fabs((double)whole[i].loss));
    ab_net_free(net);
}

static void a_resumed_cell_has_every_scaler_s_window(void **state) {
    (void)state;
    ab_net *net = parse(TRUNK SQUARES, "[\"ce\", {\"op\": \"penalty\", \"weight\": 1e6}]");
    const char *const levels[] = {"O1", "O2", "O3"};
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        char path[] = "/tmp/test_num_losses_XXXXXX";
        const int file = mkstemp(path);
        assert_true(file >= 0);
        close(file);
        ab_cell_config config = config_of(net, levels[l], "num_losses=2");
        config.optim.lr = 1e-7;
        ab_step_result result[STEPS], resumed[STEPS];
        ab_cell *cell = create(&config), *other = create(&config);
        take(cell, 8, result);
        assert_int_equal(ab_cell_checkpoint(cell, path), AB_OK);
        take(cell, STEPS - 8, result + 8);
        if (ab_cell_resume(other, path) != AB_OK) fail_msg("%s", ab_error_message());
        take(other, STEPS - 8, resumed + 8);
        for (int i = 8; i < STEPS; i++) {
            assert_memory_equal(&result[i].loss, &resumed[i].loss, sizeof result[i].loss);
            for (int k = 0; k < 2; k++) assert_true(result[i].scales[k] == resumed[i].scales[k]);
        }
        if (l < 2) assert_true(result[8].scales[0] != result[8].scales[1]);
        ab_cell_config one = config_of(net, levels[l], "num_losses=1");
        ab_cell *alone = create(&one);
        assert_int_not_equal(ab_cell_resume(alone, path), AB_OK);
        assert_non_null(strstr(ab_error_message(), "num_losses is 2 there and 1 here"));
        ab_cell_destroy(alone);
        ab_cell_destroy(cell);
        ab_cell_destroy(other);
        unlink(path);
    }
    ab_net_free(net);
}

/* The trunk is walked twice: as many operations more. */
static void operations_of_every_pass_are_counted(void **state) {
    (void)state;
    ab_net *net = parse(TRUNK SQUARES, "[\"ce\", \"penalty\"]");
    ab_plan *one, *two;
    ab_policy policy;
    assert_int_equal(resolve("O2", "num_losses=1", &policy), AB_OK);
    assert_int_equal(ab_plan_create(net, &policy, BATCH, 1, &one), AB_OK);
    assert_int_equal(resolve("O2", "num_losses=2", &policy), AB_OK);
    assert_int_equal(ab_plan_create(net, &policy, BATCH, 1, &two), AB_OK);
    assert_true(two->flops > 1.2 * one->flops && two->flops < 2 * one->flops);
    assert_true(two->bytes[AB_MEM_activations] >= one->bytes[AB_MEM_activations]);
    ab_plan_destroy(one);
    ab_plan_destroy(two);
    ab_net_free(net);
}

/* ---- what is refused ------------------------------------------------------------------------- */

static void refused(ab_status status, const char *part) {
    assert_int_not_equal(status, AB_OK);
    if (!strstr(ab_error_message(), part)) fail_msg("expected '%s' in: %s", part, ab_error_message());
}

static ab_status plan_status(const ab_net *net, const char *losses) {
    ab_policy policy;
    ab_plan *plan = NULL;
    AB_TRY(resolve("O2", losses, &policy));
    AB_TRY(ab_plan_create(net, &policy, BATCH, 1, &plan));
    ab_plan_destroy(plan);
    return AB_OK;
}

static void what_apex_would_fail_on_is_refused(void **state) {
    (void)state;
    ab_policy policy;
    ab_net *net = parse(TRUNK SQUARES, "[\"ce\", {\"op\": \"penalty\", \"loss_id\": 2}]"), *none = NULL;
    refused(plan_status(net, "num_losses=2"),
            "IndexError: list index out of range); give --set num_losses=3");
    refused(plan_status(net, "num_losses=3"), "no loss of t.json has loss_id 1");
    assert_int_equal(plan_status(net, "num_losses=1"), AB_OK);
    refused(resolve("O1", "num_losses=0", &policy), "from 1 to 8, found '0' (apex: ");
    refused(resolve("O1", "num_losses=two", &policy), "found 'two'");
    refused(resolve("torch:autocast", "num_losses=2", &policy), "a scaler per loss is apex's");
    refused(resolve("mindspore:O2", "num_losses=2", &policy), "may override only");
    refused(parse_status(TRUNK SQUARES, "[\"ce\", {\"op\": \"penalty\", \"loss_id\": 0.5}]", &none),
            "'loss_id': expected an integer");
    refused(parse_status(TRUNK SQUARES, "[\"ce\", {\"op\": \"penalty\", \"loss_id\": 8}]", &none),
            "'loss_id'");
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales_and_weights_are_those_of_a_program_that_takes_apex_s_steps),
        cmocka_unit_test(two_passes_add_up_to_the_pass_of_the_sum),
        cmocka_unit_test(a_broken_loss_does_not_reach_another_loss_s_scaler),
        cmocka_unit_test(losses_of_one_id_share_a_scaler_and_a_pass),
        cmocka_unit_test(recomputing_blocks_changes_no_bit),
        cmocka_unit_test(micro_batches_add_up),
        cmocka_unit_test(a_resumed_cell_has_every_scaler_s_window),
        cmocka_unit_test(operations_of_every_pass_are_counted),
        cmocka_unit_test(what_apex_would_fail_on_is_refused),
    };
    return cmocka_run_group_tests(tests, open_images, close_images);
}
