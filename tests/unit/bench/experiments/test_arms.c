/* Arms: divergence times and sign tests of made-up losses and times, a state that another cell goes on from
 * bit by bit, rounding by chance that is right on average, and the three kinds of trouble planted in real
 * cells. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/every_op_testing.h"

#include "bench/experiments/arms.h"
#include "kernels/format/convert.h"

#include <math.h>

enum { STEPS = 100 };

/* ---- times ----------------------------------------------------------------------------------- */

static void curve(float loss[STEPS], float from, float to) {
    for (int i = 0; i < STEPS; i++) loss[i] = from + (to - from) * (float)i / (STEPS - 1);
}

static void the_first_loss_that_is_no_number_ends_an_arm(void **state) {
    float loss[STEPS], reference[STEPS];
    (void)state;
    curve(reference, 2, 1);
    curve(loss, 2, 1);
    assert_int_equal(ab_arms_time(loss, reference, STEPS), STEPS);
    loss[37] = NAN;
    assert_int_equal(ab_arms_time(loss, reference, STEPS), 37);
    loss[12] = INFINITY;
    assert_int_equal(ab_arms_time(loss, reference, STEPS), 12);
}

static void an_arm_that_stays_above_left_when_it_went_there(void **state) {
    float loss[STEPS], reference[STEPS];
    (void)state;
    for (int i = 0; i < STEPS; i++) {
        reference[i] = 1;
        loss[i] = i < 50 ? 1 : 1.9f;
    }
    /* the mean of 20 steps that end at step t is 1 + 0.9 (t - 49) / 20: above 1.05 from step 51 on */
    assert_int_equal(ab_arms_time(loss, reference, STEPS), 51);
    for (int i = 70; i < STEPS; i++) loss[i] = 1; /* it came back */
    assert_int_equal(ab_arms_time(loss, reference, STEPS), STEPS);
    for (int i = 0; i < STEPS; i++) loss[i] = 1.04f; /* within 5 % */
    assert_int_equal(ab_arms_time(loss, reference, STEPS), STEPS);
}

static void fp32_is_compared_with_its_own_beginning(void **state) {
    float loss[STEPS];
    (void)state;
    curve(loss, 1, 1.4f);
    assert_int_equal(ab_arms_time(loss, NULL, STEPS), STEPS);
    curve(loss, 1, 30);
    assert_true(ab_arms_time(loss, NULL, STEPS) < STEPS / 2);
    float reference[STEPS];
    curve(reference, 1, 2);
    reference[5] = NAN; /* nothing to compare with: its own beginning again */
    assert_int_equal(ab_arms_time(loss, reference, STEPS), ab_arms_time(loss, NULL, STEPS));
}

static void signs_are_tested_exactly(void **state) {
    (void)state;
    assert_true(fabs(ab_sign_test(8, 0) - 1.0 / 256) < 1e-15);
    assert_true(fabs(ab_sign_test(7, 1) - 9.0 / 256) < 1e-15);
    assert_true(fabs(ab_sign_test(6, 2) - 37.0 / 256) < 1e-15);
    assert_true(fabs(ab_sign_test(0, 8) - 1) < 1e-15);
    assert_true(fabs(ab_sign_test(1, 0) - 0.5) < 1e-15);
}

static ab_trouble judged(int64_t fp32, int64_t low, int64_t chance, bool has_chance) {
    ab_arms arms = {.horizon = 100, .chance = has_chance};
    for (int r = 0; r < AB_ARMS_RESTARTS; r++) {
        arms.time[r][AB_ARM_FP32] = fp32;
        arms.time[r][AB_ARM_LOW] = low;
        arms.time[r][AB_ARM_CHANCE] = has_chance ? chance : 100;
    }
    ab_arms_judge(&arms);
    return arms.trouble;
}

static void troubles_follow_from_times(void **state) {
    (void)state;
    assert_int_equal(judged(100, 100, 100, true), AB_TROUBLE_none);
    assert_int_equal(judged(20, 20, 20, true), AB_TROUBLE_optimisation);
    assert_int_equal(judged(20, 10, 10, true), AB_TROUBLE_optimisation);
    assert_int_equal(judged(100, 40, 100, true), AB_TROUBLE_rounding);
    assert_int_equal(judged(100, 40, 40, true), AB_TROUBLE_range);
    assert_int_equal(judged(100, 40, 100, false), AB_TROUBLE_range);
    ab_arms arms = {.horizon = 100, .chance = true}; /* five of eight are no evidence */
    for (int r = 0; r < AB_ARMS_RESTARTS; r++) {
        arms.time[r][AB_ARM_FP32] = arms.time[r][AB_ARM_CHANCE] = 100;
        arms.time[r][AB_ARM_LOW] = r < 4 ? 50 : 100;
    }
    ab_arms_judge(&arms);
    assert_int_equal(arms.trouble, AB_TROUBLE_unclear);
    assert_int_equal(arms.left[AB_ARM_LOW], 4);
}

/* ---- states ---------------------------------------------------------------------------------- */

static void steps_of(ab_cell *cell, int steps, float *loss) {
    for (int i = 0; i < steps; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        if (loss) loss[i] = result.loss;
    }
}

static void a_cell_that_inherits_goes_on_bit_by_bit(void **state) {
    static const char *const optimizers[] = {"momentum", "adam"};
    (void)state;
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t o = 0; o < AB_COUNT_OF(optimizers); o++) {
            ab_cell_config config = pt_config(net, pt_levels[l], &ab_format_fp16, optimizers[o], NULL);
            ab_cell *first = pt_cell(&config), *second = pt_cell(&config);
            float loss[2][6];
            steps_of(first, 5, NULL);
            assert_int_equal(ab_cell_copy_state(second, first), AB_OK);
            steps_of(first, 6, loss[0]);
            steps_of(second, 6, loss[1]);
            assert_memory_equal(loss[0], loss[1], sizeof loss[0]);
            ab_cell_destroy(first);
            ab_cell_destroy(second);
        }
    ab_net_free(net);
}

/* 400 roundings of each weight: on the half format's grid, next to the weight, and its mean is the weight. */
static void rounding_by_chance_is_right_on_average(void **state) {
    enum { TIMES = 400, MOST = 64 };
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "sgd", NULL);
    ab_cell *cell = pt_cell(&config);
    ab_shape shape;
    float before[MOST], values[MOST], master[MOST];
    double sum[MOST] = {0}, z = 0;
    steps_of(cell, 3, NULL); /* masters leave the grid */
    assert_int_equal(ab_cell_read(cell, "conv1.weight", &shape, before), AB_OK);
    const int n = (int)ab_shape_count(&shape);
    assert_true(n <= MOST);
    ab_cell *copy = pt_cell(&config);
    for (int t = 0; t < TIMES; t++) {
        bool any = false;
        assert_int_equal(ab_cell_copy_state(copy, cell), AB_OK);
        assert_int_equal(ab_cell_round_weights(copy, (uint64_t)t, true, &any), AB_OK);
        assert_true(any);
        assert_int_equal(ab_cell_read(copy, "conv1.weight", &shape, values), AB_OK);
        for (int i = 0; i < n; i++) {
            uint16_t half;
            float back;
            ab_narrow(&half, &ab_format_fp16, &values[i], 1);
            ab_widen(&back, &half, &ab_format_fp16, 1);
            assert_true(back == values[i]);
            assert_true(fabsf(values[i] - before[i]) <= 0x1p-10f * fabsf(before[i]) + 0x1p-24f);
            sum[i] += (double)values[i];
        }
    }
    for (int i = 0; i < n; i++) {
        const double error = sum[i] / TIMES - (double)before[i], spacing = 0x1p-10 * fabs((double)before[i]);
        z = fmax(z, fabs(error) / (0.5 * spacing / sqrt(TIMES) + 1e-12));
    }
    assert_true(z < 6);
    /* without `masters` these stay */
    bool any = false;
    assert_int_equal(ab_cell_copy_state(copy, cell), AB_OK);
    assert_int_equal(ab_cell_round_weights(copy, 1, false, &any), AB_OK);
    assert_int_equal(ab_cell_read(copy, "conv1.weight", &shape, master), AB_OK);
    assert_memory_equal(master, before, (size_t)n * sizeof *before);
    ab_cell_destroy(copy);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* ---- planted trouble ------------------------------------------------------------------------- */

static ab_arms arms_of(const char *level, const char *set, double lr, int64_t first_bad, int64_t steps) {
    ab_net *net =
        pt_net("{\"name\": \"flat\", \"op\": \"flatten\"}, "
               "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 16}, {\"name\": \"relu\", \"op\": "
               "\"relu\"}, {\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 3}, "
               "{\"name\": \"loss\", \"op\": \"cross_entropy\"}");
    ab_cell_config config = pt_config(net, level, &ab_format_bf16, "sgd", set);
    ab_arms arms;
    config.optim.lr = lr;
    if (strstr(set, "16777216")) config.policy.half = &ab_format_fp16;
    assert_int_equal(ab_arms_run(&config, first_bad, steps, &arms), AB_OK);
    ab_net_free(net);
    return arms;
}

/* bf16 weights at a small rate: updates are lost to nearest, not by chance. */
static void lost_updates_are_found_to_be_rounding(void **state) {
    (void)state;
    const ab_arms arms = arms_of("O3", "loss_scale=1", 0.003, -1, 300);
    assert_int_equal(arms.trouble, AB_TROUBLE_rounding);
    assert_int_equal(arms.left[AB_ARM_FP32], 0);
}

static void a_rate_that_is_too_high_is_found_to_be_optimisation(void **state) {
    (void)state;
    const ab_arms arms = arms_of("O3", "loss_scale=1", 1e4, 3, 60);
    assert_int_equal(arms.trouble, AB_TROUBLE_optimisation);
    assert_int_equal(arms.double_restarts, AB_ARMS_DOUBLE); /* fp64 was asked, and agrees */
    assert_int_equal(arms.double_left, AB_ARMS_DOUBLE);
}

/* A square of 1e40 on the way to a loss of about 1: beyond fp32, harmless in double. */
static void an_overflow_of_fp32_itself_is_not_called_optimisation(void **state) {
    (void)state;
    ab_net *net = pt_net(
        "{\"name\": \"flat\", \"op\": \"flatten\"}, {\"name\": \"fc\", \"op\": \"linear\", \"out_features\": "
        "3}, "
        "{\"name\": \"up\", \"op\": \"scale\", \"factor\": 1e22}, {\"name\": \"square\", \"op\": "
        "\"square\"}, "
        "{\"name\": \"down\", \"op\": \"scale\", \"factor\": 1e-44}, {\"name\": \"mean\", \"op\": \"mean\"}, "
        "{\"name\": \"ce\", \"op\": \"cross_entropy\", \"in\": [\"fc\", \"targets\"]}], "
        "\"losses\": [\"mean\", \"ce\"");
    ab_cell_config config = pt_config(net, "O3", &ab_format_bf16, "sgd", "loss_scale=1");
    ab_arms arms;
    config.optim.lr = 0.01;
    assert_int_equal(ab_arms_run(&config, 0, 40, &arms), AB_OK);
    assert_int_equal(arms.left[AB_ARM_FP32], AB_ARMS_RESTARTS);
    assert_int_equal(arms.double_restarts, AB_ARMS_DOUBLE);
    assert_int_equal(arms.double_left, 0);
    assert_int_equal(arms.trouble, AB_TROUBLE_fp32);
    config.recipe.clip.norm = 1; /* which double does not do */
    assert_int_equal(ab_arms_run(&config, 0, 40, &arms), AB_OK);
    assert_int_equal(arms.trouble, AB_TROUBLE_optimisation);
    assert_non_null(arms.double_refused);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_loss_that_is_no_number_ends_an_arm),
        cmocka_unit_test(an_arm_that_stays_above_left_when_it_went_there),
        cmocka_unit_test(fp32_is_compared_with_its_own_beginning),
        cmocka_unit_test(signs_are_tested_exactly),
        cmocka_unit_test(troubles_follow_from_times),
        cmocka_unit_test(a_cell_that_inherits_goes_on_bit_by_bit),
        cmocka_unit_test(rounding_by_chance_is_right_on_average),
        cmocka_unit_test(lost_updates_are_found_to_be_rounding),
        cmocka_unit_test(a_rate_that_is_too_high_is_found_to_be_optimisation),
        cmocka_unit_test(an_overflow_of_fp32_itself_is_not_called_optimisation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
