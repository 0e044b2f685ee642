/* Losses and targets of a network file: several losses, losses written by hand, targets of every kind, what
 * is computed in which format, and what is refused. */
#include "bench/train/cell/cell.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "tests/unit/images_testing.h"

enum { STEPS = 5, BATCH = 16 };

#define BODY                                                                                                 \
    "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": "  \
    "24}, "                                                                                                  \
    "{\"name\": \"act\", \"op\": \"relu\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 10}, "
#define CROSS "{\"name\": \"ce\", \"op\": \"cross_entropy\", \"in\": \"fc\"}"
#define PENALTY                                                                                              \
    "{\"name\": \"squares\", \"op\": \"square\", \"in\": \"act\"}, {\"name\": \"penalty\", \"op\": "         \
    "\"mean\"}"

static ab_status parse_status(const char *targets, const char *ops, const char *losses, ab_net **net) {
    char text[4096];
    snprintf(text, sizeof text,
             "{\"format\": \"ampbench-net-1\", \"name\": \"t\", \"input\": {\"height\": 28, \"width\": 28, "
             "\"channels\": 1}, \"targets\": {%s}, \"ops\": [%s]%s}",
             targets, ops, losses);
    return ab_net_parse(text, strlen(text), "t.json", net);
}

static ab_net *parse(const char *targets, const char *ops, const char *losses) {
    ab_net *net = NULL;
    if (parse_status(targets, ops, losses, &net) != AB_OK) fail_msg("%s", ab_error_message());
    return net;
}

static const char classes[] = "\"kind\": \"classes\"", one_hot[] = "\"kind\": \"one_hot\", \"classes\": 10";

static ab_policy policy_of(const char *level) {
    const ab_level *found = NULL;
    ab_policy policy;
    assert_int_equal(ab_level_find(level, &found), AB_OK);
    assert_int_equal(ab_policy_resolve(found, &ab_format_fp16, NULL, 0, &policy), AB_OK);
    return policy;
}

/* Losses of the first steps at a level; the evaluation after them. */
static void train(const ab_net *net, const char *level, float *loss, ab_eval_result *evaluation) {
    ab_data view = *images; /* the same images, with the targets that the net wants */
    view.shape = net->data;
    ab_cell_config config = {.net = net,
                             .policy = policy_of(level),
                             .optim = {.lr = 0.05, .momentum = 0.9},
                             .batch = BATCH,
                             .seed = 1,
                             .data = &view,
                             .normalize = AB_NORMALIZE_STANDARD,
                             .device = &ab_device_cpu};
    assert_int_equal(ab_optimizer_find("momentum", &config.optimizer), AB_OK);
    ab_cell *cell = NULL;
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
        loss[i] = result.loss;
    }
    if (evaluation) assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 100, evaluation), AB_OK);
    ab_cell_destroy(cell);
}

static void same_training(const ab_net *a, const ab_net *b, const char *level, double tolerance) {
    float left[STEPS], right[STEPS];
    train(a, level, left, NULL);
    train(b, level, right, NULL);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs((double)left[i] - (double)right[i]) <= tolerance * fabs((double)left[i])))
            fail_msg("step %d at %s: %.9g and %.9g", i, level, (double)left[i], (double)right[i]);
}

/* Two losses with weights are their weighted sum written as ops. */
static void several_losses_are_their_weighted_sum(void **state) {
    (void)state;
    ab_net *listed = parse(classes, BODY CROSS ", " PENALTY,
                           ", \"losses\": [\"ce\", {\"op\": \"penalty\", \"weight\": 0.25}]");
    ab_net *written =
        parse(classes,
              BODY CROSS ", " PENALTY ", {\"name\": \"part\", \"op\": \"scale\", \"factor\": 0.25}, "
                         "{\"name\": \"all\", \"op\": \"add\", \"in\": [\"ce\", \"part\"]}",
              "");
    assert_int_equal(listed->losses, 2);
    assert_int_equal(written->losses, 1);
    same_training(listed, written, "O0", 0);
    float without[STEPS], with[STEPS];
    ab_net *plain = parse(classes, BODY CROSS, "");
    train(plain, "O0", without, NULL);
    train(listed, "O0", with, NULL);
    assert_true(with[0] > without[0]);
    ab_net_free(listed);
    ab_net_free(written);
    ab_net_free(plain);
}

/* mean((x - t)^2) and -mean(log_softmax t), by hand and by op. */
static void losses_written_by_hand_train_like_the_ops(void **state) {
    (void)state;
    ab_net *mse = parse(one_hot, BODY "{\"name\": \"loss\", \"op\": \"mse\"}", "");
    ab_net *by_hand =
        parse(one_hot,
              BODY "{\"name\": \"d\", \"op\": \"sub\", \"in\": [\"fc\", \"targets\"]}, {\"name\": \"s\", "
                   "\"op\": \"square\"}, {\"name\": \"loss\", \"op\": \"mean\"}",
              "");
    ab_net *ce = parse(one_hot, BODY CROSS, "");
    ab_net *ce_by_hand =
        parse(one_hot,
              BODY "{\"name\": \"l\", \"op\": \"log_softmax\"}, {\"name\": \"p\", \"op\": \"mul\", "
                   "\"in\": [\"l\", \"targets\"]}, {\"name\": \"s\", \"op\": \"sum\", \"dim\": -1}, "
                   "{\"name\": \"n\", \"op\": \"neg\"}, {\"name\": \"loss\", \"op\": \"mean\"}",
              "");
    ab_net *ids = parse(classes, BODY CROSS, "");
    static const char *const levels[] = {"O0", "O1", "O2"};
    for (size_t i = 0; i < AB_COUNT_OF(levels); i++) {
        same_training(mse, by_hand, levels[i], i ? 2e-3 : 1e-6);
        same_training(ce, ce_by_hand, levels[i], i ? 2e-3 : 1e-6);
        same_training(ce, ids, levels[i], i ? 2e-3 : 1e-6); /* one-hot rows say what class ids say */
    }
    ab_net *const nets[] = {mse, by_hand, ce, ce_by_hand, ids};
    for (size_t i = 0; i < AB_COUNT_OF(nets); i++) ab_net_free(nets[i]);
}

static void accuracy_exists_where_classes_are_compared(void **state) {
    (void)state;
    ab_net *ids = parse(classes, BODY CROSS, ""), *hot = parse(one_hot, BODY CROSS, ""),
           *mse = parse(one_hot, BODY "{\"name\": \"loss\", \"op\": \"mse\"}", "");
    float loss[STEPS];
    ab_eval_result of_ids, of_hot, of_mse;
    train(ids, "O0", loss, &of_ids);
    train(hot, "O0", loss, &of_hot);
    train(mse, "O0", loss, &of_mse);
    assert_int_equal(of_ids.count, 100);
    assert_int_equal(of_hot.correct, of_ids.correct);
    assert_true(of_ids.correct > 10);
    assert_int_equal(of_mse.correct, -1);
    assert_int_equal(of_mse.count, 96); /* whole batches */
    assert_true(of_mse.loss > 0 && of_mse.loss < 10);
    ab_net_free(ids);
    ab_net_free(hot);
    ab_net_free(mse);
}

/* Named scores give the accuracy of the op that compares them, at every level, and the loss that was written.
 */
static void accuracy_of_named_scores_is_that_of_the_loss_op(void **state) {
    (void)state;
    static const char hand[] =
        BODY "{\"name\": \"l\", \"op\": \"log_softmax\"}, {\"name\": \"p\", \"op\": \"mul\", "
             "\"in\": [\"l\", \"targets\"]}, {\"name\": \"s\", \"op\": \"sum\", \"dim\": -1}, "
             "{\"name\": \"n\", \"op\": \"scale\", \"factor\": -3}, {\"name\": \"loss\", \"op\": \"mean\"}";
    static const char *const levels[] = {"O0", "O1", "O3"};
    ab_net *named = parse(one_hot, hand, ", \"scores\": \"fc\""), *without = parse(one_hot, hand, "");
    ab_net *op = parse(one_hot, BODY CROSS, ", \"losses\": [{\"op\": \"ce\", \"weight\": 3}]");
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        float loss[STEPS];
        ab_eval_result mine, theirs, none;
        train(named, levels[l], loss, &mine);
        train(op, levels[l], loss, &theirs);
        train(without, levels[l], loss, &none);
        assert_true(none.correct == -1 && mine.count == 100 && theirs.correct > 0);
        assert_true(llabs(mine.correct - theirs.correct) <= (l == 0 ? 0 : 2));
        assert_true(fabs(mine.loss - none.loss) <= 1e-12 * none.loss);
        assert_true(fabs(mine.loss / theirs.loss / 3 - 1) < 0.2); /* of full batches only */
    }
    ab_net_free(named);
    ab_net_free(without);
    ab_net_free(op);
}

static const ab_format *format_of(const ab_plan *plan, const char *name) {
    int found = ab_plan_find(plan, name);
    if (found == AB_NONE) fail_msg("no tensor %s", name);
    return plan->tensor[found].format;
}

/* The model's outputs are cast to fp32 where apex casts them; what comes after is computed in fp32. */
static void what_reads_the_targets_is_outside_the_half_model(void **state) {
    (void)state;
    ab_net *net = parse(
        one_hot,
        BODY "{\"name\": \"d\", \"op\": \"sub\", \"in\": [\"fc\", \"targets\"]}, {\"name\": \"s\", \"op\": "
             "\"square\"}, {\"name\": \"loss\", \"op\": \"mean\"}",
        "");
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    for (size_t i = 0; i < AB_COUNT_OF(levels); i++) {
        ab_policy policy = policy_of(levels[i]);
        ab_plan *plan = NULL;
        assert_int_equal(ab_plan_create(net, &policy, 4, 1, &plan), AB_OK);
        assert_ptr_equal(format_of(plan, "fc.out"), i ? &ab_format_fp16 : &ab_format_fp32);
        assert_ptr_equal(format_of(plan, "d.out"), &ab_format_fp32);
        assert_ptr_equal(format_of(plan, "loss.out"), &ab_format_fp32);
        assert_int_equal(plan->logits, AB_NONE);
        ab_plan_destroy(plan);
    }
    ab_net_free(net);
}

static void cross_entropy_of_half_probabilities_is_banned_where_functions_are_patched(void **state) {
    (void)state;
    ab_net *net = parse(
        one_hot, BODY "{\"name\": \"p\", \"op\": \"sigmoid\"}, {\"name\": \"loss\", \"op\": \"bce\"}", "");
    ab_net *remedy = parse(one_hot, BODY "{\"name\": \"loss\", \"op\": \"bce_with_logits\"}", "");
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    for (size_t i = 0; i < AB_COUNT_OF(levels); i++) {
        ab_policy policy = policy_of(levels[i]);
        ab_plan *plan = NULL;
        bool patched = strcmp(levels[i], "O1") == 0;
        assert_int_equal(ab_plan_create(net, &policy, 4, 1, &plan), patched ? AB_CONFIG : AB_OK);
        if (patched)
            assert_non_null(
                strstr(ab_error_message(), "op 'loss' (bce): refused under O1 with fp16 probabilities"));
        if (patched) assert_non_null(strstr(ab_error_message(), "use bce_with_logits"));
        if (!patched) ab_plan_destroy(plan);
        assert_int_equal(ab_plan_create(remedy, &policy, 4, 1, &plan), AB_OK);
        ab_plan_destroy(plan);
    }
    same_training(net, remedy, "O0", 1e-5);
    ab_net_free(net);
    ab_net_free(remedy);
}

static void an_autoencoder_needs_no_targets(void **state) {
    (void)state;
    ab_net *net =
        parse(classes,
              "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"code\", \"op\": \"linear\", "
              "\"out_features\": 8}, {\"name\": \"out\", \"op\": \"linear\", \"out_features\": 784}, "
              "{\"name\": \"image\", \"op\": \"reshape\", \"shape\": [0, 28, 28, 1]}, {\"name\": \"loss\", "
              "\"op\": \"mse\", \"in\": [\"image\", \"input\"]}",
              "");
    float loss[STEPS];
    for (int level = 0; level < 2; level++) {
        train(net, level ? "O2" : "O0", loss, NULL);
        assert_true(loss[STEPS - 1] < loss[0]);
    }
    ab_net_free(net);
}

/* A view shares its input's memory, and its gradient that of its output; the bits are those of a net without
 * it. */
static void views_share_memory_and_change_no_bit(void **state) {
    (void)state;
    static const char plain_ops[] =
        "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc1\", \"op\": \"linear\", "
        "\"out_features\": 24}, {\"name\": \"act\", \"op\": \"relu\"}, {\"name\": \"two\", \"op\": \"add\", "
        "\"in\": [\"act\", \"fc1\"]}, {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 10}, " CROSS;
    static const char viewed_ops[] =
        "{\"name\": \"flat\", \"op\": \"reshape\", \"shape\": [0, -1]}, {\"name\": \"fc1\", \"op\": "
        "\"linear\", "
        "\"out_features\": 24}, {\"name\": \"v1\", \"op\": \"reshape\", \"shape\": [0, 4, 6]}, {\"name\": "
        "\"act\", "
        "\"op\": \"relu\"}, {\"name\": \"v2\", \"op\": \"reshape\", \"shape\": [0, 24]}, {\"name\": \"v3\", "
        "\"op\": \"reshape\", \"shape\": [0, 24], \"in\": \"fc1\"}, {\"name\": \"two\", \"op\": \"add\", "
        "\"in\": [\"v2\", \"v3\"]}, {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 10}, " CROSS;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    ab_net *plain = parse(classes, plain_ops, ""), *viewed = parse(classes, viewed_ops, "");
    for (size_t i = 0; i < AB_COUNT_OF(levels); i++) {
        ab_policy policy = policy_of(levels[i]);
        ab_plan *plan = NULL, *other = NULL;
        same_training(plain, viewed, levels[i], 0);
        assert_int_equal(ab_plan_create(viewed, &policy, BATCH, 1, &plan), AB_OK);
        assert_int_equal(ab_plan_create(plain, &policy, BATCH, 1, &other), AB_OK);
        assert_int_equal(plan->tensor[ab_plan_find(plan, "v1.out")].shares, ab_plan_find(plan, "fc1.out"));
        assert_int_equal(plan->tensor[ab_plan_find(plan, "v2.out")].shares, ab_plan_find(plan, "act.out"));
        assert_int_equal(plan->tensor[ab_plan_find(plan, "act.out.grad")].shares,
                         ab_plan_find(plan, "v2.out.grad"));
        assert_int_equal(plan->pool_bytes[AB_MEM_activations], other->pool_bytes[AB_MEM_activations]);
        ab_plan_destroy(plan);
        ab_plan_destroy(other);
    }
    ab_net_free(plain);
    ab_net_free(viewed);
}

static void bad_targets_and_losses_are_refused(void **state) {
    (void)state;
    const struct {
        const char *targets, *ops, *losses, *part;
    } bad[] = {
        {"\"kind\": \"class\"", BODY CROSS, "",
         "unknown kind \"class\": expected classes, one_hot, tokens or values; did you mean 'classes'?"},
        {"\"kind\": \"one_hot\"", BODY CROSS, "", "expected a key 'classes', found none"},
        {"\"kind\": \"values\"", BODY CROSS, "", "expected a key 'shape', found none"},
        {"\"kind\": \"tokens\"", BODY CROSS, "", "expected tokens as the input, too"},
        {"\"kind\": \"one_hot\", \"classes\": 7", BODY CROSS, "",
         "logits [64, 10] need one target for each row of classes"},
        {"\"kind\": \"classes\"", BODY "{\"name\": \"loss\", \"op\": \"mse\"}", "",
         "mse expects numbers, \"targets\" holds class or token ids"},
        {"\"kind\": \"classes\"", BODY CROSS, ", \"losses\": []", "expected an array of 1 to 8 names"},
        {"\"kind\": \"classes\"", BODY CROSS ", " PENALTY, ", \"losses\": [\"ce\", \"squares\"]",
         "op 'penalty': expected a later op that reads its output"},
        {"\"kind\": \"classes\"", BODY CROSS ", " PENALTY, ", \"losses\": [\"ce\", \"penalty\", \"fc\"]",
         "op 'fc' (linear): expected a loss of one element, found [64, 10]"},
        {"\"kind\": \"classes\"", BODY CROSS, ", \"scores\": \"fcc\"",
         "'scores': expected the name of an op"},
        {"\"kind\": \"classes\"", BODY CROSS, ", \"scores\": \"ce\"",
         "expected an op with one number a class for targets [64], found 'ce' with [1]"},
    };
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        ab_net *net = NULL;
        assert_int_equal(parse_status(bad[i].targets, bad[i].ops, bad[i].losses, &net), AB_CONFIG);
        if (!strstr(ab_error_message(), bad[i].part)) fail_msg("%s: %s", bad[i].part, ab_error_message());
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_losses_are_their_weighted_sum),
        cmocka_unit_test(losses_written_by_hand_train_like_the_ops),
        cmocka_unit_test(accuracy_exists_where_classes_are_compared),
        cmocka_unit_test(accuracy_of_named_scores_is_that_of_the_loss_op),
        cmocka_unit_test(what_reads_the_targets_is_outside_the_half_model),
        cmocka_unit_test(cross_entropy_of_half_probabilities_is_banned_where_functions_are_patched),
        cmocka_unit_test(an_autoencoder_needs_no_targets),
        cmocka_unit_test(views_share_memory_and_change_no_bit),
        cmocka_unit_test(bad_targets_and_losses_are_refused),
    };
    return cmocka_run_group_tests(tests, open_images, close_images);
}
