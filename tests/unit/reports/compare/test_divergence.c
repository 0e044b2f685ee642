/* Traces and first divergence: a fault planted in what an op wrote is found in that very tensor, sound levels
 * differ by rounding only, and the projections tell distances. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include "kernels/format/convert.h"
#include "reports/compare/divergence.h"
#include "reports/record/json.h"

#include <math.h>

static const ab_probe_kind *tracer(void) { return pt_probe("trace"); }

/* ---- planting -------------------------------------------------------------------------------- */

/* Stands between the cell and the probe: once `target` has run in step `at_step`, what it wrote is multiplied
 * by `factor`. */
typedef struct planter {
    ab_observer observer; /* first */
    void *probe;
    const char *target; /* NULL: no fault */
    bool backward;
    int64_t at_step, step;
    float factor;
} planter;

static void ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static void begin(void *context, int64_t step, double loss_scale) {
    planter *p = context;
    p->step = step;
    tracer()->begin(p->probe, step, loss_scale);
}

static void multiply(const ab_tensor *tensor, float factor) {
    int64_t n = ab_tensor_count(tensor);
    float *values = malloc((size_t)n * sizeof *values);
    assert_non_null(values);
    const float *seen = ab_view_f32(tensor, values);
    if (seen != values) memcpy(values, seen, (size_t)n * sizeof *values);
    for (int64_t i = 0; i < n; i++) values[i] *= factor;
    ab_narrow(tensor->data, tensor->format, values, n);
    free(values);
}

static void ran(void *context, const ab_op_run *run) {
    planter *p = context;
    bool here = p->target && strcmp(run->name, p->target) == 0 && run->backward == p->backward &&
                p->step == p->at_step;
    if (here && !run->backward) multiply(run->io->out, p->factor);
    if (here && run->backward) multiply(run->io->dparam[0] ? run->io->dparam[0] : run->io->din[0], p->factor);
    tracer()->ran(p->probe, run);
}

enum { STEPS = 3 };

/* A cell of a document, as a record has it. */
static cJSON *cell_of(const ab_cell_config *config, const char *level, const char *mode, const char *id,
                      planter *p) {
    ab_cell *cell = pt_cell(config);
    const ab_probe_setup setup = {.threads = 1, .half = config->policy.half};
    const ab_watch watch = {.context = p, .begin = begin, .ran = ran};
    p->observer.see = ignore;
    assert_int_equal(tracer()->create(&setup, &p->probe), AB_OK);
    ab_cell_watch(cell, &watch);
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, &p->observer, &result), AB_OK);
        tracer()->step_end(p->probe, i);
    }
    cJSON *about = cJSON_CreateObject();
    cJSON_AddStringToObject(about, "id", id);
    cJSON_AddStringToObject(about, "level", level);
    cJSON_AddStringToObject(about, "model", "tiny");
    cJSON_AddStringToObject(about, "device", "cpu");
    cJSON_AddStringToObject(about, "math_mode", mode);
    cJSON_AddNumberToObject(about, "seed", 1);
    cJSON_AddItemToObject(about, "twin",
                          config->perturbation ? cJSON_CreateString("ulp") : cJSON_CreateNull());
    cJSON_AddItemToObject(about, "probes", pt_report(tracer()->report, p->probe));
    tracer()->destroy(p->probe);
    ab_cell_destroy(cell);
    return about;
}

/* O0, its twin, and a cell of `level` with a fault. */
static cJSON *document(const ab_net *net, const char *level, const ab_format *half, planter fault) {
    planter none = {.target = NULL};
    ab_cell_config plain = pt_config(net, "O0", half, "sgd", NULL), twin = plain;
    ab_cell_config candidate = pt_config(net, level, half, "sgd", NULL);
    cJSON *root = cJSON_CreateObject(), *cells = cJSON_AddArrayToObject(root, "cells");
    const char *mode = strcmp(level, "O0") == 0 ? "ieee_fp32" : half == &ab_format_fp16 ? "fp16" : "bf16";
    twin.perturbation = AB_PERTURB_ULP;
    cJSON_AddItemToArray(cells, cell_of(&plain, "O0", "ieee_fp32", "base", &none));
    cJSON_AddItemToArray(cells, cell_of(&twin, "O0", "ieee_fp32", "twin", &none));
    cJSON_AddItemToArray(cells,
                         cell_of(&candidate, strcmp(level, "O0") == 0 ? "X" : level, mode, "new", &fault));
    return root;
}

static cJSON *divergence(const ab_net *net, const char *level, const ab_format *half, planter fault) {
    cJSON *root = document(net, level, half, fault), *result = NULL;
    if (ab_divergence(root, NULL, &result) != AB_OK) fail_msg("%s", ab_error_message());
    assert_int_equal(cJSON_GetArraySize(result), 1);
    assert_true(ab_json_is_true(result->child, "calibrated"));
    cJSON_Delete(root);
    return result;
}

static void expect_tensor(cJSON *result, const char *tensor, int step) {
    const cJSON *entry = result->child;
    if (strcmp(ab_json_text(entry, "tensor", ""), tensor) != 0 || ab_json_number(entry, "step", -1) != step)
        fail_msg("expected %s at step %d, found: %s", tensor, step, ab_json_text(entry, "text", ""));
    cJSON_Delete(result);
}

static const char *const ops[] = {"conv1", "bn1", "relu1", "conv2", "sum", "pool", "flat", "fc"};

static void a_fault_in_any_op_is_found_in_its_output(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    for (size_t o = 0; o < AB_COUNT_OF(ops); o++) {
        char tensor[64];
        snprintf(tensor, sizeof tensor, "%s.out", ops[o]);
        for (int step = 0; step < 2; step++) {
            planter fault = {.target = ops[o], .at_step = step, .factor = 1.0005F};
            expect_tensor(divergence(net, "O0", &ab_format_fp16, fault), tensor, step);
            fault.factor = 1.2F;
            expect_tensor(divergence(net, "O2", &ab_format_fp16, fault), tensor, step);
        }
        planter fault = {.target = ops[o], .at_step = 0, .factor = 1.9F};
        expect_tensor(divergence(net, "O3", &ab_format_bf16, fault), tensor, 0);
    }
    ab_net_free(net);
}

static void a_fault_in_a_gradient_is_found_in_that_gradient(void **state) {
    (void)state;
    static const char *const tensors[][2] = {{"conv1", "conv1.weight.grad"},
                                             {"conv2", "conv2.weight.grad"},
                                             {"fc", "fc.weight.grad"},
                                             {"pool", "pool.in.grad"}};
    ab_net *net = pt_net(pt_ops);
    for (size_t i = 0; i < AB_COUNT_OF(tensors); i++) {
        planter fault = {.target = tensors[i][0], .backward = true, .at_step = 1, .factor = 1.8F};
        expect_tensor(divergence(net, "O2", &ab_format_fp16, fault), tensors[i][1], 1);
        fault.factor = 1.02F;
        expect_tensor(divergence(net, "O0", &ab_format_fp16, fault), tensors[i][1], 1);
    }
    ab_net_free(net);
}

static void sound_levels_differ_by_rounding_only(void **state) {
    (void)state;
    const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 1; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t h = 0; h < AB_COUNT_OF(halves); h++) {
            cJSON *result = divergence(net, pt_levels[l], halves[h], (planter){.target = NULL});
            if (strcmp(ab_json_text(result->child, "verdict", ""), "rounding") != 0)
                fail_msg("%s: %s", pt_levels[l], ab_json_text(result->child, "text", ""));
            assert_true(ab_json_number(result->child, "largest_share", 1) < 0.6);
            cJSON_Delete(result);
        }
    cJSON *same = divergence(net, "O0", &ab_format_fp16, (planter){.target = NULL});
    assert_string_equal(ab_json_text(same->child, "verdict", ""), "identical");
    cJSON_Delete(same);
    ab_net_free(net);
}

/* The distance by projections against the distance of the values. */
static void projections_tell_the_distance_within_a_factor_of_two(void **state) {
    (void)state;
    enum { N = 1000 };
    float x[N], y[N];
    const ab_shape shape = {.ndim = 1, .dim = {N}};
    double sum = 0, squares = 0, projected = 0;
    for (int i = 0; i < N; i++) {
        x[i] = ab_rng_normal(3, AB_RNG_SAMPLE, 0, (uint64_t)i);
        y[i] = x[i] * (1 + 0.01F * ab_rng_normal(3, AB_RNG_SAMPLE, 1, (uint64_t)i));
        sum += pow((double)x[i] - (double)y[i], 2);
        squares += pow((double)x[i], 2);
    }
    cJSON *report[2];
    for (int which = 0; which < 2; which++) {
        void *probe;
        ab_tensor tensor = {.data = which ? y : x, .shape = shape, .format = &ab_format_fp32};
        ab_op_io io = {.in = {&tensor}, .out = &tensor};
        const ab_op_run run = {.number = 0, .name = "op", .op = &ab_op_relu, .io = &io};
        const ab_probe_setup setup = {.threads = 1};
        assert_int_equal(tracer()->create(&setup, &probe), AB_OK);
        tracer()->begin(probe, 0, 1);
        tracer()->ran(probe, &run);
        tracer()->step_end(probe, 0);
        report[which] = pt_report(tracer()->report, probe);
        tracer()->destroy(probe);
    }
    const cJSON *digest[2];
    for (int which = 0; which < 2; which++)
        digest[which] = pt_get(pt_get(pt_get(report[which], "trace"), "tensors")->child, "digests")->child;
    const cJSON *b = pt_get(digest[1], "projections")->child;
    for (const cJSON *a = pt_get(digest[0], "projections")->child; a; a = a->next, b = b->next)
        projected += pow(a->valuedouble - b->valuedouble, 2) / 8;
    assert_true(sqrt(projected / sum) > 0.5 && sqrt(projected / sum) < 2);
    assert_true(fabs(pt_number(digest[0], "norm") / sqrt(squares) - 1) < 1e-12);
    assert_string_not_equal(pt_text(digest[0], "bits"), pt_text(digest[1], "bits"));
    cJSON_Delete(report[0]);
    cJSON_Delete(report[1]);
}

static void without_traces_it_says_how_to_get_them(void **state) {
    (void)state;
    cJSON *root = cJSON_Parse("{\"cells\": [{\"id\": \"a\", \"level\": \"O0\"}]}"), *result = NULL;
    assert_int_equal(ab_divergence(root, NULL, &result), AB_INPUT);
    assert_non_null(strstr(ab_error_message(), "ampbench run --trace"));
    cJSON_Delete(root);
}

static int start_lanes(void **state) {
    (void)state;
    return ab_parallel_start(1) == AB_OK ? 0 : -1;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_in_any_op_is_found_in_its_output),
        cmocka_unit_test(a_fault_in_a_gradient_is_found_in_that_gradient),
        cmocka_unit_test(sound_levels_differ_by_rounding_only),
        cmocka_unit_test(projections_tell_the_distance_within_a_factor_of_two),
        cmocka_unit_test(without_traces_it_says_how_to_get_them),
    };
    return cmocka_run_group_tests(tests, start_lanes, NULL);
}
