/* NaN provenance: a NaN planted in the output of every op in turn, at every level, is traced back to that op
 * at the loss; and marking changes neither whether nor where values are NaN. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include "kernels/format/convert.h"

#include <math.h>

static const ab_probe_kind *provenance(void) { return pt_probe("nan_provenance"); }

/* ---- planting -------------------------------------------------------------------------------- */

/* Stands between the cell and the probe: after op `target` has run it puts NaNs into what it wrote. */
typedef struct planter {
    ab_observer observer; /* first */
    void *probe;
    const char *target;
    bool backward;
    int64_t at_step, step;
} planter;

static void ignore(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static void begin(void *context, int64_t step, double loss_scale) {
    planter *p = context;
    p->step = step;
    provenance()->begin(p->probe, step, loss_scale);
}

static void put_nan(const ab_tensor *tensor) {
    int64_t n = ab_tensor_count(tensor);
    const float nan = NAN;
    for (int64_t i = n / 3; i < n / 3 + 3 && i < n; i++)
        ab_narrow((char *)tensor->data + ab_format_bytes(tensor->format, i), tensor->format, &nan, 1);
}

static void ran(void *context, const ab_op_run *run) {
    planter *p = context;
    bool here = strcmp(run->name, p->target) == 0 && run->backward == p->backward && p->step == p->at_step;
    if (here && !run->backward) put_nan(run->io->out);
    if (here && run->backward) put_nan(run->io->dparam[0] ? run->io->dparam[0] : run->io->din[0]);
    provenance()->ran(p->probe, run);
}

/* Runs `steps` steps and returns what the probe says. */
static cJSON *report_of(const ab_cell_config *config, planter *p, int steps, float *loss) {
    ab_cell *cell = pt_cell(config);
    const ab_probe_setup setup = {.threads = 1, .half = config->policy.half};
    const ab_watch watch = {.context = p, .begin = begin, .ran = ran};
    p->observer.see = ignore;
    assert_int_equal(provenance()->create(&setup, &p->probe), AB_OK);
    ab_cell_watch(cell, &watch);
    for (int i = 0; i < steps; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, &p->observer, &result), AB_OK);
        if (loss) loss[i] = result.loss;
    }
    cJSON *report = pt_report(provenance()->report, p->probe);
    provenance()->destroy(p->probe);
    ab_cell_destroy(cell);
    return report;
}

static const cJSON *found(const cJSON *report) { return pt_get(report, "nan_provenance"); }

static const char *const all_ops[] = {"conv1", "bn1", "relu1", "conv2", "sum", "pool", "flat", "fc", "loss"};

static void a_nan_of_any_op_is_read_back_at_the_loss(void **state) {
    (void)state;
    const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    static const char *const types[] = {"conv2d",     "batch_norm2d", "relu",   "conv2d",       "add",
                                        "max_pool2d", "flatten",      "linear", "cross_entropy"};
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t h = 0; h < AB_COUNT_OF(halves); h++)
            for (size_t o = 0; o < AB_COUNT_OF(all_ops); o++) {
                ab_cell_config config = pt_config(net, pt_levels[l], halves[h], "sgd", NULL);
                planter p = {.target = all_ops[o], .at_step = 2};
                cJSON *report = report_of(&config, &p, 3, NULL);
                const cJSON *nan = found(report), *first = pt_get(nan, "first_loss");
                assert_int_equal(pt_integer(nan, "nan_losses"), 1);
                assert_int_equal(pt_integer(nan, "traced_losses"), 1);
                assert_string_equal(pt_text(first, "op"), all_ops[o]);
                assert_int_equal(pt_integer(first, "step"), 2);
                assert_int_equal(pt_integer(first, "origin_step"), 2);
                const cJSON *origin = cJSON_GetArrayItem(pt_get(nan, "origins"), 0);
                assert_string_equal(pt_text(origin, "op"), all_ops[o]);
                assert_string_equal(pt_text(origin, "type"), types[o]);
                assert_string_equal(pt_text(origin, "pass"), "forward");
                assert_string_equal(pt_text(origin, "where"), "output");
                cJSON_Delete(report);
            }
    ab_net_free(net);
}

/* A NaN in a gradient goes into a weight and from there, in the next step, into the loss. */
static void a_nan_of_a_gradient_is_read_back_a_step_later(void **state) {
    (void)state;
    static const char *const ops[] = {"conv1", "conv2", "fc"};
    ab_net *net = pt_net(pt_ops);
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (size_t o = 0; o < AB_COUNT_OF(ops); o++) {
            ab_cell_config config = pt_config(net, pt_levels[l], &ab_format_fp16, "sgd", "loss_scale=1");
            planter p = {.target = ops[o], .backward = true, .at_step = 1};
            cJSON *report = report_of(&config, &p, 4, NULL);
            const cJSON *nan = found(report), *first = pt_get(nan, "first_loss");
            assert_int_equal(pt_integer(nan, "nan_losses"), 2);
            assert_string_equal(pt_text(first, "op"), ops[o]);
            assert_int_equal(pt_integer(first, "step"), 2);
            assert_int_equal(pt_integer(first, "origin_step"), 1);
            const cJSON *origin = cJSON_GetArrayItem(pt_get(nan, "origins"), 0);
            assert_string_equal(pt_text(origin, "pass"), "backward");
            assert_int_equal(pt_integer(origin, "first_step"), 1);
            cJSON_Delete(report);
        }
    ab_net_free(net);
}

static void a_clean_run_has_nothing_to_tell(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O2", &ab_format_fp16, "sgd", NULL);
    planter p = {.target = "nobody"};
    cJSON *report = report_of(&config, &p, 3, NULL);
    assert_int_equal(pt_integer(found(report), "nan_losses"), 0);
    assert_true(pt_is_null(found(report), "first_loss"));
    assert_int_equal(cJSON_GetArraySize(pt_get(found(report), "origins")), 0);
    cJSON_Delete(report);
    ab_net_free(net);
}

/* Weights that no op has made NaN (a file, an unprobed step): the first op that reads them is named, and what
 * it read. */
static void a_nan_that_was_there_before_is_said_to_be_in_the_parameter(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    ab_cell_config config = pt_config(net, "O3", &ab_format_fp16, "sgd", "loss_scale=1");
    config.optim.lr = (double)INFINITY; /* weights become infinite, and NaN in the step after */
    ab_cell *cell = pt_cell(&config);
    ab_step_result result;
    for (int i = 0; i < 2; i++) assert_int_equal(ab_cell_step(cell, NULL, &result), AB_OK);
    planter p = {.observer = {.see = ignore}, .target = "nobody"};
    const ab_probe_setup setup = {.threads = 1, .half = &ab_format_fp16};
    const ab_watch watch = {.context = &p, .begin = begin, .ran = ran};
    assert_int_equal(provenance()->create(&setup, &p.probe), AB_OK);
    ab_cell_watch(cell, &watch);
    assert_int_equal(ab_cell_step(cell, &p.observer, &result), AB_OK);
    assert_true(isnan(result.loss));
    cJSON *report = pt_report(provenance()->report, p.probe);
    const cJSON *origin = cJSON_GetArrayItem(pt_get(found(report), "origins"), 0);
    assert_string_equal(pt_text(origin, "op"), "conv1");
    assert_string_equal(pt_text(origin, "where"), "parameter");
    assert_string_equal(pt_text(pt_get(found(report), "first_loss"), "op"), "conv1");
    cJSON_Delete(report);
    provenance()->destroy(p.probe);
    ab_cell_destroy(cell);
    ab_net_free(net);
}

/* ---- one op by hand -------------------------------------------------------------------------- */

static uint32_t bits_of(const ab_tensor *tensor, int i) {
    uint32_t bits = 0;
    memcpy(&bits, (const char *)tensor->data + ab_format_bytes(tensor->format, i),
           ab_format_bytes(tensor->format, 1));
    return bits;
}

static void *started(int64_t step) {
    const ab_probe_setup setup = {.threads = 1, .half = &ab_format_fp16};
    void *probe = NULL;
    assert_int_equal(provenance()->create(&setup, &probe), AB_OK);
    provenance()->begin(probe, step, 1);
    return probe;
}

/* relu number `number` read `in` and wrote `out`. */
static void relu_ran(void *probe, int number, ab_tensor *in, ab_tensor *out) {
    ab_op_io io = {.in = {in}, .out = out};
    const ab_op_run run = {.number = number, .name = "relu", .op = &ab_op_relu, .io = &io};
    provenance()->ran(probe, &run);
}

/* Signs, infinities, numbers and the places of NaNs stay; quiet NaNs stay quiet; only payloads differ. */
static void only_payloads_of_nans_are_written(void **state) {
    (void)state;
    const ab_format *const formats[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    const float values[] = {1.0f, NAN, -0.0f, INFINITY, -NAN, -INFINITY, 0x1p-20f, NAN};
    enum { N = AB_COUNT_OF(values) };
    for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
        float clean[N] = {0}, memory[N], before[N];
        ab_narrow(memory, formats[f], values, N);
        memcpy(before, memory, sizeof memory);
        ab_tensor in = {clean, {1, {N}}, &ab_format_fp32, &ab_device_cpu, -1};
        ab_tensor out = {memory, {1, {N}}, formats[f], &ab_device_cpu, -1}, old = out;
        old.data = before;
        void *probe = started(7);
        relu_ran(probe, 5, &in, &out);
        uint32_t quiet = 1u << (formats[f]->precision - 2), payload = quiet - 1;
        for (int i = 0; i < (int)N; i++) {
            uint32_t now = bits_of(&out, i), then = bits_of(&old, i);
            if (!isnan(values[i])) {
                assert_int_equal(now, then);
                continue;
            }
            assert_int_equal(now & ~payload, then & ~payload);
            assert_true((now & quiet) != 0 && (now & payload) != 0);
        }
        provenance()->destroy(probe);
    }
}

/* Networks with more ops than a bf16 payload has numbers; long runs. */
static void numbers_and_steps_survive_in_the_payload(void **state) {
    (void)state;
    static const int numbers[] = {0, 1, 61, 62, 63, 64, 200, 503};
    static const int64_t steps[] = {0, 1, 8190, 8191, 8192, 1000000};
    for (size_t n = 0; n < AB_COUNT_OF(numbers); n++)
        for (size_t s = 0; s < AB_COUNT_OF(steps); s++) {
            float clean = 1, made = NAN, wide = 0, loss_value = 0;
            uint16_t half = 0;
            ab_tensor in = {&clean, {1, {1}}, &ab_format_fp32, &ab_device_cpu, -1}, out = in, low = in,
                      loss = in;
            out.data = &made;
            low.data = &half;
            low.format = &ab_format_fp16;
            loss.data = &loss_value;
            void *probe = started(steps[s]);
            relu_ran(probe, numbers[n], &in, &out);
            provenance()->begin(probe, steps[s] + 5, 1);
            loss_value = made;
            if (s % 2) { /* through a half format, which keeps the op's bits only */
                ab_narrow(&half, &ab_format_fp16, &made, 1);
                ab_widen(&wide, &half, &ab_format_fp16, 1);
                loss_value = wide;
            }
            ab_op_io io = {.in = {&low}, .out = &loss};
            if (!(s % 2)) io.in[0] = &out;
            const ab_op_run run = {.number = 504, .name = "loss", .op = &ab_op_cross_entropy, .io = &io};
            provenance()->ran(probe, &run);
            cJSON *report = pt_report(provenance()->report, probe);
            const cJSON *first = pt_get(found(report), "first_loss");
            assert_string_equal(pt_text(first, "op"), "relu");
            assert_int_equal(pt_integer(first, "step"), steps[s] + 5);
            assert_int_equal(pt_integer(first, "origin_step"), steps[s]);
            assert_int_equal(cJSON_GetArraySize(pt_get(found(report), "origins")), 1);
            cJSON_Delete(report);
            provenance()->destroy(probe);
        }
}

/* inf - inf: the op is the origin, and it had read an infinity. */
static void infinities_that_were_read_are_mentioned(void **state) {
    (void)state;
    float infinite[] = {INFINITY, 1}, made[] = {NAN, 1};
    ab_tensor in = {infinite, {1, {2}}, &ab_format_fp32, &ab_device_cpu, -1}, out = in;
    out.data = made;
    void *probe = started(0);
    relu_ran(probe, 0, &in, &out);
    cJSON *report = pt_report(provenance()->report, probe);
    const cJSON *origin = cJSON_GetArrayItem(pt_get(found(report), "origins"), 0);
    assert_true(cJSON_IsTrue(pt_get(origin, "read_infinity")));
    assert_string_equal(pt_text(origin, "where"), "output");
    cJSON_Delete(report);
    provenance()->destroy(probe);
}

static void an_op_that_only_passes_nans_on_is_no_origin(void **state) {
    (void)state;
    float clean[] = {0, 1}, a[] = {NAN, 1}, b[] = {0, 0};
    ab_tensor in = {clean, {1, {2}}, &ab_format_fp32, &ab_device_cpu, -1}, middle = in, out = in;
    middle.data = a;
    out.data = b;
    void *probe = started(3);
    relu_ran(probe, 1, &in, &middle);
    memcpy(b, a, sizeof b);
    b[1] = NAN; /* lost its payload on the way */
    relu_ran(probe, 2, &middle, &out);
    assert_int_equal(bits_of(&out, 0), bits_of(&middle, 0));
    assert_int_equal(bits_of(&out, 1), bits_of(&middle, 0)); /* given back */
    cJSON *report = pt_report(provenance()->report, probe);
    assert_int_equal(cJSON_GetArraySize(pt_get(found(report), "origins")), 1);
    cJSON_Delete(report);
    provenance()->destroy(probe);
}

static void losses_have_one_nan(void **state) {
    (void)state;
    ab_net *net = pt_net(pt_ops);
    float loss[2][3], canonical = NAN;
    static const char *const targets[] = {"fc", "loss"};
    for (int i = 0; i < 2; i++) {
        ab_cell_config config = pt_config(net, "O0", &ab_format_fp16, "sgd", NULL);
        planter p = {.target = targets[i], .at_step = 2};
        cJSON_Delete(report_of(&config, &p, 3, loss[i]));
        assert_memory_equal(&loss[i][2], &canonical, sizeof canonical);
    }
    ab_net_free(net);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nan_of_any_op_is_read_back_at_the_loss),
        cmocka_unit_test(a_nan_of_a_gradient_is_read_back_a_step_later),
        cmocka_unit_test(a_clean_run_has_nothing_to_tell),
        cmocka_unit_test(a_nan_that_was_there_before_is_said_to_be_in_the_parameter),
        cmocka_unit_test(only_payloads_of_nans_are_written),
        cmocka_unit_test(numbers_and_steps_survive_in_the_payload),
        cmocka_unit_test(infinities_that_were_read_are_mentioned),
        cmocka_unit_test(an_op_that_only_passes_nans_on_is_no_origin),
        cmocka_unit_test(losses_have_one_nan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
