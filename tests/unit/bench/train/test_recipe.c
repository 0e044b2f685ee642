/* How a step is taken: accumulation over micro-batches, clipping before and after unscaling, schedules that
 * wait for taken steps, parameter groups. Every property holds at the levels it is asserted for; the
 * selectable mistakes break it. */
#define _POSIX_C_SOURCE 200809L
#include "bench/train/recipe.h"

#include "kernels/core/parallel.h"
#include "tests/unit/probe_testing.h"

#include <math.h>

/* No batch norm: the gradient of a batch is the mean of those of its parts. */
static const char plain_ops[] =
    "{\"name\": \"conv1\", \"op\": \"conv2d\", \"out_channels\": 4, \"kernel_size\": 3, \"padding\": 1}, "
    "{\"name\": \"relu1\", \"op\": \"relu\"}, {\"name\": \"flat\", \"op\": \"flatten\"}, "
    "{\"name\": \"fc\", \"op\": \"linear\", \"out_features\": 3}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

enum { MOST = 1024 };

static int64_t read_values(const ab_cell *cell, const char *name, float *values) {
    ab_shape shape;
    if (ab_cell_read(cell, name, &shape, NULL) != AB_OK) fail_msg("%s", ab_error_message());
    assert_true(ab_shape_count(&shape) <= MOST);
    assert_int_equal(ab_cell_read(cell, name, &shape, values), AB_OK);
    return ab_shape_count(&shape);
}

static ab_step_result step(ab_cell *cell) {
    ab_step_result result;
    if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
    return result;
}

static ab_cell_config config_of(const ab_net *net, const char *level, const char *set) {
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, "momentum", set);
    config.optim.lr = 0.05;
    config.recipe.rates.lr = 0.05;
    return config;
}

static const char *const names[] = {"conv1.weight.grad", "conv1.bias.grad", "fc.weight.grad", "fc.bias.grad"};

/* Largest difference of two cells' gradients, relative to the largest gradient. */
static double gradient_distance(const ab_cell *a, const ab_cell *b) {
    double worst = 0;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        float x[MOST], y[MOST];
        double most = 0, difference = 0;
        int64_t n = read_values(a, names[i], x);
        read_values(b, names[i], y);
        for (int64_t k = 0; k < n; k++) {
            most = fmax(most, fabs((double)y[k]));
            difference = fmax(difference, fabs((double)x[k] - (double)y[k]));
        }
        worst = fmax(worst, difference / most);
    }
    return worst;
}

/* ---- masters ---------------------------------------------------------------------------------- */

/* As in apex they are the half weights; with masters_from=fp32 they are O0's weights, bit by bit. */
static void masters_start_from_rounded_or_unrounded_weights(void **state) {
    (void)state;
    static float fp32[MOST], master[2][MOST];
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    ab_net *net = pt_net(plain_ops);
    const char *const sets[] = {NULL, "masters_from=fp32"};
    ab_cell_config config = config_of(net, "O0", NULL);
    ab_cell *cell = pt_cell(&config);
    const int64_t n = read_values(cell, "fc.weight", fp32);
    ab_cell_destroy(cell);
    for (int i = 0; i < 2; i++) {
        config = config_of(net, "O2", sets[i]);
        cell = pt_cell(&config);
        read_values(cell, "fc.weight.master", master[i]);
        ab_cell_destroy(cell);
    }
    int rounded = 0;
    for (int64_t i = 0; i < n; i++) {
        const double half = ab_format_round(&ab_format_fp16, &nearest, (double)fp32[i]);
        assert_true((double)master[0][i] == half && master[1][i] == fp32[i]);
        rounded += half != (double)fp32[i];
    }
    assert_true(rounded > n / 2);
    ab_net_free(net);
}

/* ---- accumulation ---------------------------------------------------------------------------- */

static double accumulated_distance(const ab_net *net, const char *level, unsigned faults, const char *set) {
    ab_cell_config whole = config_of(net, level, set), parts = whole;
    parts.batch = PT_BATCH / 4;
    parts.recipe.micro_batches = 4;
    parts.recipe.faults = faults;
    ab_cell *a = pt_cell(&parts), *b = pt_cell(&whole);
    ab_step_result x = step(a), y = step(b);
    assert_true(fabsf(x.loss - y.loss) < 2e-3f && x.scale == y.scale && !x.skipped && !y.skipped);
    double distance = gradient_distance(a, b);
    ab_cell_destroy(a);
    ab_cell_destroy(b);
    return distance;
}

static void micro_batches_make_the_gradient_of_the_whole_batch(void **state) {
    (void)state;
    static const double limits[] = {1e-6, 2e-3, 2e-3, 4e-3}; /* half gradients are rounded in other places */
    ab_net *net = pt_net(plain_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
        double far = accumulated_distance(net, pt_levels[l], 0, "loss_scale=1024");
        if (far > limits[l]) fail_msg("%s: %g", pt_levels[l], far);
        assert_true(
            accumulated_distance(net, pt_levels[l], AB_FAULT_accumulation_not_averaged, "loss_scale=64") > 1);
        assert_true(accumulated_distance(net, pt_levels[l], AB_FAULT_unscale_each_micro_batch,
                                         "loss_scale=64") > 0.1);
    }
    ab_net_free(net);
}

/* With masters the sum is in fp32: it is the exact mean of the micro-batches' half gradients. Without, every
 * addition is rounded to half. */
static void masters_sum_in_fp32(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    ab_cell_config config = config_of(net, "O2", "loss_scale=1024");
    config.batch = 2;
    config.optim.lr = 0;
    ab_cell *single = pt_cell(&config);
    static float first[MOST], second[MOST], both[MOST];
    step(single);
    int64_t n = read_values(single, "fc.weight.grad", first);
    step(single);
    read_values(single, "fc.weight.grad", second);
    config.recipe.micro_batches = 2;
    ab_cell *cell = pt_cell(&config);
    step(cell);
    read_values(cell, "fc.weight.grad", both);
    int needs_fp32 = 0;
    for (int64_t i = 0; i < n; i++) {
        double mean = ((double)first[i] + (double)second[i]) / 2;
        assert_true(fabs((double)both[i] - mean) <= 1e-7 * fabs(mean) + 1e-10);
        const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
        needs_fp32 += ab_format_round(&ab_format_fp16, &nearest, 1024 * mean) != 1024 * mean;
    }
    assert_true(needs_fp32 > n / 4);
    ab_cell_destroy(single);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* Without materialised master gradients the sum is a half number, and a step of one batch has the same bits.
 */
static void masters_without_gradients_sum_in_half(void **state) {
    (void)state;
    static float weights[2][2][MOST], sum[MOST];
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    ab_net *net = pt_net(plain_ops);
    ab_cell_config config = config_of(net, "O2", "loss_scale=1024");
    config.batch = 4;
    for (int micro = 0; micro < 2; micro++)
        for (int half = 0; half < 2; half++) {
            assert_int_equal(ab_optimizer_parse(half ? "fusedsgd:materialize_master_grads=False" : "fusedsgd",
                                                &config.optimizer, &config.optim),
                             AB_OK);
            config.recipe.micro_batches = micro ? 3 : 1;
            ab_cell *cell = pt_cell(&config);
            step(cell);
            const int64_t n = read_values(cell, "fc.weight.grad", sum);
            read_values(cell, "fc.weight.master", weights[micro][half]);
            int longer = 0;
            for (int64_t i = 0; i < n; i++) {
                const double scaled = 1024 * (double)sum[i];
                longer += ab_format_round(&ab_format_fp16, &nearest, scaled) != scaled;
            }
            assert_true(micro && !half ? longer > n / 4 : longer == 0);
            ab_cell_destroy(cell);
        }
    assert_memory_equal(weights[0][0], weights[0][1], sizeof weights[0][0]);
    assert_memory_not_equal(weights[1][0], weights[1][1], sizeof weights[1][0]);
    ab_net_free(net);
}

/* One overflow in any micro-batch discards the whole step, and the scale moves once. */
static void an_overflow_in_a_micro_batch_skips_the_step(void **state) {
    (void)state;
    static const char *const half_levels[] = {"O1", "O2", "O3"};
    ab_net *net = pt_net(plain_ops);
    for (size_t l = 0; l < AB_COUNT_OF(half_levels); l++) {
        ab_cell_config config = config_of(net, half_levels[l], "loss_scale=dynamic");
        config.normalize = AB_NORMALIZE_NONE;
        config.batch = 2;
        config.recipe.micro_batches = 3;
        config.optim.lr = config.recipe.rates.lr = 1e-6;
        ab_cell *cell = pt_cell(&config);
        float before[MOST], after[MOST];
        int64_t n = read_values(cell, "fc.weight", before);
        ab_step_result result = step(cell);
        assert_true(result.skipped && result.scale == 65536 && ab_cell_scaler(cell)->scale == 32768);
        read_values(cell, "fc.weight", after);
        assert_memory_equal(before, after, (size_t)n * sizeof *before);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* The plan's promise of memory holds, and what micro-batches need comes on top. */
static void memory_of_micro_batches_is_planned(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
        ab_cell_config config = config_of(net, pt_levels[l], NULL);
        ab_cell *plain = pt_cell(&config);
        config.recipe.micro_batches = 2;
        ab_cell *cell = pt_cell(&config);
        assert_true(ab_cell_bytes(cell, AB_MEM_gradients) == ab_cell_plan(cell)->bytes[AB_MEM_gradients]);
        bool more = ab_cell_bytes(cell, AB_MEM_gradients) > ab_cell_bytes(plain, AB_MEM_gradients);
        bool own_room = strcmp(pt_levels[l], "O0") == 0 || strcmp(pt_levels[l], "O3") == 0;
        assert_true(own_room ? more : strcmp(pt_levels[l], "O1") == 0 || !more);
        ab_cell_destroy(plain);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* ---- clipping -------------------------------------------------------------------------------- */

static double norm_of_gradients(const ab_cell *cell) {
    double sum = 0;
    for (size_t i = 0; i < AB_COUNT_OF(names); i++) {
        float x[MOST];
        int64_t n = read_values(cell, names[i], x);
        for (int64_t k = 0; k < n; k++) sum += (double)x[k] * (double)x[k];
    }
    return sqrt(sum);
}

/* After unscaling the clipped norm is the limit at every level; before it, it is the limit over the scale. */
static void clipping_before_unscaling_clips_by_the_scale(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (int wrong = 0; wrong < 2; wrong++) {
            ab_cell_config config = config_of(net, pt_levels[l], "loss_scale=16");
            config.recipe.clip.norm = 0.01;
            config.recipe.faults = wrong ? AB_FAULT_clip_before_unscale : 0;
            ab_cell *cell = pt_cell(&config);
            ab_step_result result = step(cell);
            double norm = norm_of_gradients(cell), expected = wrong ? 0.01 / 16 : 0.01;
            assert_true(fabs(norm - expected) < 2e-2 * expected);
            assert_true(result.grad_norm > 0.01 * (wrong ? 16 : 1));
            ab_cell_destroy(cell);
        }
    ab_net_free(net);
}

/* ---- schedules ------------------------------------------------------------------------------- */

static void schedules_wait_for_taken_steps(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    for (int wrong = 0; wrong < 2; wrong++) {
        ab_cell_config config = config_of(net, "O2", "loss_scale=dynamic");
        config.normalize = AB_NORMALIZE_NONE;
        assert_int_equal(ab_schedule_parse("linear:total=100", &config.recipe.schedule, &config.recipe.rates),
                         AB_OK);
        config.optim.lr = config.recipe.rates.lr = 0x1p-20;
        config.recipe.schedule_on_skip = wrong == 1;
        ab_cell *cell = pt_cell(&config);
        int64_t skipped = 0, taken = 0;
        for (int i = 0; i < 20; i++) {
            int64_t expected = wrong ? skipped + taken : taken;
            ab_step_result result = step(cell);
            assert_true(result.lr == 0x1p-20 * (double)(100 - expected) / 100.0);
            skipped += result.skipped;
            taken += !result.skipped;
        }
        assert_true(skipped > 0 && taken > 0);
        assert_int_equal(ab_cell_advanced(cell), wrong ? 20 : taken);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* sgd: what the weights move by is the scheduled rate times the gradient. */
static void the_scheduled_rate_moves_the_weights(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    ab_cell_config config = config_of(net, "O0", NULL);
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    assert_int_equal(
        ab_schedule_parse("step:step_size=1,gamma=0.5", &config.recipe.schedule, &config.recipe.rates),
        AB_OK);
    config.optim = (ab_optimizer_config){.lr = 0.5};
    config.recipe.rates.lr = 0.5;
    ab_cell *cell = pt_cell(&config);
    for (int i = 0; i < 4; i++) {
        float before[MOST], after[MOST], grad[MOST];
        int64_t n = read_values(cell, "fc.weight", before);
        step(cell);
        read_values(cell, "fc.weight", after);
        read_values(cell, "fc.weight.grad", grad);
        for (int64_t k = 0; k < n; k++)
            assert_true(fabsf(before[k] - ldexpf(0.5f, -i) * grad[k] - after[k]) <= 1e-6f);
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* The forecast of frozen weights goes by the rate that moved them, not by the first one. */
static void the_ledger_of_lost_updates_knows_the_rate_in_force(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    ab_cell_config config = config_of(net, "O0", NULL);
    int index = -1;
    assert_int_equal(ab_probe_find("lost_updates", &index), AB_OK);
    assert_int_equal(
        ab_schedule_parse("step:step_size=1,gamma=0.5", &config.recipe.schedule, &config.recipe.rates),
        AB_OK);
    config.recipe.rates.lr = config.optim.lr;
    assert_int_equal(ab_param_groups_parse("conv1.*:lr_factor=0.25", &config.recipe.groups), AB_OK);
    ab_cell *cell = pt_cell(&config);
    pt_probing *p = calloc(1, sizeof *p);
    assert_non_null(p);
    pt_start(p, (uint64_t)1 << index, cell, &config, &ab_format_fp16);
    for (int i = 0; i < 4; i++) pt_step(p, cell);
    cJSON *report = pt_set_report(p);
    const cJSON *list = pt_get(report, "lost_updates");
    double fc = pt_number(pt_get(pt_find(list, "name", "fc.weight"), "freeze"), "lr");
    double conv = pt_number(pt_get(pt_find(list, "name", "conv1.weight"), "freeze"), "lr");
    assert_true(fabs(fc - 0.05 / 8) < 1e-12 && fabs(conv - 0.05 / 32) < 1e-12);
    cJSON_Delete(report);
    ab_probe_set_destroy(p->set);
    free(p);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* ---- optimizer state ------------------------------------------------------------------------- */

/* Adam's second moment of small gradients is 0 in fp16 and not in fp32, whatever the level. */
static void half_state_loses_small_second_moments(void **state) {
    (void)state;
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16};
    ab_net *net = pt_net(plain_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
            ab_cell_config config = pt_config(net, pt_levels[l], &ab_format_fp16, "adam", NULL);
            config.policy.keep.state_format = formats[f];
            ab_cell *cell = pt_cell(&config);
            int64_t flushed = 0, n = 0;
            float v[MOST], grad[MOST];
            step(cell);
            n = read_values(cell, "fc.weight.state1", v);
            read_values(cell, "fc.weight.grad", grad);
            for (int64_t i = 0; i < n; i++) {
                flushed += v[i] == 0 && grad[i] != 0;
                assert_true(f == 1 || fabsf(v[i] - 1e-3f * grad[i] * grad[i]) <= 1e-6f * v[i] + 1e-12f);
            }
            assert_true(f == 1 ? flushed > n / 10 : flushed == 0);
            assert_int_equal(ab_cell_bytes(cell, AB_MEM_optimizer_state),
                             ab_cell_plan(cell)->bytes[AB_MEM_optimizer_state]);
            ab_cell_destroy(cell);
        }
    ab_net_free(net);
}

/* ---- averaged weights ------------------------------------------------------------------------ */

/* fp32: torch's recursion in double. In fp16 the average stops where its increment is below half an ulp. */
static void averages_follow_the_weights_and_stop_in_half(void **state) {
    (void)state;
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16};
    ab_net *net = pt_net(plain_ops);
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
        ab_cell_config config = config_of(net, "O2", "loss_scale=128");
        config.policy.keep.ema_format = formats[f];
        config.recipe.ema_decay = 0.9995;
        ab_cell *cell = pt_cell(&config);
        double expected[MOST] = {0}, worst = 0, lag = 0;
        int64_t n = 0;
        for (int i = 0; i < 30; i++) {
            float weight[MOST], average[MOST];
            step(cell);
            n = read_values(cell, "fc.weight", weight);
            read_values(cell, "fc.weight.ema", average);
            worst = lag = 0;
            for (int64_t k = 0; k < n; k++) {
                expected[k] =
                    i == 0 ? (double)weight[k] : expected[k] + 0.0005 * ((double)weight[k] - expected[k]);
                worst = fmax(worst, fabs((double)average[k] - expected[k]));
                lag = fmax(lag, fabs((double)weight[k] - expected[k]));
            }
        }
        assert_true(lag > 1e-2);
        assert_true(f == 0 ? worst < 1e-7 : worst > 1e-5);
        ab_cell_destroy(cell);
    }
    ab_net_free(net);
}

/* Evaluating the averages is evaluating a cell that has them as weights, and leaves no trace. */
static void averages_are_evaluated_and_put_back(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
        ab_cell_config config = config_of(net, pt_levels[l], NULL);
        ab_eval_result trained, averaged, again;
        ab_cell *plain = pt_cell(&config);
        assert_int_equal(ab_cell_evaluate_ema(plain, AB_SPLIT_TEST, 0, &averaged), AB_CONFIG);
        ab_cell_destroy(plain);
        config.policy.keep.ema_format = &ab_format_fp32;
        config.recipe.ema_decay = 0.5;
        ab_cell *cell = pt_cell(&config), *twin = pt_cell(&config);
        for (int i = 0; i < 8; i++) {
            step(cell);
            step(twin);
        }
        assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 0, &trained), AB_OK);
        assert_int_equal(ab_cell_evaluate_ema(cell, AB_SPLIT_TEST, 0, &averaged), AB_OK);
        assert_int_equal(ab_cell_evaluate(cell, AB_SPLIT_TEST, 0, &again), AB_OK);
        assert_true(averaged.loss != trained.loss && again.loss == trained.loss);
        for (int i = 0; i < 3; i++) {
            float a = step(cell).loss, b = step(twin).loss;
            assert_memory_equal(&a, &b, sizeof a);
        }
        ab_cell_destroy(cell);
        ab_cell_destroy(twin);
    }
    ab_net_free(net);
}

/* ---- groups ---------------------------------------------------------------------------------- */

/* A gradient of 0 leaves decay alone to move a weight: lr 0.1, decay 0.5 shrink it by 0.95. */
static void groups_choose_decay_and_rate(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = config_of(net, "O0", NULL), plain;
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    config.optim = (ab_optimizer_config){.lr = 0.1, .weight_decay = 0.5};
    plain = config;
    plain.optim.weight_decay = 0;
    ab_param_groups *groups = &config.recipe.groups;
    assert_int_equal(ab_param_groups_no_decay("bias,norm", groups), AB_OK);
    assert_int_equal(
        ab_param_groups_parse("conv2.weight:lr_factor=0.25,weight_decay=0;fc.w*:weight_decay=2", groups),
        AB_OK);
    assert_int_equal(ab_param_groups_check(groups, net), AB_OK);
    static const struct {
        const char *name;
        double factor, decay;
    } rows[] = {{"conv1.weight", 1, 0.5}, {"conv1.bias", 1, 0},     {"bn1.weight", 1, 0},
                {"bn1.bias", 1, 0},       {"conv2.weight", .25, 0}, {"fc.weight", 1, 2}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        float start[MOST], a[MOST], b[MOST];
        ab_cell *c = pt_cell(&config), *w = pt_cell(&plain);
        int64_t n = read_values(c, rows[i].name, start);
        step(c);
        step(w);
        read_values(c, rows[i].name, a);
        read_values(w, rows[i].name, b);
        for (int64_t k = 0; k < n; k++) {
            double moved = (double)b[k] - (double)start[k];
            double expected =
                (double)start[k] + rows[i].factor * moved - 0.1 * rows[i].decay * (double)start[k];
            assert_true(fabs((double)a[k] - expected) < 1e-6);
        }
        ab_cell_destroy(c);
        ab_cell_destroy(w);
    }
    ab_net_free(net);
}

static void refused(ab_status status, const char *message) {
    assert_int_equal(status, AB_USAGE);
    if (!strstr(ab_error_message(), message)) fail_msg("%s", ab_error_message());
}

static void bad_groups_and_faults_are_named(void **state) {
    (void)state;
    ab_net *net = pt_net(plain_ops);
    ab_param_groups groups = {0};
    unsigned faults = 0;
    refused(ab_param_groups_parse("fc.weight", &groups), "expected PATTERN:KEY=VALUE");
    refused(ab_param_groups_parse(":lr_factor=1", &groups), "expected a pattern");
    refused(ab_param_groups_parse("fc.*:lr=1", &groups), "expected lr_factor or weight_decay, found 'lr'");
    refused(ab_param_groups_parse("fc.*:lr_factor=-1", &groups), "expected a number from 0, found '-1'");
    refused(ab_param_groups_parse("fc.*:lr_factor=1;", &groups), "expected PATTERN:KEY=VALUE");
    refused(ab_param_groups_no_decay("bias,", &groups), "expected a pattern");
    groups.count = 0;
    assert_int_equal(ab_param_groups_no_decay("norm,bias", &groups), AB_OK); /* no norm here: no mistake */
    assert_int_equal(ab_param_groups_check(&groups, net), AB_OK);
    assert_int_equal(ab_param_groups_no_decay("fc.weigth", &groups), AB_OK);
    refused(ab_param_groups_check(&groups, net), "did you mean 'fc.weight'");
    refused(ab_fault_add("clip_before_unscal", &faults), "did you mean 'clip_before_unscale'");
    assert_int_equal(faults, 0);
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masters_start_from_rounded_or_unrounded_weights),
        cmocka_unit_test(micro_batches_make_the_gradient_of_the_whole_batch),
        cmocka_unit_test(masters_sum_in_fp32),
        cmocka_unit_test(masters_without_gradients_sum_in_half),
        cmocka_unit_test(an_overflow_in_a_micro_batch_skips_the_step),
        cmocka_unit_test(memory_of_micro_batches_is_planned),
        cmocka_unit_test(clipping_before_unscaling_clips_by_the_scale),
        cmocka_unit_test(schedules_wait_for_taken_steps),
        cmocka_unit_test(the_scheduled_rate_moves_the_weights),
        cmocka_unit_test(the_ledger_of_lost_updates_knows_the_rate_in_force),
        cmocka_unit_test(half_state_loses_small_second_moments),
        cmocka_unit_test(averages_follow_the_weights_and_stop_in_half),
        cmocka_unit_test(averages_are_evaluated_and_put_back),
        cmocka_unit_test(groups_choose_decay_and_rate),
        cmocka_unit_test(bad_groups_and_faults_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
