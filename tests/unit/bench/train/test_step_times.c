/* Timed steps: with a clock that counts its readings every part is counted as often as it runs, and training
 * keeps its bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "bench/train/cell/cell.h"

#include <string.h>

enum { STEPS = 4, MOST_NODES = 64 };

static int64_t readings;

static int64_t count_reading(void) { return ++readings; }

typedef struct trace {
    float loss[STEPS];
    int nodes;
    int64_t node[AB_TIMED_PASSES][MOST_NODES], part[AB_TIMED_PARTS];
} trace;

static void open_cell(const char *level_name, int64_t micro_batches, ab_net **net, ab_data **data,
                      ab_cell **cell) {
    const ab_level *level;
    ab_cell_config config = {.batch = 4, .seed = 1, .device = &ab_device_cpu};
    assert_int_equal(ab_net_load("lenet5", net), AB_OK);
    assert_int_equal(ab_data_open("synthetic", &(*net)->data, 1, data), AB_OK);
    config.net = *net;
    config.data = *data;
    assert_int_equal(ab_level_find(level_name, &level), AB_OK);
    assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("momentum", &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    config.recipe.micro_batches = micro_batches;
    config.recipe.rates.lr = config.optim.lr;
    assert_int_equal(ab_cell_create(&config, cell), AB_OK);
}

static void train(const char *level_name, int64_t micro_batches, bool timed, trace *t) {
    ab_net *net;
    ab_data *data;
    ab_cell *cell;
    memset(t, 0, sizeof *t);
    open_cell(level_name, micro_batches, &net, &data, &cell);
    ab_step_times times = {.now = count_reading, .part = t->part};
    for (int p = 0; p < AB_TIMED_PASSES; p++) times.node[p] = t->node[p];
    t->nodes = ab_cell_plan(cell)->nodes;
    assert_true(t->nodes <= MOST_NODES);
    if (timed) ab_cell_time(cell, &times);
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        t->loss[i] = result.loss;
    }
    ab_cell_destroy(cell);
    ab_data_close(data);
    ab_net_free(net);
}

static void timed_steps_keep_their_bits(void **state) {
    (void)state;
    static const char *const levels[] = {"O0", "O1", "O2", "O3"};
    static trace plain, timed;
    for (size_t l = 0; l < AB_COUNT_OF(levels); l++) {
        train(levels[l], 1, false, &plain);
        train(levels[l], 1, true, &timed);
        assert_memory_equal(plain.loss, timed.loss, sizeof plain.loss);
        assert_int_equal(plain.part[AB_TIMED_UPDATE], 0);
    }
}

/* Each reading of the clock is one unit, so a part has as many as it ran. */
static void every_part_is_timed_as_often_as_it_runs(void **state) {
    (void)state;
    static trace t;
    for (int64_t batches = 1; batches <= 3; batches += 2) {
        readings = 0;
        train("O0", batches, true, &t);
        int64_t sum = 0;
        for (int n = 0; n < t.nodes; n++) {
            assert_int_equal(t.node[AB_TIMED_FORWARD][n], STEPS * batches);
            assert_int_equal(t.node[AB_TIMED_BACKWARD][n], STEPS * batches);
            for (int p = 0; p < AB_TIMED_PASSES; p++) sum += t.node[p][n];
        }
        for (int p = 0; p < AB_TIMED_PARTS; p++) sum += t.part[p];
        assert_int_equal(t.part[AB_TIMED_BATCH], STEPS * batches);
        assert_int_equal(t.part[AB_TIMED_STATISTICS], STEPS * batches);
        assert_int_equal(t.part[AB_TIMED_WEIGHT_CASTS], STEPS * batches);
        assert_int_equal(t.part[AB_TIMED_UNSCALE], STEPS);
        assert_int_equal(t.part[AB_TIMED_UPDATE], STEPS);
        assert_int_equal(sum, readings - STEPS); /* a step's first reading ends nothing */
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(timed_steps_keep_their_bits),
                                       cmocka_unit_test(every_part_is_timed_as_often_as_it_runs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
