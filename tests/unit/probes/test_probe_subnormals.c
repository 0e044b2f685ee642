/* The probe of subnormal operands: counts against the C library's classification, over all exponents and in
 * any cut, whatever the mode of the thread; and a training whose momentum decays to nothing. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include "kernels/census/census.h"
#include "kernels/core/subnormals.h"
#include "kernels/format/convert.h"

#include <math.h>

enum { VALUES = 3 << 16 };

/* All signs, exponents and leading mantissa bits, with the ends around bf16's ties. */
static const float *values(void) {
    static float value[VALUES];
    static const uint32_t ends[] = {0, 0x7fff, 0x8000};
    for (uint32_t i = 0; i < VALUES; i++) {
        const uint32_t bits = i / 3 << 16 | ends[i % 3];
        memcpy(&value[i], &bits, sizeof bits);
    }
    return value;
}

/* `half`: of values that are rounded to it before they are read; NULL: of values that are read as they are.
 */
static int64_t oracle(const float *value, int64_t n, const ab_format *half) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++) {
        uint16_t code;
        float read = value[i];
        if (half) {
            ab_narrow(&code, half, &value[i], 1);
            ab_widen(&read, &code, half, 1);
        }
        count += fpclassify(read) == FP_SUBNORMAL;
    }
    return count;
}

static void write_subnormals(void *state, ab_probe_sink *sink) {
    pt_probe("subnormals")->report(state, sink);
}

static void expect_operand(const cJSON *report, const char *kind, int64_t count, int64_t subnormal) {
    const cJSON *operand = pt_find(pt_get(pt_get(report, "subnormals"), "operands"), "kind", kind);
    assert_int_equal(pt_integer(operand, "values"), count);
    assert_int_equal(pt_integer(operand, "subnormal"), subnormal);
    assert_int_equal(pt_integer(operand, "first_step"), 7);
}

/* Weight, gradient and state get different shares of the values. */
static void counts_are_the_c_librarys_in_any_cut(void **state) {
    (void)state;
    static const int cuts[] = {1024, 1000, 7};
    const float *value = values();
    const ab_probe_param param = {.name = "w", .layer = "fc", .count = VALUES};
    ab_probe_setup setup = {.threads = 3, .param = &param, .params = 1, .half = &ab_format_fp16};
    setup.optimizer.state[0] = "exp_avg";
    setup.optimizer.state[1] = "exp_avg_sq";
    for (size_t c = 0; c < AB_COUNT_OF(cuts); c++) {
        void *probe = NULL;
        assert_int_equal(pt_probe("subnormals")->create(&setup, &probe), AB_OK);
        for (int64_t first = 0; first < VALUES; first += cuts[c]) {
            const int64_t left = VALUES - first, n = left < cuts[c] ? left : cuts[c];
            ab_update_block block = {.thread = (int)(first / cuts[c] % 3), .first = first, .n = n};
            block.before = value + first;
            block.grad = value;
            block.state_before[0] = value + first / 2;
            block.state_before[1] = value + VALUES / 2 - n / 2;
            pt_probe("subnormals")->update(probe, &block);
        }
        pt_probe("subnormals")->step_end(probe, 7);
        int64_t grads = 0, first_state = 0, second_state = 0;
        for (int64_t first = 0; first < VALUES; first += cuts[c]) {
            const int64_t left = VALUES - first, n = left < cuts[c] ? left : cuts[c];
            grads += oracle(value, n, NULL);
            first_state += oracle(value + first / 2, n, NULL);
            second_state += oracle(value + VALUES / 2 - n / 2, n, NULL);
        }
        cJSON *report = pt_report(write_subnormals, probe);
        expect_operand(report, "weight", VALUES, oracle(value, VALUES, NULL));
        expect_operand(report, "weight_gradient", VALUES, grads);
        expect_operand(report, "exp_avg", VALUES, first_state);
        expect_operand(report, "exp_avg_sq", VALUES, second_state);
        cJSON_Delete(report);
        pt_probe("subnormals")->destroy(probe);
    }
}

/* Of values and of their census, for gradients that stay fp32 and for those that are rounded to a half. */
static void gradients_of_activations_count_as_they_are_read(void **state) {
    (void)state;
    const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    const float *value = values();
    ab_census census;
    ab_census_clear(&census);
    ab_census_add(&census, value, VALUES);
    for (int h = 0; h < 2; h++)
        for (int cast = 0; cast < 2; cast++)
            for (int counted = 0; counted < 2; counted++) {
                const ab_probe_tensor tensor[] = {{"a.grad", "a", AB_ROLE_ACTIVATION_GRADIENT, cast},
                                                  {"w.grad", "a", AB_ROLE_WEIGHT_GRADIENT, cast}};
                const ab_probe_setup setup = {
                    .threads = 1, .tensor = tensor, .tensors = 2, .half = halves[h]};
                void *probe = NULL;
                assert_int_equal(pt_probe("subnormals")->create(&setup, &probe), AB_OK);
                for (int t = 0; t < 2; t++)
                    if (counted)
                        pt_probe("subnormals")->count(probe, t, &census);
                    else
                        pt_probe("subnormals")->see(probe, t, 0, value, VALUES);
                pt_probe("subnormals")->step_end(probe, 7);
                cJSON *report = pt_report(write_subnormals, probe);
                const cJSON *all = pt_get(report, "subnormals");
                assert_int_equal(pt_integer(all, "values"), VALUES);
                assert_int_equal(pt_integer(all, "subnormal"),
                                 oracle(value, VALUES, cast ? halves[h] : NULL));
                assert_true(cast && h == 0 ? pt_integer(all, "subnormal") == 0
                                           : pt_integer(all, "subnormal") > 300);
                cJSON_Delete(report);
                pt_probe("subnormals")->destroy(probe);
            }
}

/* ---- in a training --------------------------------------------------------------------------- */

/* Three steps with momentum whose gradients are clipped to subnormal numbers. */
static cJSON *train(ab_subnormals mode) {
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "momentum", NULL);
    pt_probing probing;
    config.recipe.clip.value = 0x1p-130;
    ab_cell *cell = pt_cell(&config);
    int index;
    assert_int_equal(ab_probe_find("subnormals", &index), AB_OK);
    ab_subnormals_set(mode);
    pt_start(&probing, UINT64_C(1) << index, cell, &config, &ab_format_fp16);
    for (int i = 0; i < 3; i++) pt_step(&probing, cell);
    ab_subnormals_set(AB_SUBNORMALS_KEPT);
    cJSON *report = pt_set_report(&probing);
    ab_probe_set_destroy(probing.set);
    ab_cell_destroy(cell);
    ab_net_free(net);
    return report;
}

static int64_t count_of(const cJSON *report, const char *kind, int64_t *first) {
    const cJSON *operand;
    int64_t count = 0;
    *first = -1;
    cJSON_ArrayForEach(operand, pt_get(pt_get(report, "subnormals"), "operands")) {
        if (strcmp(pt_text(operand, "kind"), kind) != 0) continue;
        count += pt_integer(operand, "subnormal");
        *first = pt_integer(operand, "first_step");
    }
    return count;
}

/* The momentum is read one step after the gradient it comes from, unless it was flushed. */
static void a_training_shows_the_operands_of_its_updates(void **state) {
    (void)state;
    int64_t first;
    cJSON *kept = train(AB_SUBNORMALS_KEPT);
    const int64_t gradients = count_of(kept, "weight_gradient", &first);
    assert_int_equal(first, 0);
    assert_true(gradients > 300);
    const int64_t momentum = count_of(kept, "momentum_buffer", &first);
    assert_int_equal(first, 1);
    assert_true(momentum > gradients / 2);
    assert_true(count_of(kept, "weight", &first) > 0); /* biases, which begin at 0 */
    cJSON_Delete(kept);
    if (!ab_subnormals_can_flush()) return;
    cJSON *flushed = train(AB_SUBNORMALS_FLUSHED);
    assert_int_equal(count_of(flushed, "momentum_buffer", &first), 0);
    cJSON_Delete(flushed);
}

/* ---- modes ----------------------------------------------------------------------------------- */

/* What gradients of one tensor look like to the probes in a thread of that mode. */
static char *seen_in(ab_subnormals mode) {
    const ab_probe_tensor tensor = {"a.grad", "a", AB_ROLE_ACTIVATION_GRADIENT, true};
    const ab_probe_setup setup = {
        .threads = 1, .tensor = &tensor, .tensors = 1, .half = &ab_format_bf16, .steps = 1, .every = 1};
    ab_probe_set *set = NULL;
    assert_int_equal(ab_probe_set_create(ab_probes_standard(), NULL, &set), AB_OK);
    assert_int_equal(ab_probe_set_start(set, &setup), AB_OK);
    ab_subnormals_set(mode);
    ab_observer *observer = ab_probe_set_observer(set);
    for (int64_t first = 0; first < 0x300; first += 0x100) /* zeros and subnormals alone */
        observer->see(observer, 0, 0, values() + first, 0x100);
    ab_probe_set_step_end(set, 0);
    cJSON *report = pt_report(pt_write_set, set);
    assert_int_equal(ab_subnormals_set(AB_SUBNORMALS_KEPT), mode); /* as it was */
    ab_probe_set_destroy(set);
    char *text = cJSON_PrintUnformatted(report);
    cJSON_Delete(report);
    assert_non_null(text);
    return text;
}

static void probes_count_the_same_where_training_flushes(void **state) {
    (void)state;
    if (!ab_subnormals_can_flush()) skip();
    char *kept = seen_in(AB_SUBNORMALS_KEPT), *flushed = seen_in(AB_SUBNORMALS_FLUSHED);
    assert_string_equal(flushed, kept);
    cJSON_free(kept);
    cJSON_free(flushed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_the_c_librarys_in_any_cut),
        cmocka_unit_test(gradients_of_activations_count_as_they_are_read),
        cmocka_unit_test(a_training_shows_the_operands_of_its_updates),
        cmocka_unit_test(probes_count_the_same_where_training_flushes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
