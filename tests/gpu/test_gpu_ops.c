/* Parity: every op that the GPU has x fp32, fp16, bf16 x odd and even shapes, forward and backward.
 *
 * Element-wise ops and pools must give the CPU's bits. Products, batch norm and the loss are compared with
 * double-precision oracles, within a bound that follows from the number of terms K and the format: (K + 2) u
 * sum |terms|, and one rounding. An op that the GPU should have and lacks for these tensors is a failure, not
 * a skip. */
#include "gpu/gpu_testing.h"

#include "oracle/conv.h"

static const ab_op *op_called(const char *name) {
    const ab_op *op;
    assert_int_equal(ab_op_find(name, &op, NULL), AB_OK);
    return op;
}

static ab_exec training(ab_cpu_path path) { return (ab_exec){.training = true, .path = path}; }

static void must_have(gpu_run *g, const op_run *r) {
    if (!gpu_run_open(g, r))
        fail_msg("the GPU has no %s for %s: %s", r->op->name, r->in[0].format->name, ab_error_message());
}

/* ---- the CPU's bits -------------------------------------------------------------------------- */

static void same_bits(const op_run *r, const char *what, const ab_tensor *host, const ab_tensor *device) {
    if (!host || !device) return;
    ab_tensor there = gpu_result(device);
    for (int64_t i = 0; i < ab_tensor_count(host); i++) {
        double a = oracle_get(host, i), b = oracle_get(&there, i);
        if (!(a == b || (isnan(a) && isnan(b))))
            fail_msg("%s %s[%lld] in %s: %.9g on the CPU, %.9g on the GPU", r->op->name, what, (long long)i,
                     host->format->name, a, b);
    }
    free(there.data);
}

static void compare_bits(op_run *r) {
    gpu_run g;
    must_have(&g, r);
    op_run_both(r);
    gpu_run_both(&g);
    same_bits(r, "out", &r->out, g.io.out);
    for (int i = 0; i < r->inputs; i++) same_bits(r, "din", r->io.din[i], g.io.din[i]);
    gpu_run_close(&g);
}

static void set_pairs(const ab_op *op, op_attrs *attrs, int64_t kernel, int64_t stride, int64_t padding) {
    if (!op->attrs || strstr(op->name, "pool2d") == NULL) return;
    op_attrs_set(op, attrs, "kernel_size", (double)kernel, (double)kernel);
    op_attrs_set(op, attrs, "stride", (double)stride, (double)stride);
    op_attrs_set(op, attrs, "padding", (double)padding, (double)padding);
}

static void elementwise(const char *name, ab_shape shape, int inputs, op_formats formats) {
    const ab_op *op = op_called(name);
    op_run r;
    ab_shape in[2] = {shape, shape};
    op_attrs attrs = op_attrs_default(op);
    ab_exec exec = training(AB_PATH_REFERENCE);
    set_pairs(op, &attrs, 3, 2, 1);
    op_run_open(&r, op, attrs.bytes, in, inputs, formats, &exec);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_fill_all(&r, 7);
    compare_bits(&r);
    op_run_close(&r);
}

static void elementwise_ops_and_pools_give_the_cpus_bits(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int inputs;
    } ops[] = {{"relu", 1},       {"add", 2},
               {"sub", 2},        {"mul", 2},
               {"div", 2},        {"neg", 1},
               {"square", 1},     {"abs", 1},
               {"clamp", 1},      {"sqrt", 1},
               {"rsqrt", 1},      {"max_pool2d", 1},
               {"avg_pool2d", 1}, {"global_avg_pool", 1},
               {"flatten", 1}};
    static const ab_shape shapes[] = {
        {4, {2, 8, 8, 16}}, {4, {3, 7, 5, 3}}, {4, {1, 9, 4, 1}}, {4, {5, 16, 16, 33}}};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t o = 0; o < AB_COUNT_OF(ops); o++)
        for (size_t s = 0; s < AB_COUNT_OF(shapes); s++)
            for (int f = 0; f < formats; f++) elementwise(ops[o].name, shapes[s], ops[o].inputs, format[f]);
}

/* ---- products -------------------------------------------------------------------------------- */

typedef struct product_oracle {
    oracle_sums out, din, dweight, dbias;
    double *in, *weight, *bias, *dout;
} product_oracle;

static product_oracle product_of(const op_run *r, const oracle_conv *s) {
    product_oracle p = {oracle_sums_open(ab_tensor_count(&r->out)),
                        oracle_sums_open(ab_tensor_count(&r->in[0])),
                        oracle_sums_open(ab_tensor_count(&r->param[0])),
                        oracle_sums_open(s->oc),
                        oracle_values(&r->in[0]),
                        oracle_values(&r->param[0]),
                        r->params > 1 ? oracle_values(&r->param[1]) : NULL,
                        oracle_values(&r->dout)};
    for (int64_t i = 0; i < ab_tensor_count(&r->out); i++) {
        if (p.bias) oracle_add(p.out, i, p.bias[i % s->oc]);
        oracle_add(p.dbias, i % s->oc, p.dout[i]);
    }
    oracle_conv_all(s, p.in, p.weight, p.dout, p.out, p.din, p.dweight);
    return p;
}

static void product_close(product_oracle *p) {
    oracle_sums_close(&p->out);
    oracle_sums_close(&p->din);
    oracle_sums_close(&p->dweight);
    oracle_sums_close(&p->dbias);
    free(p->in);
    free(p->weight);
    free(p->bias);
    free(p->dout);
}

static void check_sums(const op_run *r, const char *what, const ab_tensor *device, oracle_sums exact,
                       int64_t terms) {
    ab_tensor there = gpu_result(device);
    oracle_sums_check(r, what, &there, exact, terms);
    free(there.data);
}

static void check_product(op_run *r, oracle_conv s) {
    gpu_run g;
    s.oh = r->out.shape.ndim == 4 ? r->out.shape.dim[1] : 1;
    s.ow = r->out.shape.ndim == 4 ? r->out.shape.dim[2] : 1;
    product_oracle p = product_of(r, &s);
    int64_t taps = s.kh * s.kw, rows = s.n * s.oh * s.ow;
    must_have(&g, r);
    gpu_run_both(&g);
    check_sums(r, "out", g.io.out, p.out, taps * s.c / s.groups + 1);
    check_sums(r, "din", g.io.din[0], p.din, taps * s.oc / s.groups);
    check_sums(r, "dweight", g.io.dparam[0], p.dweight, rows);
    if (g.io.dparam[1]) check_sums(r, "dbias", g.io.dparam[1], p.dbias, rows);
    gpu_run_close(&g);
    product_close(&p);
}

static void conv_case(oracle_conv s, op_formats formats, ab_cpu_path path, bool bias) {
    const ab_op *op = op_called("conv2d");
    op_run r;
    ab_shape in = {4, {s.n, s.h, s.w, s.c}};
    ab_exec exec = training(path);
    op_attrs attrs = op_attrs_default(op);
    op_attrs_set(op, &attrs, "out_channels", (double)s.oc, 0);
    op_attrs_set(op, &attrs, "kernel_size", (double)s.kh, (double)s.kw);
    op_attrs_set(op, &attrs, "stride", (double)s.sh, (double)s.sw);
    op_attrs_set(op, &attrs, "padding", (double)s.ph, (double)s.pw);
    op_attrs_set(op, &attrs, "dilation", (double)s.dh, (double)s.dw);
    op_attrs_set(op, &attrs, "groups", (double)s.groups, 0);
    op_attrs_set(op, &attrs, "bias", bias, 0);
    op_run_open(&r, op, attrs.bytes, &in, 1, formats, &exec);
    op_run_fill_all(&r, 11);
    check_product(&r, s);
    op_run_close(&r);
}

static void convolutions_are_within_the_bound_of_their_terms(void **state) {
    (void)state;
    static const oracle_conv shapes[] = {{4, 8, 8, 16, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, 0, 0},
                                         {2, 28, 28, 1, 6, 5, 5, 1, 1, 0, 0, 1, 1, 1, 0, 0},
                                         {3, 9, 7, 3, 5, 3, 2, 2, 1, 1, 0, 1, 1, 1, 0, 0},
                                         {2, 8, 8, 8, 16, 1, 1, 2, 2, 0, 0, 1, 1, 1, 0, 0},
                                         {2, 10, 10, 4, 8, 3, 3, 1, 1, 2, 2, 2, 2, 2, 0, 0}};
    static const ab_cpu_path paths[] = {AB_PATH_AUTO, AB_PATH_REFERENCE};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t s = 0; s < AB_COUNT_OF(shapes); s++)
        for (int f = 0; f < formats; f++)
            for (size_t p = 0; p < AB_COUNT_OF(paths); p++)
                for (int bias = 0; bias < 2; bias++) conv_case(shapes[s], format[f], paths[p], bias);
}

static void linear_case(int64_t rows, int64_t in_features, int64_t out_features, op_formats formats,
                        ab_cpu_path path, bool bias) {
    const ab_op *op = op_called("linear");
    op_run r;
    ab_shape in = {2, {rows, in_features}};
    ab_exec exec = training(path);
    op_attrs attrs = op_attrs_default(op);
    op_attrs_set(op, &attrs, "out_features", (double)out_features, 0);
    op_attrs_set(op, &attrs, "bias", bias, 0);
    op_run_open(&r, op, attrs.bytes, &in, 1, formats, &exec);
    op_run_fill_all(&r, 12);
    check_product(&r, (oracle_conv){rows, 1, 1, in_features, out_features, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1});
    op_run_close(&r);
}

static void matrix_products_are_within_the_bound_of_their_terms(void **state) {
    (void)state;
    static const int64_t shapes[][3] = {{64, 256, 128}, {1, 7, 3}, {33, 65, 10}, {17, 400, 120}};
    static const ab_cpu_path paths[] = {AB_PATH_AUTO, AB_PATH_REFERENCE};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t s = 0; s < AB_COUNT_OF(shapes); s++)
        for (int f = 0; f < formats; f++)
            for (size_t p = 0; p < AB_COUNT_OF(paths); p++)
                for (int bias = 0; bias < 2; bias++)
                    linear_case(shapes[s][0], shapes[s][1], shapes[s][2], format[f], paths[p], bias);
}

/* ---- batch norm ------------------------------------------------------------------------------ */

typedef struct bn_oracle {
    double *x, *dy, mean, var, sum, dot, scale; /* of one channel */
    int64_t rows, channels;
} bn_oracle;

static void bn_channel(bn_oracle *b, int64_t c, double gamma) {
    double n = (double)b->rows;
    b->mean = b->var = b->sum = b->dot = 0;
    for (int64_t r = 0; r < b->rows; r++) b->mean += b->x[r * b->channels + c] / n;
    for (int64_t r = 0; r < b->rows; r++) {
        double d = b->x[r * b->channels + c] - b->mean;
        b->var += d * d / n;
        b->sum += b->dy[r * b->channels + c];
        b->dot += b->dy[r * b->channels + c] * d;
    }
    b->scale = gamma / sqrt(b->var + 1e-5);
}

/* Statistics are double; the element-wise pass does four fp32 operations on values of the size of the terms.
 */
static void check_bn_channel(const op_run *r, const bn_oracle *b, int64_t c, double beta,
                             const ab_tensor *out, const ab_tensor *din) {
    const double n = (double)b->rows, invstd2 = 1.0 / (b->var + 1e-5);
    for (int64_t row = 0; row < b->rows; row++) {
        int64_t i = row * b->channels + c;
        double d = b->x[i] - b->mean, slope = d * invstd2 * b->dot / n, centre = b->sum / n;
        double y = d * b->scale + beta, dx = (b->dy[i] - centre - slope) * b->scale;
        double size = (fabs(b->x[i]) + fabs(b->mean)) * fabs(b->scale) + fabs(beta);
        double gradient_size = (fabs(b->dy[i]) + fabs(centre) + 3 * fabs(slope)) * fabs(b->scale);
        op_run_near(r, "out", out, i, y, 6 * ORACLE_U32 * size);
        op_run_near(r, "din", din, i, dx, 8 * ORACLE_U32 * gradient_size);
    }
}

static void bn_case(ab_shape in, op_formats formats) {
    const ab_op *op = op_called("batch_norm2d");
    op_run r;
    gpu_run g;
    ab_exec exec = training(AB_PATH_AUTO);
    op_attrs attrs = op_attrs_default(op);
    op_run_open(&r, op, attrs.bytes, &in, 1, formats, &exec);
    op_run_fill_all(&r, 13);
    bn_oracle b = {.x = oracle_values(&r.in[0]), .dy = oracle_values(&r.dout), .channels = in.dim[3]};
    b.rows = ab_tensor_count(&r.in[0]) / b.channels;
    must_have(&g, &r);
    gpu_run_both(&g);
    ab_tensor out = gpu_result(g.io.out), din = gpu_result(g.io.din[0]), dgamma = gpu_result(g.io.dparam[0]),
              dbeta = gpu_result(g.io.dparam[1]), var = gpu_result(g.io.param[3]);
    for (int64_t c = 0; c < b.channels; c++) {
        bn_channel(&b, c, oracle_get(&r.param[0], c));
        check_bn_channel(&r, &b, c, oracle_get(&r.param[1], c), &out, &din);
        op_run_near(&r, "dbeta", &dbeta, c, b.sum, 4 * ORACLE_U32 * fabs(b.sum) + 1e-12);
        double d = b.dot / sqrt(b.var + 1e-5), n = (double)b.rows;
        op_run_near(&r, "dgamma", &dgamma, c, d, 8 * ORACLE_U32 * fabs(d) + (n + 2) * ORACLE_U32 * 1e-3);
        double moved = 0.9 * oracle_get(&r.param[3], c) + 0.1 * b.var * n / (n - 1.0);
        op_run_near(&r, "running_var", &var, c, moved, 8 * ORACLE_U32 * (fabs(moved) + 1.0));
    }
    free(out.data), free(din.data), free(dgamma.data), free(dbeta.data), free(var.data), free(b.x),
        free(b.dy);
    gpu_run_close(&g);
    op_run_close(&r);
}

static void batch_norm_is_the_double_formula(void **state) {
    (void)state;
    static const ab_shape shapes[] = {{4, {8, 6, 6, 16}}, {4, {3, 5, 7, 3}}, {4, {40, 8, 8, 33}}};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t s = 0; s < AB_COUNT_OF(shapes); s++)
        for (int f = 0; f < formats; f++) bn_case(shapes[s], format[f]);
}

/* ---- loss ------------------------------------------------------------------------------------ */

static void loss_case(int64_t rows, int64_t classes) {
    const ab_op *op = op_called("cross_entropy");
    op_run r;
    gpu_run g;
    ab_shape in[2] = {{2, {rows, classes}}, {1, {rows}}};
    ab_exec exec = training(AB_PATH_AUTO);
    op_attrs attrs = op_attrs_default(op);
    op_run_open(&r, op, attrs.bytes, in, 2, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec);
    op_run_fill_all(&r, 14);
    int32_t *target = r.in[1].data;
    for (int64_t i = 0; i < rows; i++) target[i] = i % 5 == 4 ? -100 : (int32_t)(i * 7 % classes);
    oracle_put(&r.dout, 0, 128.0);
    must_have(&g, &r);
    gpu_run_both(&g);
    ab_tensor out = gpu_result(g.io.out), din = gpu_result(g.io.din[0]);
    double loss = 0, counted = 0;
    for (int64_t i = 0; i < rows; i++) counted += target[i] >= 0;
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t c = 0; c < classes; c++) sum += exp(oracle_get(&r.in[0], i * classes + c));
        if (target[i] >= 0) loss += (log(sum) - oracle_get(&r.in[0], i * classes + target[i])) / counted;
        for (int64_t c = 0; c < classes; c++) {
            double p = exp(oracle_get(&r.in[0], i * classes + c)) / sum;
            double d = target[i] < 0 ? 0 : 128.0 / counted * (p - (c == target[i]));
            op_run_near(&r, "din", &din, i * classes + c, d,
                        16 * ORACLE_U32 * (fabs(d) + 128.0 * p / counted));
        }
    }
    op_run_near(&r, "out", &out, 0, loss,
                16 * ORACLE_U32 * (loss + 4.0)); /* expf: two ulps, and the shift's rounding */
    free(out.data), free(din.data);
    gpu_run_close(&g);
    op_run_close(&r);
}

static void the_loss_is_the_double_formula(void **state) {
    (void)state;
    loss_case(64, 10);
    loss_case(7, 3);
    loss_case(130, 1000);
}

/* ---- transformer ops ------------------------------------------------------------------------- */

/* Against the CPU's op in fp32, which tests of its own hold to double oracles: both are within a few ulps of
 * the exact value, K being the length of a row (or the number of rows for sums over them); then one rounding
 * to the format. */
static void near_the_cpus(const op_run *r, const char *what, const ab_tensor *host, const ab_tensor *device,
                          double terms) {
    if (!host || !device) return;
    ab_tensor there = gpu_result(device);
    for (int64_t i = 0; i < ab_tensor_count(host); i++) {
        double a = oracle_get(host, i);
        op_run_near(r, what, &there, i, a,
                    (terms + 32) * ORACLE_U32 * (fabs(a) + 1) + 2 * oracle_half_ulp(host->format, fabs(a)));
    }
    free(there.data);
}

static void transformer_case(const char *name, ab_shape shape, op_formats formats) {
    const ab_op *op = op_called(name);
    op_run r;
    gpu_run g;
    op_attrs attrs = op_attrs_default(op);
    ab_exec exec = training(AB_PATH_AUTO);
    op_run_open(&r, op, attrs.bytes, &shape, 1, formats, &exec);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_fill_all(&r, 17);
    must_have(&g, &r);
    op_run_both(&r);
    gpu_run_both(&g);
    double n = (double)shape.dim[shape.ndim - 1], rows = (double)ab_shape_count(&shape) / n;
    near_the_cpus(&r, "out", &r.out, g.io.out, n);
    near_the_cpus(&r, "din", &r.din[0], g.io.din[0], n);
    for (int i = 0; i < r.params; i++) near_the_cpus(&r, "dparam", r.io.dparam[i], g.io.dparam[i], rows);
    gpu_run_close(&g);
    op_run_close(&r);
}

static void transformer_ops_are_near_the_cpus(void **state) {
    (void)state;
    static const char *const names[] = {"gelu", "silu", "tanh", "sigmoid", "layer_norm", "softmax"};
    static const ab_shape shapes[] = {{2, {33, 65}}, {3, {2, 16, 128}}, {3, {3, 7, 1000}}};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t o = 0; o < AB_COUNT_OF(names); o++)
        for (size_t s = 0; s < AB_COUNT_OF(shapes); s++)
            for (int f = 0; f < formats; f++) transformer_case(names[o], shapes[s], format[f]);
}

/* ---- the same again -------------------------------------------------------------------------- */

static void results_repeat_bit_for_bit(void **state) {
    (void)state;
    const ab_op *op = op_called("conv2d");
    ab_shape in = {4, {8, 16, 16, 16}};
    ab_exec exec = training(AB_PATH_AUTO);
    op_attrs attrs = op_attrs_default(op);
    op_attrs_set(op, &attrs, "out_channels", 32, 0);
    op_attrs_set(op, &attrs, "kernel_size", 3, 3);
    op_run r;
    gpu_run g;
    op_run_open(&r, op, attrs.bytes, &in, 1, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL}, &exec);
    op_run_fill_all(&r, 15);
    must_have(&g, &r);
    gpu_run_both(&g);
    ab_tensor first = gpu_result(g.io.dparam[0]);
    for (int i = 0; i < 5; i++) {
        gpu_run_both(&g);
        ab_tensor again = gpu_result(g.io.dparam[0]);
        assert_true(op_run_same_bits(&first, &again));
        free(again.data);
    }
    free(first.data);
    gpu_run_close(&g);
    op_run_close(&r);
}

int main(void) {
    gpu_or_skip();
    const struct CMUnitTest tests[] = {cmocka_unit_test(elementwise_ops_and_pools_give_the_cpus_bits),
                                       cmocka_unit_test(convolutions_are_within_the_bound_of_their_terms),
                                       cmocka_unit_test(matrix_products_are_within_the_bound_of_their_terms),
                                       cmocka_unit_test(batch_norm_is_the_double_formula),
                                       cmocka_unit_test(the_loss_is_the_double_formula),
                                       cmocka_unit_test(transformer_ops_are_near_the_cpus),
                                       cmocka_unit_test(results_repeat_bit_for_bit)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
