/* Simulated ranks train as torch's DistributedDataParallel does on gloo, plain and with its compression
 * hooks, and as FSDP2 does with each reduce_dtype: the losses of scripts/golden_ddp.py, within what DDP's own
 * order of additions changes them. A wrong format on the wire, a wrong number of ranks, and a division that
 * is missing or made twice are found. */
#include "bench/train/cell/cell.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 30 };

static const char net_text[] =
    "{\"format\": \"ampbench-net-1\", \"name\": \"ddp\", \"input\": {\"shape\": [20]}, \"ops\": ["
    "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 16}, {\"name\": \"relu\", \"op\": \"relu\"}, "
    "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 4}, "
    "{\"name\": \"loss\", \"op\": \"cross_entropy\"}]}";

#define GOLDEN AB_SOURCE_DIR "/tests/golden/"

/* fp32's rounding of other products and sums, over the steps of a trace. */
static const double rounding = 2e-6;

static ab_net *net;
static ab_data *data;
static cJSON *golden;

static int setup(void **state) {
    (void)state;
    if (ab_net_parse(net_text, strlen(net_text), "ddp.json", &net) != AB_OK)
        fail_msg("%s", ab_error_message());
    const ab_data_shape shape = net->data;
    if (ab_data_open("arrays:" GOLDEN "ddp.npz", &shape, 1, &data) != AB_OK)
        fail_msg("%s", ab_error_message());
    return ab_json_load(GOLDEN "ddp.json", &golden) == AB_OK ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    cJSON_Delete(golden);
    ab_data_close(data);
    ab_net_free(net);
    return 0;
}

static void use_preset(ab_rank_recipe *ranks, const char *name, const char *wire, int64_t count) {
    const ab_reduction_preset *preset = NULL;
    *ranks = (ab_rank_recipe){.count = count, .bucket_bytes = 25 * 0x1p20};
    assert_int_equal(ab_reduction_preset_find(name, &preset), AB_OK);
    assert_int_equal(ab_reduction_parse_scheme(preset->reduce, &ranks->reduction), AB_OK);
    assert_int_equal(ab_reduction_parse_wire(wire, &ranks->reduction), AB_OK);
    assert_int_equal(ab_reduction_parse_divide(preset->divide, &ranks->reduction), AB_OK);
}

/* Largest difference of a training's losses from those of a trace. `times`: of what the mean over ranks is
 * taken, which for plain SGD the learning rate is. */
static double distance_of(const cJSON *trace, const char *wire, int64_t count, double times) {
    const ab_level *level = NULL;
    ab_cell_config config = {.net = net,
                             .batch = (int64_t)ab_json_number(golden, "batch", 0),
                             .seed = 1,
                             .data = data,
                             .normalize = AB_NORMALIZE_NONE,
                             .init_file = GOLDEN "ddp_init.npz",
                             .device = &ab_device_cpu};
    assert_int_equal(ab_level_find("O0", &level), AB_OK);
    assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, NULL, 0, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    config.optim.lr = config.recipe.rates.lr = times * ab_json_number(golden, "lr", 0);
    use_preset(&config.recipe.ranks, ab_json_text(trace, "ddp", ""), wire, count);
    ab_cell *cell = NULL;
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    const cJSON *loss = ab_json_at(trace, "loss");
    assert_int_equal(cJSON_GetArraySize(loss), STEPS);
    double worst = 0;
    for (int k = 0; k < STEPS; k++) {
        ab_step_result result;
        if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
        worst = fmax(worst, fabs((double)result.loss - cJSON_GetArrayItem(loss, k)->valuedouble));
    }
    ab_cell_destroy(cell);
    return worst;
}

static double distance(const cJSON *trace, const char *wire, int64_t count) {
    return distance_of(trace, wire, count, 1);
}

/* A drift is the effect of one other order of additions in a format; ours is a third. Of frameworks that
 * reduce over as many ranks in the same format the one whose other order changed most says what an order can
 * do. */
static double limit_of(const cJSON *trace) {
    const cJSON *other = NULL;
    double drift = 0;
    cJSON_ArrayForEach(other, ab_json_at(golden, "traces")) {
        if (strcmp(ab_json_text(other, "wire", ""), ab_json_text(trace, "wire", "")) == 0 &&
            ab_json_number(other, "ranks", 0) == ab_json_number(trace, "ranks", 0))
            drift = fmax(drift, ab_json_number(other, "drift", 0));
    }
    return rounding + 2 * drift;
}

static void losses_are_those_of_torch_on_gloo(void **state) {
    (void)state;
    const cJSON *trace = NULL;
    int traces = 0;
    cJSON_ArrayForEach(trace, ab_json_at(golden, "traces")) {
        const char *name = ab_json_text(trace, "name", "");
        int64_t count = (int64_t)ab_json_number(trace, "ranks", 0);
        double far = distance(trace, ab_json_text(trace, "wire", ""), count), limit = limit_of(trace);
        print_message("%d ranks, %s: %.2g of %.2g\n", (int)count, name, far, limit);
        if (far > limit) fail_msg("%s: not what torch computed", name);
        traces++;
    }
    assert_int_equal(traces, 12);
}

static void another_wire_format_or_number_of_ranks_is_found(void **state) {
    (void)state;
    static const char *const wires[] = {"fp32", "fp16", "bf16"};
    const cJSON *trace = NULL;
    cJSON_ArrayForEach(trace, ab_json_at(golden, "traces")) {
        const char *wire = ab_json_text(trace, "wire", "");
        int64_t count = (int64_t)ab_json_number(trace, "ranks", 0);
        assert_true(distance(trace, wire, count == 2 ? 4 : 2) > limit_of(trace));
        for (size_t w = 0; w < AB_COUNT_OF(wires) && count == 2; w++)
            if (strcmp(wires[w], wire) != 0) assert_true(distance(trace, wires[w], count) > limit_of(trace));
    }
}

static void a_division_that_is_missing_or_made_twice_is_found(void **state) {
    (void)state;
    const cJSON *trace = NULL;
    cJSON_ArrayForEach(trace, ab_json_at(golden, "traces")) {
        const char *wire = ab_json_text(trace, "wire", "");
        const double ranks = ab_json_number(trace, "ranks", 0), limit = limit_of(trace);
        assert_true(distance_of(trace, wire, (int64_t)ranks, ranks) > 10 * limit);
        assert_true(distance_of(trace, wire, (int64_t)ranks, 1 / ranks) > 10 * limit);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_torch_on_gloo),
        cmocka_unit_test(another_wire_format_or_number_of_ranks_is_found),
        cmocka_unit_test(a_division_that_is_missing_or_made_twice_is_found),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
