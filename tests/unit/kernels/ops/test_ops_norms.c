/* layer_norm and rms_norm against their definitions in double, with derivatives by differences: odd sizes,
 * with and without weight and bias, rows longer than a span of sums, large means. */
#include "oracle/op_run.h"

#include "oracle/jacobian.h"

typedef struct norm_case {
    const ab_op *op;
    ab_shape shape;
    bool affine, bias;
    double eps, offset, scale;
} norm_case;

static const norm_case cases[] = {
    {&ab_op_layer_norm, {2, {3, 7}}, true, true, 1e-5, 0.0, 1.0},
    {&ab_op_layer_norm, {3, {2, 3, 33}}, true, true, 1e-3, 2.0, 0.5},
    {&ab_op_layer_norm, {2, {4, 16}}, true, false, 1e-5, 0.0, 3.0},
    {&ab_op_layer_norm, {3, {1, 2, 50}}, false, false, 1e-5, -1.0, 1.0},
    {&ab_op_layer_norm, {2, {2, 1}}, true, true, 1e-5, 0.0, 1.0},
    {&ab_op_rms_norm, {2, {3, 7}}, true, false, 1e-5, 0.0, 1.0},
    {&ab_op_rms_norm, {3, {2, 2, 35}}, false, false, 1e-2, 1.0, 0.5},
    {&ab_op_rms_norm, {2, {70, 3}}, true, false, 1e-6, 0.0, 1.0},
};

static void normalise_row(const norm_case *k, const double *x, const double *weight, const double *bias,
                          double *y) {
    int64_t n = k->shape.dim[k->shape.ndim - 1];
    double mean = 0.0, square = 0.0;
    bool centred = k->op == &ab_op_layer_norm;
    for (int64_t i = 0; centred && i < n; i++) mean += x[i] / (double)n;
    for (int64_t i = 0; i < n; i++) square += (x[i] - mean) * (x[i] - mean) / (double)n;
    for (int64_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(square + k->eps);
        if (weight) y[i] *= weight[i];
        if (bias) y[i] += bias[i];
    }
}

static void normalise(const void *self, double *const *x, double *out) {
    const norm_case *k = self;
    int64_t n = k->shape.dim[k->shape.ndim - 1], count = ab_shape_count(&k->shape);
    for (int64_t at = 0; at < count; at += n)
        normalise_row(k, x[0] + at, k->affine ? x[1] : NULL, k->affine && k->bias ? x[2] : NULL, out + at);
}

static op_attrs attrs_of(const norm_case *k) {
    op_attrs attrs = op_attrs_default(k->op);
    op_attrs_set(k->op, &attrs, "eps", k->eps, 0);
    op_attrs_set(k->op, &attrs, "elementwise_affine", k->affine, 0);
    if (k->op == &ab_op_layer_norm) op_attrs_set(k->op, &attrs, "bias", k->bias, 0);
    return attrs;
}

static void open_case(op_run *r, const void *self, op_formats formats) {
    const norm_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    attrs = attrs_of(k);
    op_run_open(r, k->op, &attrs, &k->shape, 1, formats, &exec);
    op_run_fill_all(r, (uint64_t)k->shape.dim[0] + 3);
    for (int64_t i = 0; i < ab_tensor_count(&r->in[0]); i++)
        oracle_put(&r->in[0], i, k->offset + k->scale * oracle_random(9, i));
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void check_case(const op_run *r, const void *self) {
    oracle_jacobian o = oracle_jacobian_open(r, normalise, self);
    oracle_jacobian_check_out(r, &o, 12.0);
    oracle_jacobian_check_gradients(r, &o, 40.0);
    oracle_jacobian_close(&o);
}

static void norms_match_their_definition_and_its_derivatives(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        oracle_run_all((oracle_run){.open = open_case, .check = check_case, .self = &cases[k]});
}

/* Rows of several spans and parameter gradients over several chunks: too large for differences, so the sums
 * are written down. */
static void check_large(const op_run *r, const void *self) {
    const norm_case *k = self;
    int64_t n = k->shape.dim[1], rows = k->shape.dim[0];
    double *x = oracle_values(&r->in[0]), *dy = oracle_values(&r->dout), *w = oracle_values(&r->param[0]);
    double *b = oracle_values(&r->param[1]), *y = oracle_doubles(n), *one = oracle_doubles(n);
    oracle_sums dw = oracle_sums_open(n), db = oracle_sums_open(n);
    for (int64_t row = 0; row < rows; row++) {
        normalise_row(k, x + row * n, NULL, NULL, one);
        normalise_row(k, x + row * n, w, b, y);
        for (int64_t i = 0; i < n; i++) {
            op_run_near(r, "out", &r->out, row * n + i, y[i], 300.0 * ORACLE_U32 * (fabs(y[i]) + 1.0));
            oracle_add(dw, i, dy[row * n + i] * one[i]);
            oracle_add(db, i, dy[row * n + i]);
        }
    }
    oracle_sums_check(r, "dweight", &r->dparam[0], dw, 300);
    oracle_sums_check(r, "dbias", &r->dparam[1], db, 40);
    double *all[] = {x, dy, w, b, y, one};
    for (size_t i = 0; i < AB_COUNT_OF(all); i++) free(all[i]);
    oracle_sums_close(&dw);
    oracle_sums_close(&db);
}

static void long_rows_and_many_rows_are_summed_exactly(void **state) {
    (void)state;
    const norm_case large[] = {
        {&ab_op_layer_norm, {2, {3, 2500}}, true, true, 1e-5, 8.0, 1.0},
        {&ab_op_layer_norm, {2, {op_run_rows(3000), 37}}, true, true, 1e-5, 8.0, 1.0},
    };
    for (size_t k = 0; k < AB_COUNT_OF(large); k++)
        oracle_run_all((oracle_run){.open = open_case, .check = check_large, .self = &large[k]});
}

static void a_large_mean_does_not_cancel_the_variance(void **state) {
    (void)state;
    norm_case far = {&ab_op_layer_norm, {2, {1, 64}}, false, false, 0.0, 4096.0, 1.0};
    op_run r;
    double y[64];
    open_case(&r, &far, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL});
    op_run_both(&r);
    double *x = oracle_values(&r.in[0]);
    normalise_row(&far, x, NULL, NULL, y);
    for (int i = 0; i < 64; i++) assert_true(fabs(oracle_get(&r.out, i) - y[i]) < 1e-3);
    free(x);
    op_run_close(&r);
}

/* Without an eps rms_norm takes 2^-23 in every format, which a row of 1e-4 shows (torch 2.11: 0.2783 in
 * fp16). */
static void rms_norm_has_torchs_default_eps(void **state) {
    (void)state;
    ab_shape shape = {.ndim = 2, .dim = {1, 4}};
    op_attrs attrs = op_attrs_default(&ab_op_rms_norm);
    ab_exec exec = {.training = true};
    op_run r;
    op_run_open(&r, &ab_op_rms_norm, &attrs, &shape, 1, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL},
                &exec);
    for (int i = 0; i < 4; i++) {
        oracle_put(&r.in[0], i, 1e-4);
        oracle_put(&r.param[0], i, 1.0);
        oracle_put(&r.dout, i, 1.0);
    }
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    assert_true(fabs(oracle_get(&r.out, 0) - 0.2783) < 1e-4);
    op_run_close(&r);
}

static void shapes_and_parameters_are_torchs(void **state) {
    (void)state;
    ab_shape in = {.ndim = 3, .dim = {2, 3, 5}}, flat = {.ndim = 1, .dim = {5}}, out;
    ab_param_spec spec[AB_MAX_PARAMS];
    op_attrs attrs = op_attrs_default(&ab_op_layer_norm);
    assert_int_equal(ab_op_layer_norm.params(&attrs, &in, spec), 2);
    assert_string_equal(spec[0].name, "weight");
    assert_int_equal(spec[0].init, AB_INIT_ONES);
    assert_string_equal(spec[1].name, "bias");
    assert_int_equal(spec[1].init, AB_INIT_ZEROS);
    assert_int_equal(ab_op_layer_norm.infer(&attrs, &flat, 1, &out), AB_CONFIG);
    op_attrs_set(&ab_op_layer_norm, &attrs, "normalized_shape", 6, 0);
    assert_int_equal(ab_op_layer_norm.infer(&attrs, &in, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[2, 3, 5]"));
    assert_non_null(strstr(ab_error_message(), "6]"));
    attrs = op_attrs_default(&ab_op_rms_norm);
    assert_int_equal(ab_op_rms_norm.params(&attrs, &in, spec), 1);
    assert_int_equal(ab_op_rms_norm.infer(&attrs, &flat, 1, &out), AB_CONFIG);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms_match_their_definition_and_its_derivatives),
        cmocka_unit_test(long_rows_and_many_rows_are_summed_exactly),
        cmocka_unit_test(a_large_mean_does_not_cancel_the_variance),
        cmocka_unit_test(rms_norm_has_torchs_default_eps),
        cmocka_unit_test(shapes_and_parameters_are_torchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
