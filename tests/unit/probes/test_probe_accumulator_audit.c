/* The accumulator audit: accumulators with known limits, an exact sum checked by whole numbers, and dot
 * products that are really those of the ops. */
#define _POSIX_C_SOURCE 200809L
#include "tests/unit/probe_testing.h"

#include "kernels/format/convert.h"
#include "probes/operands.h"

#include <math.h>

static const ab_accumulator *called(const char *name) {
    for (int i = 0; i < ab_accumulator_count(); i++)
        if (strcmp(ab_accumulator_at(i)->name, name) == 0) return ab_accumulator_at(i);
    fail_msg("no accumulator is called %s", name);
    return NULL;
}

/* ---- accumulators ---------------------------------------------------------------------------- */

enum { MANY = 20000 };
static float ones[MANY], twos[MANY];

static void the_sum_of_ones_sticks_where_the_format_ends(void **state) {
    (void)state;
    static const struct {
        const char *name;
        double sum;
    } cases[] = {{"fp16", 2048}, {"bf16", 256}, {"14-bit", 16384}, {"fp32", MANY}, {"chunk128", MANY}};
    for (int i = 0; i < MANY; i++) ones[i] = 1;
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
        ab_dot dot = ab_dot_in(called(cases[c].name), ones, ones, MANY);
        assert_true(dot.sum == cases[c].sum);
        assert_int_equal(dot.addends, MANY);
        assert_int_equal(dot.swamped, MANY - (int64_t)cases[c].sum);
    }
    assert_true(ab_dot_exact(ones, ones, MANY) == MANY);
}

static void zeros_are_no_addends_and_sums_overflow(void **state) {
    (void)state;
    for (int i = 0; i < MANY; i++) {
        ones[i] = i % 2 ? 0 : 1;
        twos[i] = 1024;
    }
    ab_dot dot = ab_dot_in(called("fp16"), ones, twos, 200);
    assert_true(isinf(dot.sum)); /* 100 * 1024 */
    assert_int_equal(dot.addends, 100);
    assert_true(ab_dot_in(called("bf16"), ones, twos, 200).sum == 100 * 1024);
}

/* Whole numbers times powers of two that cancel but for the last bits: a sum in double would lose them. */
static void the_exact_sum_makes_no_error(void **state) {
    (void)state;
    enum { N = 64 };
    float a[N], b[N];
    for (uint32_t run = 0; run < 200; run++) {
        int64_t sum = 0;
        for (uint64_t i = 0; i < N; i++) {
            int64_t x = (int64_t)ab_rng_below(5, AB_RNG_SAMPLE, run, 2 * i, 1 << 24) - (1 << 23);
            int64_t y = (int64_t)ab_rng_below(5, AB_RNG_SAMPLE, run, 2 * i + 1, 1 << 24) - (1 << 23);
            a[i] = ldexpf((float)x, -20);
            b[i] = ldexpf((float)y, -30);
            sum += x * y;
        }
        assert_true(fabs(ab_dot_exact(a, b, N) - ldexp((double)sum, -50)) <=
                    ldexp(fabs((double)sum), -50 - 52));
    }
    const float wide[] = {0x1p100f, 1.0f, 0x1p-140f, -0x1p100f, 0x1p-149f, -1.0f};
    const float by[] = {0x1p27f, 0x1p-20f, 0x1p-9f, 0x1p27f, 0x1p-149f, 0x1p-20f};
    double tiny = ldexp(1, -149) + ldexp(1, -298); /* all that is left */
    assert_true(ab_dot_exact(wide, by, 6) == tiny);
    const float huge[] = {3.4028235e38f, 3.4028235e38f}, minus[] = {-3.4028235e38f, -3.4028235e38f};
    assert_true(ab_dot_exact(huge, minus, 2) == -2 * (double)huge[0] * (double)huge[0]);
}

/* A running sum in a format, against the definition of rounding spelled out in double. */
static void a_rounded_sum_is_rounded_at_every_product(void **state) {
    (void)state;
    enum { N = 1000 };
    float a[N], b[N];
    const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    for (uint64_t i = 0; i < N; i++) {
        a[i] = ab_rng_normal(6, AB_RNG_SAMPLE, 0, i);
        b[i] = ab_rng_normal(6, AB_RNG_SAMPLE, 1, i);
    }
    double half = 0, part = 0;
    float sum32 = 0, promoted = 0;
    for (int i = 0; i < N; i++) {
        half = ab_format_round(&ab_format_bf16, &nearest, half + (double)a[i] * (double)b[i]);
        sum32 = (float)((double)sum32 + (double)a[i] * (double)b[i]);
        int exponent;
        part = frexp(part + (double)a[i] * (double)b[i], &exponent);
        part = ldexp(nearbyint(ldexp(part, 14)), exponent - 14);
        if (i % 128 == 127) {
            promoted += (float)part;
            part = 0;
        }
    }
    assert_true(ab_dot_in(called("bf16"), a, b, N).sum == half);
    assert_true(ab_dot_in(called("fp32"), a, b, N).sum == (double)sum32);
    assert_true(ab_dot_in(called("chunk128"), a, b, N).sum == (double)(promoted + (float)part));
}

/* ---- in cells -------------------------------------------------------------------------------- */

static const ab_probe_kind *audit(void) { return pt_probe("accumulator_audit"); }

/* Runs a network's ops and keeps, per op and pass, what the audit was told. */
static cJSON *audit_of(const char *ops, const char *level, int steps) {
    ab_net *net = pt_net(ops);
    ab_cell_config config = pt_config(net, level, &ab_format_fp16, "sgd", NULL);
    ab_cell *cell = pt_cell(&config);
    pt_probing *p = calloc(1, sizeof *p);
    int index = -1;
    assert_non_null(p);
    assert_int_equal(ab_probe_find("accumulator_audit", &index), AB_OK);
    pt_start(p, (uint64_t)1 << index, cell, &config, &ab_format_fp16);
    for (int i = 0; i < steps; i++) pt_step(p, cell);
    cJSON *report = pt_set_report(p);
    ab_probe_set_destroy(p->set);
    free(p);
    ab_cell_destroy(cell);
    ab_net_free(net);
    return report;
}

static const cJSON *pass_of(const cJSON *report, const char *layer, const char *pass) {
    const cJSON *item = NULL;
    cJSON_ArrayForEach(item, pt_get(report, "accumulator_audit")) {
        if (strcmp(pt_text(item, "layer"), layer) == 0 && strcmp(pt_text(item, "pass"), pass) == 0)
            return item;
    }
    fail_msg("no %s pass of %s", pass, layer);
    return NULL;
}

static void every_pass_of_every_product_is_audited(void **state) {
    (void)state;
    cJSON *report = audit_of(pt_ops, "O2", 3);
    assert_int_equal(cJSON_GetArraySize(pt_get(report, "accumulator_audit")),
                     8); /* conv1 has no input gradient */
    static const struct {
        const char *layer, *pass;
        int products;
    } cases[] = {{"conv1", "forward", 9},
                 {"conv1", "backward_weights", PT_BATCH * 64},
                 {"conv2", "forward", 36},
                 {"conv2", "backward_data", 36},
                 {"conv2", "backward_weights", PT_BATCH * 64},
                 {"fc", "forward", 64},
                 {"fc", "backward_data", 3},
                 {"fc", "backward_weights", PT_BATCH}};
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
        const cJSON *entry = pass_of(report, cases[c].layer, cases[c].pass);
        assert_int_equal(pt_integer(entry, "products"), cases[c].products);
        assert_true(pt_number(entry, "bound_worst") == cases[c].products);
        assert_in_range(pt_integer(entry, "samples"), 1, 3 * 8);
        const cJSON *list = pt_get(entry, "accumulators"), *item = NULL;
        assert_int_equal(cJSON_GetArraySize(list), ab_accumulator_count());
        cJSON_ArrayForEach(item, list) {
            assert_int_equal(pt_integer(item, "overflowed"), 0);
            assert_true(pt_number(item, "error_max") <= pt_number(entry, "bound_worst"));
            assert_true(pt_number(item, "error_rms") <= pt_number(item, "error_max"));
            assert_true(pt_integer(item, "swamped") <= pt_integer(item, "addends"));
        }
    }
    cJSON_Delete(report);
}

/* The probe hears of one op, made by hand. */
static void hear(void *probe, const ab_op *op, ab_op_io *io, bool backward) {
    const ab_op_run run = {.number = 3, .name = "hand", .op = op, .io = io, .backward = backward};
    audit()->ran(probe, &run);
}

static ab_tensor tensor_of(float *data, int ndim, int64_t a, int64_t b, int64_t c, int64_t d) {
    return (ab_tensor){data, {ndim, {a, b, c, d}}, &ab_format_fp32, &ab_device_cpu, -1};
}

static void a_layer_of_ones_sticks_in_the_report(void **state) {
    (void)state;
    enum { K = 4096 };
    static float x[K], w[K], y[1];
    for (int i = 0; i < K; i++) x[i] = w[i] = 1;
    ab_tensor in = tensor_of(x, 2, 1, K, 0, 0), weight = tensor_of(w, 2, 1, K, 0, 0),
              out = tensor_of(y, 2, 1, 1, 0, 0);
    ab_op_io io = {.in = {&in}, .param = {&weight}, .out = &out};
    void *probe = NULL;
    const ab_probe_setup setup = {.threads = 1, .half = &ab_format_fp16, .seed = 1};
    assert_int_equal(audit()->create(&setup, &probe), AB_OK);
    audit()->begin(probe, 0, 1);
    hear(probe, &ab_op_linear, &io, false);
    cJSON *report = pt_report(audit()->report, probe);
    const cJSON *entry = pass_of(report, "hand", "forward"), *list = pt_get(entry, "accumulators");
    int64_t samples = pt_integer(entry, "samples");
    static const struct {
        const char *name;
        int64_t swamped;
        double error; /* (4096 - sum) / (4096 u) */
    } cases[] = {{"fp16", K - 2048, 0.5 * 0x1p11},
                 {"bf16", K - 256, 0.9375 * 0x1p8},
                 {"fp32", 0, 0},
                 {"14-bit", 0, 0}};
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
        const cJSON *found = pt_find(list, "name", cases[c].name);
        assert_int_equal(pt_integer(found, "addends"), samples * K);
        assert_int_equal(pt_integer(found, "swamped"), samples * cases[c].swamped);
        assert_true(pt_number(found, "error_rms") == cases[c].error);
        assert_true(pt_number(found, "error_max") == cases[c].error);
    }
    cJSON_Delete(report);
    audit()->destroy(probe);
}

/* ---- the right dot products ------------------------------------------------------------------ */

/* A convolution of square images: stride, padding, dilation and groups. */
typedef struct shape {
    int64_t batch, in, channels, out, out_channels, kernel, stride, padding, dilation, groups;
} shape;

typedef struct tensors {
    float x[4096], w[4096], dy[4096];
    double y[4096], dx[4096], dw[4096];
} tensors;

/* All products of the definition, added where they belong. */
static void convolve(const shape *s, tensors *t) {
    int64_t gi = s->channels / s->groups, go = s->out_channels / s->groups;
    for (int64_t place = 0; place < s->batch * s->out * s->out; place++)
        for (int64_t oc = 0; oc < s->out_channels; oc++)
            for (int64_t tap = 0; tap < gi * s->kernel * s->kernel; tap++) {
                int64_t ic = tap / (s->kernel * s->kernel), ky = tap / s->kernel % s->kernel,
                        kx = tap % s->kernel;
                int64_t oy = place / s->out % s->out, ox = place % s->out, image = place / (s->out * s->out);
                int64_t iy = oy * s->stride - s->padding + ky * s->dilation;
                int64_t ix = ox * s->stride - s->padding + kx * s->dilation;
                if (iy < 0 || ix < 0 || iy >= s->in || ix >= s->in) continue;
                int64_t out = place * s->out_channels + oc;
                int64_t in = ((image * s->in + iy) * s->in + ix) * s->channels + oc / go * gi + ic;
                int64_t weight = oc * gi * s->kernel * s->kernel + tap;
                t->y[out] += (double)t->x[in] * (double)t->w[weight];
                t->dx[in] += (double)t->dy[out] * (double)t->w[weight];
                t->dw[weight] += (double)t->dy[out] * (double)t->x[in];
            }
}

/* Whole numbers: sums are exact. */
static void fill(float *values, int64_t n, uint32_t step) {
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)ab_rng_below(8, AB_RNG_SAMPLE, step, (uint64_t)i, 2001) - 1000;
}

static void dots_are(const ab_op_run *run, ab_dot_pass pass, const double *expected, int64_t results) {
    static float a[4096], b[4096];
    ab_operands operands;
    assert_true(ab_operands_of(run, pass, &operands));
    assert_int_equal(operands.results, results);
    assert_in_range(operands.products, 1, 4096);
    for (int64_t i = 0; i < results; i++) {
        int64_t n = ab_operands_gather(&operands, i, a, b);
        double sum = 0;
        assert_in_range(n, 0, operands.products);
        for (int64_t k = 0; k < n; k++) sum += (double)a[k] * (double)b[k];
        assert_true(sum == expected[i]);
    }
}

static void gathers(const ab_op *op, const void *attrs, const shape *s) {
    tensors *t = calloc(1, sizeof *t);
    assert_non_null(t);
    int64_t ins = s->batch * s->in * s->in * s->channels, outs = s->batch * s->out * s->out * s->out_channels;
    int64_t weights = s->out_channels * s->channels / s->groups * s->kernel * s->kernel;
    assert_true(ins <= 4096 && outs <= 4096 && weights <= 4096);
    fill(t->x, ins, 0);
    fill(t->w, weights, 1);
    fill(t->dy, outs, 2);
    convolve(s, t);
    int ndim = op == &ab_op_conv2d ? 4 : 2;
    int64_t kernel = ndim == 4 ? s->kernel : 0, group_in = s->channels / s->groups;
    ab_tensor in = tensor_of(t->x, ndim, s->batch, ndim == 4 ? s->in : s->channels, s->in, s->channels);
    ab_tensor out =
        tensor_of(NULL, ndim, s->batch, ndim == 4 ? s->out : s->out_channels, s->out, s->out_channels);
    ab_tensor weight = tensor_of(t->w, ndim, s->out_channels, group_in, kernel, kernel), dout = out;
    dout.data = t->dy;
    ab_op_io io = {.attrs = attrs,
                   .in = {&in},
                   .param = {&weight},
                   .out = &out,
                   .dout = &dout,
                   .din = {&in},
                   .dparam = {&weight}};
    ab_op_run run = {.name = "hand", .op = op, .io = &io};
    dots_are(&run, AB_DOT_FORWARD, t->y, outs);
    run.backward = true;
    dots_are(&run, AB_DOT_BACKWARD_DATA, t->dx, ins);
    dots_are(&run, AB_DOT_BACKWARD_WEIGHTS, t->dw, weights);
    ab_operands none;
    assert_false(ab_operands_of(&run, AB_DOT_FORWARD, &none));
    io.din[0] = io.dparam[0] = NULL;
    assert_false(ab_operands_of(&run, AB_DOT_BACKWARD_DATA, &none));
    assert_false(ab_operands_of(&run, AB_DOT_BACKWARD_WEIGHTS, &none));
    free(t);
}

/* Attributes by the op's own table, as a network file would set them. */
static void set_attr(void *attrs, const char *name, int64_t value) {
    for (const ab_attr *attr = ab_op_conv2d.attrs; attr->name; attr++) {
        if (strcmp(attr->name, name) != 0) continue;
        for (int i = 0; i < (attr->kind == AB_ATTR_PAIR ? 2 : 1); i++)
            memcpy((char *)attrs + attr->offset + (size_t)i * sizeof value, &value, sizeof value);
    }
}

static void operands_are_those_of_the_definition(void **state) {
    (void)state;
    static const shape shapes[] = {{2, 7, 4, 3, 6, 3, 2, 1, 2, 2},
                                   {3, 5, 2, 5, 3, 3, 1, 1, 1, 1},
                                   {1, 6, 3, 2, 4, 2, 3, 0, 1, 1},
                                   {2, 4, 6, 4, 6, 1, 1, 0, 1, 6}};
    for (size_t i = 0; i < AB_COUNT_OF(shapes); i++) {
        const shape *s = &shapes[i];
        int64_t attrs[32] = {0};
        assert_true(ab_op_conv2d.attrs_bytes <= sizeof attrs);
        set_attr(attrs, "out_channels", s->out_channels);
        set_attr(attrs, "kernel_size", s->kernel);
        set_attr(attrs, "stride", s->stride);
        set_attr(attrs, "padding", s->padding);
        set_attr(attrs, "dilation", s->dilation);
        set_attr(attrs, "groups", s->groups);
        gathers(&ab_op_conv2d, attrs, s);
    }
    const shape linear = {5, 1, 17, 1, 9, 1, 1, 0, 1, 1};
    gathers(&ab_op_linear, NULL, &linear);
    ab_op_io io = {.attrs = NULL};
    const ab_op_run relu = {.name = "relu", .op = &ab_op_relu, .io = &io};
    ab_operands none;
    assert_false(ab_operands_of(&relu, AB_DOT_FORWARD, &none));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_sum_of_ones_sticks_where_the_format_ends),
        cmocka_unit_test(zeros_are_no_addends_and_sums_overflow),
        cmocka_unit_test(the_exact_sum_makes_no_error),
        cmocka_unit_test(a_rounded_sum_is_rounded_at_every_product),
        cmocka_unit_test(every_pass_of_every_product_is_audited),
        cmocka_unit_test(a_layer_of_ones_sticks_in_the_report),
        cmocka_unit_test(operands_are_those_of_the_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
