/* Simulated ranks train as torch's DistributedDataParallel does on gloo, plain and with its compression
 * hooks, as FSDP2 does with each reduce_dtype, as apex's DistributedDataParallel and as DeepSpeed: the losses
 * of scripts/golden_ddp.py, within what DDP's own order of additions changes them. A wrong format on the
 * wire, a wrong number of ranks, and a division that is missing or made twice are found. */
#include "bench/train/cell/cell.h"
#include "reports/record/json.h"
#include "reports/record/result.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

/* What a training does otherwise than its trace. */
typedef struct mistake {
    const char *wire, *divide, *every; /* NULL: as the trace */
    int64_t ranks;                     /* 0: as the trace */
    double times; /* of what the mean over ranks is taken, which for plain SGD the learning
                     rate is; 0: 1 */
} mistake;

static void use_preset(ab_rank_recipe *ranks, const cJSON *trace, const mistake *made) {
    const ab_reduction_preset *preset = NULL;
    *ranks =
        (ab_rank_recipe){.count = (int64_t)ab_json_number(trace, "ranks", 0), .bucket_bytes = 25 * 0x1p20};
    if (made->ranks) ranks->count = made->ranks;
    assert_int_equal(ab_reduction_preset_find(ab_json_text(trace, "ddp", ""), &preset), AB_OK);
    const char *wire = made->wire ? made->wire : ab_json_text(trace, "wire", ""),
               *divide = made->divide ? made->divide : ab_json_text(trace, "divide", preset->divide),
               *every = made->every ? made->every : ab_json_text(trace, "every", "step");
    assert_int_equal(ab_reduction_parse_scheme(preset->reduce, &ranks->reduction), AB_OK);
    assert_int_equal(ab_reduction_parse_wire(wire, &ranks->reduction), AB_OK);
    assert_int_equal(ab_reduction_parse_divide(divide, &ranks->reduction), AB_OK);
    assert_int_equal(ab_reduction_parse_every(every, &ranks->every), AB_OK);
}

static ab_cell_config config_of(const cJSON *trace, const mistake *made) {
    const ab_level *level = NULL;
    char scale[64];
    ab_cell_config config = {.net = net,
                             .batch = (int64_t)ab_json_number(golden, "batch", 0),
                             .seed = 1,
                             .data = data,
                             .normalize = AB_NORMALIZE_NONE,
                             .init_file = GOLDEN "ddp_init.npz",
                             .device = &ab_device_cpu};
    const char *set = scale;
    snprintf(scale, sizeof scale, "loss_scale=%.17g", ab_json_number(trace, "scale", 1));
    assert_int_equal(ab_level_find("O0", &level), AB_OK);
    assert_int_equal(ab_policy_resolve(level, &ab_format_fp16, &set, 1, &config.policy), AB_OK);
    assert_int_equal(ab_optimizer_find("sgd", &config.optimizer), AB_OK);
    config.optim = config.optimizer->defaults;
    config.optim.lr = config.recipe.rates.lr =
        (made->times > 0 ? made->times : 1) * ab_json_number(golden, "lr", 0);
    config.recipe.micro_batches = (int64_t)ab_json_number(trace, "batches", 1);
    use_preset(&config.recipe.ranks, trace, made);
    return config;
}

/* Largest difference of a training's losses from those of a trace; infinite if one is not a number. */
static double distance(const cJSON *trace, const mistake *made) {
    const ab_cell_config config = config_of(trace, made);
    ab_cell *cell = NULL;
    if (ab_cell_create(&config, &cell) != AB_OK) fail_msg("%s", ab_error_message());
    const cJSON *loss = ab_json_at(trace, "loss");
    assert_int_equal(cJSON_GetArraySize(loss), STEPS);
    double worst = 0;
    for (int k = 0; k < STEPS; k++) {
        ab_step_result result;
        if (ab_cell_step(cell, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
        const double off = fabs((double)result.loss - cJSON_GetArrayItem(loss, k)->valuedouble);
        worst = isnan(off) ? (double)INFINITY : fmax(worst, off);
    }
    ab_cell_destroy(cell);
    return worst;
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
    static const mistake none = {.wire = NULL};
    const cJSON *trace = NULL;
    int traces = 0;
    cJSON_ArrayForEach(trace, ab_json_at(golden, "traces")) {
        const double far = distance(trace, &none), limit = limit_of(trace);
        print_message("%d ranks, %s: %.2g of %.2g\n", (int)ab_json_number(trace, "ranks", 0),
                      ab_json_text(trace, "name", ""), far, limit);
        if (far > limit) fail_msg("%s: not what torch computed", ab_json_text(trace, "name", ""));
        traces++;
    }
    assert_int_equal(traces, 58);
}

/* ---- mistakes that must be found --------------------------------------------------------------- */

/* Traces that a mistake shows in; it must be found in `least` of them at least. */
static void assert_found(const mistake *made, bool (*shows)(const cJSON *trace), double limits, int least) {
    const cJSON *trace = NULL;
    int found = 0;
    cJSON_ArrayForEach(trace, ab_json_at(golden, "traces")) {
        if (shows && !shows(trace)) continue;
        const double far = distance(trace, made);
        if (!(far > limits * limit_of(trace)))
            fail_msg("%s, %d ranks: %g is not %g times %g", ab_json_text(trace, "name", ""),
                     (int)ab_json_number(trace, "ranks", 0), far, limits, limit_of(trace));
        found++;
    }
    assert_true(found >= least);
}

static bool is_plain(const cJSON *trace) { return !ab_json_at(trace, "scale"); }
static bool is_of_two(const cJSON *trace) { return ab_json_number(trace, "ranks", 0) == 2; }
static bool is_of_four(const cJSON *trace) { return ab_json_number(trace, "ranks", 0) == 4; }

static const char *other_wire; /* than that of the traces */
static bool has_another_wire(const cJSON *trace) {
    return is_plain(trace) && is_of_two(trace) && strcmp(ab_json_text(trace, "wire", ""), other_wire) != 0;
}

static void another_wire_format_is_found(void **state) {
    (void)state;
    static const char *const wires[] = {"fp32", "fp16", "bf16"};
    for (size_t w = 0; w < AB_COUNT_OF(wires); w++) {
        other_wire = wires[w];
        assert_found(&(mistake){.wire = other_wire}, has_another_wire, 1, 8);
    }
}

static void another_number_of_ranks_is_found(void **state) {
    (void)state;
    assert_found(&(mistake){.ranks = 4}, is_of_two, 1, 17);
    assert_found(&(mistake){.ranks = 2}, is_of_four, 1, 17);
}

static void a_division_that_is_missing_or_made_twice_is_found(void **state) {
    (void)state;
    assert_found(&(mistake){.times = 2}, is_of_two, 10, 17);
    assert_found(&(mistake){.times = 4}, is_of_four, 10, 17);
    assert_found(&(mistake){.times = 0.5}, is_of_two, 10, 17);
    assert_found(&(mistake){.times = 0.25}, is_of_four, 10, 17);
}

static bool adds_in_wire(const cJSON *trace) {
    return is_of_two(trace) && strcmp(ab_json_text(trace, "every", ""), "step-in-wire") == 0;
}

static void sums_of_micro_batches_in_another_format_are_found(void **state) {
    (void)state;
    assert_found(&(mistake){.every = "step"}, adds_in_wire, 1, 2);
    assert_found(&(mistake){.every = "micro-batch"}, adds_in_wire, 1, 2);
}

/* Where a power of two divides neither overflows nor becomes subnormal, both have the same bits. */
static const char *division; /* of the traces at the ends of fp16's range */
static bool divides_so(const cJSON *trace) {
    const ab_reduction_preset *preset = NULL;
    assert_int_equal(ab_reduction_preset_find(ab_json_text(trace, "ddp", ""), &preset), AB_OK);
    return !is_plain(trace) && strcmp(preset->divide, division) == 0;
}

static void a_division_before_the_sum_in_place_of_one_after_it_is_found(void **state) {
    (void)state;
    division = "pre";
    assert_found(&(mistake){.divide = "post"}, divides_so, 10, 6);
    division = "post";
    assert_found(&(mistake){.divide = "pre"}, divides_so, 10, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_are_those_of_torch_on_gloo),
        cmocka_unit_test(another_wire_format_is_found),
        cmocka_unit_test(another_number_of_ranks_is_found),
        cmocka_unit_test(a_division_that_is_missing_or_made_twice_is_found),
        cmocka_unit_test(sums_of_micro_batches_in_another_format_are_found),
        cmocka_unit_test(a_division_before_the_sum_in_place_of_one_after_it_is_found),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
