/* softmax and log_softmax against their definitions in double, with derivatives by differences and, because
 * backward reads the stored output, from that output; rows longer than a span of sums; masked and spoilt
 * rows. */
#include "oracle/op_run.h"

#include "oracle/jacobian.h"

typedef struct softmax_case {
    const ab_op *op;
    ab_shape shape;
    double scale, offset;
} softmax_case;

static const softmax_case cases[] = {
    {&ab_op_softmax, {2, {3, 7}}, 3.0, 0.0},         {&ab_op_softmax, {4, {1, 2, 3, 17}}, 20.0, 1000.0},
    {&ab_op_softmax, {2, {5, 1}}, 1.0, 0.0},         {&ab_op_softmax, {1, {33}}, 1.0, -500.0},
    {&ab_op_log_softmax, {2, {3, 7}}, 3.0, 0.0},     {&ab_op_log_softmax, {3, {2, 2, 19}}, 20.0, 100.0},
    {&ab_op_log_softmax, {2, {2, 40}}, 1.0, -500.0},
};

static void rows(const void *self, double *const *x, double *out) {
    const softmax_case *k = self;
    int64_t n = k->shape.dim[k->shape.ndim - 1], count = ab_shape_count(&k->shape);
    for (int64_t at = 0; at < count; at += n) {
        double best = -(double)INFINITY, sum = 0.0;
        for (int64_t i = at; i < at + n; i++) best = fmax(best, x[0][i]);
        for (int64_t i = at; i < at + n; i++) sum += exp(x[0][i] - best);
        for (int64_t i = at; i < at + n; i++)
            out[i] = k->op == &ab_op_softmax ? exp(x[0][i] - best) / sum : x[0][i] - best - log(sum);
    }
}

static void open_case(op_run *r, const void *self, op_formats formats) {
    const softmax_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    attrs = op_attrs_default(k->op);
    op_run_open(r, k->op, &attrs, &k->shape, 1, formats, &exec);
    op_run_fill_all(r, 17);
    for (int64_t i = 0; i < ab_tensor_count(&r->in[0]); i++)
        oracle_put(&r->in[0], i, k->offset + k->scale * oracle_random(4, i));
    assert_int_equal(op_run_prepare(r), AB_OK);
}

/* din from the stored output: y (dy - sum y dy), dy - exp(y) sum dy. */
static void check_from_output(const op_run *r, const softmax_case *k) {
    int64_t n = k->shape.dim[k->shape.ndim - 1], count = ab_shape_count(&k->shape);
    bool plain = k->op == &ab_op_softmax;
    for (int64_t at = 0; at < count; at += n) {
        double sum = 0.0, size = 0.0;
        for (int64_t i = at; i < at + n; i++) {
            double term = oracle_get(&r->dout, i) * (plain ? oracle_get(&r->out, i) : 1.0);
            sum += term;
            size += fabs(term);
        }
        for (int64_t i = at; i < at + n; i++) {
            double y = oracle_get(&r->out, i), dy = oracle_get(&r->dout, i), p = exp(y);
            double error =
                8.0 * ORACLE_U32 * (plain ? fabs(y) : 1.0) * (fabs(dy) + 9.0 * size * (plain ? 1.0 : p));
            op_run_near(r, "din", &r->din[0], i, plain ? y * (dy - sum) : dy - p * sum, error);
        }
    }
}

static void check_case(const op_run *r, const void *self) {
    const softmax_case *k = self;
    oracle_jacobian o = oracle_jacobian_open(r, rows, self);
    oracle_jacobian_check_out(r, &o, 8.0);
    check_from_output(r, k);
    if (ab_format_bytes(r->out.format, 1) == sizeof(float))
        oracle_jacobian_check_gradients(r, &o, 30.0 + 4.0 * k->scale);
    oracle_jacobian_close(&o);
}

static void both_match_their_definition_and_its_derivatives(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        oracle_run_all((oracle_run){.open = open_case, .check = check_case, .self = &cases[k]});
}

static void check_long(const op_run *r, const void *self) {
    const softmax_case *k = self;
    double *x[] = {oracle_values(&r->in[0])}, *y = oracle_doubles(ab_shape_count(&k->shape));
    rows(self, x, y);
    for (int64_t i = 0; i < ab_shape_count(&k->shape); i++)
        op_run_near(r, "out", &r->out, i, y[i], 80.0 * ORACLE_U32 * (fabs(y[i]) + 0x1p-40));
    check_from_output(r, k);
    free(x[0]);
    free(y);
}

static void long_rows_and_many_rows_are_right_too(void **state) {
    (void)state;
    const softmax_case large[] = {{&ab_op_softmax, {2, {3, 5001}}, 8.0, 0.0},
                                  {&ab_op_log_softmax, {2, {3, 5001}}, 8.0, 0.0},
                                  {&ab_op_softmax, {2, {op_run_rows(2500), 29}}, 4.0, 0.0}};
    for (size_t k = 0; k < AB_COUNT_OF(large); k++)
        oracle_run_all((oracle_run){.open = open_case, .check = check_long, .self = &large[k]});
}

static void row_of(op_run *r, const ab_op *op, const double in[3]) {
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    ab_shape shape = {.ndim = 2, .dim = {1, 3}};
    attrs = op_attrs_default(op);
    op_run_open(r, op, &attrs, &shape, 1, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL}, &exec);
    for (int i = 0; i < 3; i++) {
        oracle_put(&r->in[0], i, in[i]);
        oracle_put(&r->dout, i, 1.0);
    }
    assert_int_equal(op_run_prepare(r), AB_OK);
    op_run_both(r);
}

/* -inf is what a mask leaves: probability 0. A row of nothing else, a NaN or +inf spoils the row, as in
 * torch. */
static void infinities_mask_and_spoil_like_in_torch(void **state) {
    (void)state;
    const double minus = (double)-INFINITY, plus = (double)INFINITY;
    const double masked[] = {1.0, minus, 1.0}, nothing[] = {minus, minus, minus};
    const double spoilt[][3] = {{0.0, plus, 0.0}, {0.0, (double)NAN, 1.0}};
    op_run r;
    row_of(&r, &ab_op_softmax, masked);
    assert_true(oracle_get(&r.out, 0) == 0.5 && oracle_get(&r.out, 1) == 0.0);
    assert_true(oracle_get(&r.din[0], 1) == 0.0);
    op_run_close(&r);
    row_of(&r, &ab_op_log_softmax, masked);
    assert_true(oracle_get(&r.out, 1) == minus && oracle_get(&r.din[0], 1) == 1.0);
    op_run_close(&r);
    row_of(&r, &ab_op_softmax, nothing);
    for (int i = 0; i < 3; i++) assert_true(isnan(oracle_get(&r.out, i)));
    op_run_close(&r);
    for (int k = 0; k < 2; k++) {
        row_of(&r, &ab_op_softmax, spoilt[k]);
        assert_true(isnan(oracle_get(&r.out, 1)));
        op_run_close(&r);
    }
}

static void only_the_last_dimension_is_taken(void **state) {
    (void)state;
    const ab_op *ops[] = {&ab_op_softmax, &ab_op_log_softmax};
    for (size_t k = 0; k < AB_COUNT_OF(ops); k++) {
        op_attrs attrs = op_attrs_default(ops[k]);
        ab_shape in = {.ndim = 3, .dim = {2, 3, 5}}, out;
        op_attrs_set(ops[k], &attrs, "dim", 2, 0);
        assert_int_equal(ops[k]->infer(&attrs, &in, 1, &out), AB_OK);
        op_attrs_set(ops[k], &attrs, "dim", 1, 0);
        assert_int_equal(ops[k]->infer(&attrs, &in, 1, &out), AB_CONFIG);
        assert_non_null(strstr(ab_error_message(), "[2, 3, 5]"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_match_their_definition_and_its_derivatives),
        cmocka_unit_test(long_rows_and_many_rows_are_right_too),
        cmocka_unit_test(infinities_mask_and_spoil_like_in_torch),
        cmocka_unit_test(only_the_last_dimension_is_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
