/* Probes listen and do not steer: with any of them the losses have the same bits, and so have the weights.
 * Records stay small. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include <math.h>

enum { STEPS = 12 };

/* ---- sameness -------------------------------------------------------------------------------- */

typedef struct outcome {
    float loss[STEPS];
    float weight[1024];
    int64_t weights;
} outcome;

static void keep_weights(const ab_cell *cell, outcome *end) {
    ab_shape shape;
    end->weights = 0;
    for (int i = 0; i < ab_cell_trained_count(cell); i++) {
        const char *name = ab_cell_trained_at(cell, i)->name;
        assert_true(end->weights + ab_cell_trained_at(cell, i)->count <= 1024);
        assert_int_equal(ab_cell_read(cell, name, &shape, end->weight + end->weights), AB_OK);
        end->weights += ab_shape_count(&shape);
    }
}

/* `every`: probed steps are the multiples of it; 0: none. */
static outcome run(const ab_cell_config *config, uint64_t chosen, int every) {
    outcome end;
    ab_cell *cell = pt_cell(config);
    pt_probing *p = calloc(1, sizeof *p);
    assert_non_null(p);
    if (every) pt_start(p, chosen, cell, config, config->policy.half);
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        if (every && i % every == 0) {
            end.loss[i] = pt_step(p, cell);
            continue;
        }
        assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
        end.loss[i] = result.loss;
    }
    keep_weights(cell, &end);
    if (every) cJSON_Delete(pt_set_report(p));
    ab_probe_set_destroy(p->set);
    free(p);
    ab_cell_destroy(cell);
    return end;
}

static void same_bits(const outcome *a, const outcome *b, bool weights) {
    assert_memory_equal(a->loss, b->loss, sizeof a->loss);
    assert_int_equal(a->weights, b->weights);
    if (weights) assert_memory_equal(a->weight, b->weight, (size_t)a->weights * sizeof *a->weight);
}

static void no_probe_changes_a_bit_of_loss_or_weights(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
        ab_cell_config config =
            pt_config(net, pt_levels[l], l % 2 ? &ab_format_fp16 : &ab_format_bf16, "adam", NULL);
        outcome none = run(&config, 0, 0);
        for (int p = 0; p < ab_probe_count(); p++) {
            outcome probed = run(&config, (uint64_t)1 << p, 3);
            same_bits(&none, &probed, true);
        }
        outcome all = run(&config, ab_probes_all(), 1);
        same_bits(&none, &all, true);
    }
    ab_net_free(net);
}

/* A run that ends in NaN: what a probe wrote into the payload must not show in the losses. */
static void losses_that_are_nan_have_the_same_bits_too(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++) {
        ab_cell_config config = pt_config(net, pt_levels[l], &ab_format_fp16, "sgd", "loss_scale=1");
        config.optim.lr = 1e30;
        outcome none = run(&config, 0, 0), all = run(&config, ab_probes_all(), 1);
        assert_true(isnan(none.loss[STEPS - 1]));
        same_bits(&none, &all, false);
    }
    ab_net_free(net);
}

static void the_lanes_change_no_report(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    cJSON *report[2];
    for (int threads = 1; threads <= 2; threads++) {
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "adam", NULL);
        config.path = AB_PATH_REFERENCE;
        ab_cell *cell = pt_cell(&config);
        pt_probing *p = calloc(1, sizeof *p);
        assert_non_null(p);
        pt_start(p, ab_probes_all(), cell, &config, &ab_format_fp16);
        for (int i = 0; i < STEPS; i++) pt_step(p, cell);
        report[threads - 1] = pt_set_report(p);
        ab_probe_set_destroy(p->set);
        free(p);
        ab_cell_destroy(cell);
    }
    ab_parallel_stop();
    assert_true(cJSON_Compare(report[0], report[1], 1));
    cJSON_Delete(report[0]);
    cJSON_Delete(report[1]);
    ab_net_free(net);
}

/* ---- size ------------------------------------------------------------------------------------ */

/* The record of a run of `steps` steps, each of which shows a little of everything. */
static size_t record_size(int64_t steps) {
    static const ab_probe_tensor tensors[] = {{"w.grad", "w", AB_ROLE_WEIGHT_GRADIENT, true},
                                              {"w.grad", "w", AB_ROLE_UNSCALED_GRADIENT, true},
                                              {"w.out", "w", AB_ROLE_ACTIVATION, true},
                                              {"w", "w", AB_ROLE_WEIGHT, true},
                                              {"w.m", "w", AB_ROLE_OPTIMIZER_STATE, true}};
    const ab_probe_param param = {"w", "w", 2, 0, &ab_format_fp16, &ab_format_fp16};
    const ab_probe_setup setup = {.tensor = tensors,
                                  .tensors = AB_COUNT_OF(tensors),
                                  .threads = 1,
                                  .half = &ab_format_fp16,
                                  .param = &param,
                                  .params = 1,
                                  .optimizer = {.lr = 1, .beta1 = 0.9, .beta2 = 0.999, .second_moment = 1}};
    const float before[] = {1, 2}, grad[] = {0.5f, 1e-9f};
    const double change[] = {-0.5, -1e-9};
    ab_update_block block = {.n = 2,
                             .taken = 1,
                             .before = before,
                             .after = before,
                             .stored = before,
                             .grad = grad,
                             .update = change,
                             .term = {change, NULL, change, change},
                             .state_before = {before, before},
                             .state_after = {before, before},
                             .state_stored = {before, before}};
    pt_probing p = {.set = NULL};
    assert_int_equal(ab_probe_set_create(ab_probes_all(), NULL, &p.set), AB_OK);
    ab_watch watch = ab_probe_set_watch(p.set);
    assert_int_equal(ab_probe_set_start(p.set, &setup), AB_OK);
    ab_observer *observer = ab_probe_set_observer(p.set);
    for (int64_t step = 0; step < steps; step++) {
        watch.begin(watch.context, step, 1);
        for (int i = 0; i < setup.tensors; i++) observer->see(observer, i, 0, grad, 2);
        watch.update(watch.context, &block);
        ab_probe_set_step_end(p.set, step);
    }
    cJSON *report = pt_set_report(&p);
    char *text = cJSON_PrintUnformatted(report);
    size_t size = strlen(text);
    assert_int_equal(ab_probe_set_steps(p.set), steps);
    free(text);
    cJSON_Delete(report);
    ab_probe_set_destroy(p.set);
    return size;
}

static void a_long_run_makes_no_larger_a_record_than_a_short_one(void **state) {
    (void)state;
    size_t small = record_size(128), large = record_size(100000);
    assert_true(small > 1000);
    assert_true(large < small + small / 2); /* longer numbers, not more of them */
}

/* ---- parts ----------------------------------------------------------------------------------- */

static int64_t ticks;
static int64_t tick(void) { return ticks += 7; }

static void costs_are_told_probe_by_probe(void **state) {
    (void)state;
    const ab_probe_tensor tensor = {"w.grad", "w", AB_ROLE_WEIGHT_GRADIENT, true};
    const ab_probe_setup setup = {.tensor = &tensor, .tensors = 1, .threads = 1, .half = &ab_format_fp16};
    int gradients = -1, activations = -1;
    assert_int_equal(ab_probe_find("gradients", &gradients), AB_OK);
    assert_int_equal(ab_probe_find("activations", &activations), AB_OK);
    pt_probing p = {.set = NULL};
    uint64_t both = (uint64_t)1 << gradients | (uint64_t)1 << activations;
    assert_int_equal(ab_probe_set_create(both, tick, &p.set), AB_OK);
    assert_int_equal(ab_probe_set_start(p.set, &setup), AB_OK);
    ab_observer *observer = ab_probe_set_observer(p.set);
    const float value = 1;
    for (int i = 0; i < 5; i++) observer->see(observer, 0, 0, &value, 1);
    observer->see(observer, -1, 0, &value, 1); /* nobody's */
    assert_int_equal(ab_probe_set_cost_ns(p.set), 5 * 7);
    ab_probe_set_step_end(p.set, 0);
    assert_int_equal(ab_probe_set_cost_ns(p.set), 7 * 7);
    cJSON *report = pt_set_report(&p);
    const cJSON *costs = pt_get(report, "costs");
    assert_int_equal(pt_integer(pt_find(costs, "probe", "gradients"), "cost_ns"), 6 * 7);
    assert_int_equal(pt_integer(pt_find(costs, "probe", "activations"), "cost_ns"), 7);
    cJSON_Delete(report);
    ab_probe_set_destroy(p.set);
}

static void only_what_somebody_wants_is_shown(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "momentum", NULL);
    ab_cell *cell = pt_cell(&config);
    static const struct {
        const char *probe;
        ab_probe_role role;
        int count;
    } cases[] = {{"activations", AB_ROLE_ACTIVATION, 8},
                 {"weights", AB_ROLE_WEIGHT, 8},
                 {"optimizer_state", AB_ROLE_OPTIMIZER_STATE, 8}};
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
        int index = -1, found = 0;
        ab_probe_set *set = NULL;
        assert_int_equal(ab_probe_find(cases[c].probe, &index), AB_OK);
        assert_int_equal(ab_probe_set_create((uint64_t)1 << index, NULL, &set), AB_OK);
        ab_watch watch = ab_probe_set_watch(set);
        assert_true(watch.update == NULL && watch.ran == NULL);
        ab_cell_watch(cell, &watch);
        for (int i = 0; i < ab_cell_observed_count(cell); i++)
            found += ab_cell_observed_at(cell, i)->role == cases[c].role;
        assert_int_equal(ab_cell_observed_count(cell), found);
        assert_int_equal(found, cases[c].count);
        ab_probe_set_destroy(set);
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

static void without_gradients_the_report_is_whole(void **state) {
    (void)state;
    const ab_probe_setup setup = {.threads = 1, .half = &ab_format_bf16};
    int index = -1;
    assert_int_equal(ab_probe_find("lost_updates", &index), AB_OK);
    pt_probing p = {.set = NULL};
    assert_int_equal(ab_probe_set_create((uint64_t)1 << index, NULL, &p.set), AB_OK);
    assert_int_equal(ab_probe_set_start(p.set, &setup), AB_OK);
    cJSON *report = pt_set_report(&p);
    assert_int_equal(pt_integer(report, "steps_probed"), 0);
    assert_string_equal(pt_text(report, "format"), "bf16");
    assert_int_equal(cJSON_GetArraySize(pt_get(report, "tensors")), 0);
    assert_int_equal(cJSON_GetArraySize(pt_get(report, "lost_updates")), 0);
    cJSON_Delete(report);
    ab_probe_set_destroy(p.set);
}

static void probes_have_names_and_some_are_standard(void **state) {
    (void)state;
    int index = -1;
    assert_int_equal(ab_probe_find("lost_updates", &index), AB_OK);
    assert_true(ab_probes_standard() >> index & 1u);
    assert_int_equal(ab_probe_find("gradients", &index), AB_OK);
    assert_true(ab_probes_standard() >> index & 1u);
    assert_int_equal(ab_probes_all(), ((uint64_t)1 << ab_probe_count()) - 1);
    assert_int_equal(ab_probes_standard() & ~ab_probes_all(), 0);
    assert_int_equal(ab_probe_find("gradient", &index), AB_USAGE);
    assert_non_null(strstr(ab_error_message(), "gradients"));
    for (int i = 0; i < ab_probe_count(); i++) assert_true(strlen(ab_probe_at(i)->text) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_probe_changes_a_bit_of_loss_or_weights),
        cmocka_unit_test(losses_that_are_nan_have_the_same_bits_too),
        cmocka_unit_test(the_lanes_change_no_report),
        cmocka_unit_test(a_long_run_makes_no_larger_a_record_than_a_short_one),
        cmocka_unit_test(costs_are_told_probe_by_probe),
        cmocka_unit_test(only_what_somebody_wants_is_shown),
        cmocka_unit_test(without_gradients_the_report_is_whole),
        cmocka_unit_test(probes_have_names_and_some_are_standard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
