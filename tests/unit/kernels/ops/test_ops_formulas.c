/* The ops of elementwise.h and where.c: every formula against its definition in double, gradients against
 * finite differences, all ways to broadcast, and what is masked. */
#include "oracle/doubles.h"
#include "oracle/op_run.h"

/* ---- functions of one number ----------------------------------------------------------------- */

typedef struct function {
    const ab_op *op;
    double (*f)(double x);
    double low, high; /* where it is tried */
    double p, q;      /* attributes */
} function;

static double f_neg(double x) { return -x; }
static double f_rsqrt(double x) { return 1 / sqrt(x); }
static double f_square(double x) { return x * x; }
static double f_clamp(double x) { return fmin(fmax(x, -0.25), 0.5); }
static double f_scale(double x) { return -3.7 * x; }

static const function functions[] = {
    {&ab_op_neg, f_neg, -4, 4, 0, 0},        {&ab_op_exp, exp, -8, 8, 0, 0},
    {&ab_op_log, log, 0.01, 30, 0, 0},       {&ab_op_sqrt, sqrt, 0.01, 90, 0, 0},
    {&ab_op_rsqrt, f_rsqrt, 0.01, 90, 0, 0}, {&ab_op_square, f_square, -6, 6, 0, 0},
    {&ab_op_abs, fabs, -4, 4, 0, 0},         {&ab_op_clamp, f_clamp, -2, 2, -0.25, 0.5},
    {&ab_op_scale, f_scale, -9, 9, -3.7, 0},
};

static op_attrs function_attrs(const function *k) {
    op_attrs a = op_attrs_default(k->op);
    if (k->op == &ab_op_clamp) op_attrs_set(k->op, &a, "min", k->p, 0);
    if (k->op == &ab_op_clamp) op_attrs_set(k->op, &a, "max", k->q, 0);
    if (k->op == &ab_op_scale) op_attrs_set(k->op, &a, "factor", k->p, 0);
    return a;
}

typedef struct function_run {
    const function *k;
    op_formats formats;
} function_run;

/* A half result that the derivative reads has lost bits: of exp, sqrt, rsqrt. */
static double slope_error(const op_run *r, const function *k, double slope) {
    bool reads_out = k->op->backward_needs == AB_NEEDS_OUT;
    return fabs(slope) * (reads_out ? 4 * oracle_half_ulp(r->out.format, 1.0) : 0);
}

static void run_function(const void *argument) {
    const function_run *s = argument;
    const function *k = s->k;
    static const ab_shape shapes[] = {{3, {3, 5, 7}}, {2, {13, 3001}}, {1, {1}}};
    for (size_t i = 0; i < AB_COUNT_OF(shapes); i++) {
        op_attrs attrs = function_attrs(k);
        ab_exec exec = {.training = true};
        op_run r;
        op_run_open(&r, k->op, &attrs, &shapes[i], 1, s->formats, &exec);
        op_run_fill_all(&r, i + 1);
        for (int64_t n = 0; n < ab_tensor_count(&r.in[0]); n++)
            oracle_put(&r.in[0], n, k->low + (k->high - k->low) * (oracle_random(i + 9, n) + 1) / 2);
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        for (int64_t n = 0; n < ab_tensor_count(&r.in[0]); n++) {
            double x = oracle_get(&r.in[0], n), y = k->f(x), h = 1e-6 * fmax(fabs(x), 1e-3);
            double slope = (k->f(x + h) - k->f(x - h)) / (2 * h), dout = oracle_get(&r.dout, n);
            op_run_near(&r, "out", &r.out, n, y, 4 * ORACLE_U32 * fabs(y));
            if ((k->op == &ab_op_clamp && fmin(fabs(x + 0.25), fabs(x - 0.5)) < 2 * h) || fabs(x) < 2 * h)
                continue;
            op_run_near(&r, "din", &r.din[0], n, slope * dout,
                        (1e-8 * (1 + fabs(y)) / h * 1e-6 + 1e-7 * fabs(slope) + slope_error(&r, k, slope)) *
                            fabs(dout));
        }
        op_run_close(&r);
    }
}

static void functions_of_one_number_match_their_definitions(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t i = 0; i < AB_COUNT_OF(functions); i++)
        for (int f = 0; f < formats; f++) {
            function_run s = {&functions[i], format[f]};
            op_each_lane_count(run_function, &s);
        }
}

/* Where half arithmetic breaks hand-written losses, it breaks here, too. */
static void half_results_overflow_and_vanish_as_torchs_do(void **state) {
    (void)state;
    const struct {
        const ab_op *op;
        double x, y;
    } rows[] = {{&ab_op_exp, 12, (double)INFINITY},
                {&ab_op_exp, -18, 0},
                {&ab_op_square, 300, (double)INFINITY},
                {&ab_op_square, 1e-4, 0},
                {&ab_op_log, 0, -(double)INFINITY},
                {&ab_op_sqrt, -1, (double)NAN},
                {&ab_op_rsqrt, 0, (double)INFINITY},
                {&ab_op_clamp, (double)NAN, (double)NAN},
                {&ab_op_abs, -(double)INFINITY, (double)INFINITY}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_shape shape = {1, {1}};
        op_attrs attrs = op_attrs_default(rows[i].op);
        ab_exec exec = {.training = true};
        op_run r;
        op_run_open(&r, rows[i].op, &attrs, &shape, 1, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL},
                    &exec);
        oracle_put(&r.in[0], 0, rows[i].x);
        oracle_put(&r.dout, 0, 1);
        op_run_both(&r);
        double y = oracle_get(&r.out, 0);
        if (!(isnan(rows[i].y) ? isnan(y) : fabs(y - rows[i].y) < 1e-7 || y == rows[i].y))
            fail_msg("%s(%g) is %g", rows[i].op->name, rows[i].x, y);
        op_run_close(&r);
    }
}

/* ---- functions of two numbers ---------------------------------------------------------------- */

typedef struct pair {
    ab_shape a, b; /* b.ndim 0: a number */
    bool reverse;
} pair;

static const pair pairs[] = {
    {{2, {40, 999}}, {2, {40, 999}}, false},
    {{4, {3, 5, 7, 33}}, {1, {33}}, false},
    {{1, {7}}, {3, {90, 101, 7}}, false},
    {{4, {2, 1, 5, 1}}, {4, {1, 6, 1, 9}}, false},
    {{3, {4, 70, 30}}, {3, {4, 1, 30}}, false},
    {{3, {4, 70, 30}}, {3, {1, 1, 1}}, false},
    {{3, {17, 30, 3}}, {3, {17, 30, 1}}, false},
    {{2, {19, 77}}, {0, {0}}, false},
    {{2, {19, 77}}, {0, {0}}, true},
};

enum { NUMBER = 3 }; /* the number is NUMBER / 2 */

typedef struct pair_run {
    const ab_op *op;
    op_formats formats;
} pair_run;

static double pair_value(const ab_op *op, double a, double b, double *by_a, double *by_b) {
    *by_a = 1;
    *by_b = 1;
    if (op == &ab_op_add) return a + b;
    *by_b = -1;
    if (op == &ab_op_sub) return a - b;
    *by_a = b;
    *by_b = a;
    if (op == &ab_op_mul) return a * b;
    *by_a = 1 / b;
    *by_b = -a / (b * b);
    return a / b;
}

/* Element of `from` that element `at` of `to` reads. */
static int64_t source(const ab_shape *from, const ab_shape *to, int64_t at) {
    int64_t index = 0, step = 1;
    for (int i = 1; i <= to->ndim; i++) {
        int64_t digit = at % to->dim[to->ndim - i];
        at /= to->dim[to->ndim - i];
        if (i > from->ndim) continue;
        if (from->dim[from->ndim - i] != 1) index += digit * step;
        step *= from->dim[from->ndim - i];
    }
    return index;
}

static op_attrs pair_attrs(const ab_op *op, const pair *p) {
    op_attrs a = op_attrs_default(op);
    if (!p->b.ndim) op_attrs_set(op, &a, "value", 0.5 * NUMBER, 0);
    op_attrs_set(op, &a, "reverse", p->reverse, 0);
    return a;
}

static void check_pair(const op_run *r, const pair *p) {
    const int inputs = p->b.ndim ? 2 : 1;
    oracle_sums sums[2] = {oracle_sums_open(ab_tensor_count(&r->in[0])), {NULL, NULL}};
    if (inputs == 2) sums[1] = oracle_sums_open(ab_tensor_count(&r->in[1]));
    for (int64_t n = 0; n < ab_tensor_count(&r->out); n++) {
        int64_t at[2] = {source(&p->a, &r->out.shape, n), inputs == 2 ? source(&p->b, &r->out.shape, n) : 0};
        double x = oracle_get(&r->in[0], at[0]),
               y = inputs == 2 ? oracle_get(&r->in[1], at[1]) : 0.5 * NUMBER;
        double by[2], dout = oracle_get(&r->dout, n);
        double exact =
            p->reverse ? pair_value(r->op, y, x, &by[1], &by[0]) : pair_value(r->op, x, y, &by[0], &by[1]);
        op_run_near(r, "out", &r->out, n, exact, 2 * ORACLE_U32 * fabs(exact));
        for (int i = 0; i < inputs; i++) oracle_add(sums[i], at[i], by[i] * dout);
    }
    for (int i = 0; i < inputs; i++) {
        for (int64_t n = 0; n < ab_tensor_count(&r->in[i]); n++)
            op_run_near(r, "din", &r->din[i], n, sums[i].sum[n],
                        4 * ORACLE_U32 * sums[i].magnitude[n]); /* sums are double */
        oracle_sums_close(&sums[i]);
    }
}

static void run_pairs(const void *argument) {
    const pair_run *s = argument;
    for (size_t i = 0; i < AB_COUNT_OF(pairs); i++) {
        const pair *p = &pairs[i];
        op_attrs attrs = pair_attrs(s->op, p);
        ab_shape in[] = {p->a, p->b};
        ab_exec exec = {.training = true};
        op_run r;
        op_run_open(&r, s->op, &attrs, in, p->b.ndim ? 2 : 1, s->formats, &exec);
        op_run_fill_all(&r, i + 1);
        for (int k = 0; k < r.inputs; k++) /* away from zero, for quotients */
            for (int64_t n = 0; n < ab_tensor_count(&r.in[k]); n++) {
                double x = oracle_random(i + 5 + (uint64_t)k, n);
                oracle_put(&r.in[k], n, x + copysign(0.5, x));
            }
        assert_int_equal(op_run_prepare(&r), AB_OK);
        assert_int_equal(r.op->forward(&r.exec, &r.io), AB_OK);
        unsigned needs = ab_io_needs(r.op, &r.io); /* the rest is gone by then */
        void *kept[2] = {r.in[0].data, r.in[1].data};
        for (int k = 0; k < r.inputs; k++)
            if (!(needs >> k & 1u)) r.in[k].data = NULL;
        assert_int_equal(r.op->backward(&r.exec, &r.io), AB_OK);
        for (int k = 0; k < r.inputs; k++) r.in[k].data = kept[k];
        op_run_check_guards(&r);
        check_pair(&r, p);
        op_run_close(&r);
    }
}

static void functions_of_two_numbers_broadcast_and_sum_gradients(void **state) {
    (void)state;
    static const ab_op *const ops[] = {&ab_op_add, &ab_op_sub, &ab_op_mul, &ab_op_div};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t i = 0; i < AB_COUNT_OF(ops); i++)
        for (int f = 0; f < formats; f++) {
            pair_run s = {ops[i], format[f]};
            op_each_lane_count(run_pairs, &s);
        }
}

static void only_what_a_wanted_gradient_reads_is_kept(void **state) {
    (void)state;
    op_attrs number = op_attrs_default(&ab_op_mul);
    op_attrs_set(&ab_op_mul, &number, "value", 3, 0);
    op_attrs plain = op_attrs_default(&ab_op_mul), reverse = number;
    op_attrs_set(&ab_op_div, &reverse, "reverse", 1, 0);
    assert_int_equal(ab_op_needs(&ab_op_add, &plain, 2, 3), 0);
    assert_int_equal(ab_op_needs(&ab_op_mul, &plain, 2, 3), 3);
    assert_int_equal(ab_op_needs(&ab_op_mul, &plain, 2, 1), 2);
    assert_int_equal(ab_op_needs(&ab_op_mul, &plain, 2, 2), 1);
    assert_int_equal(ab_op_needs(&ab_op_mul, &number, 1, 1), 0);
    assert_int_equal(ab_op_needs(&ab_op_div, &plain, 2, 1), 2);
    assert_int_equal(ab_op_needs(&ab_op_div, &number, 1, 1), 0);
    assert_int_equal(ab_op_needs(&ab_op_div, &reverse, 1, 1), 1);
}

/* ---- masks ----------------------------------------------------------------------------------- */

static void run_where(const void *formats) {
    ab_shape in[] = {{3, {5, 1, 77}}, {3, {5, 41, 77}}, {2, {41, 1}}};
    op_attrs attrs = op_attrs_default(&ab_op_where);
    ab_exec exec = {.training = true};
    for (unsigned floats = 0; floats < 2; floats++) {
        op_run r;
        op_run_open_floats(&r, &ab_op_where, &attrs, in, 3, *(const op_formats *)formats, &exec, floats);
        op_run_fill_all(&r, 3);
        for (int64_t i = 0; i < ab_tensor_count(&r.in[0]); i++) {
            int32_t hit = oracle_random(17, i) > 0 ? 7 : 0;
            if (floats)
                oracle_put(&r.in[0], i, hit);
            else
                ((int32_t *)r.in[0].data)[i] = hit;
        }
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        oracle_sums sums = oracle_sums_open(41);
        for (int64_t i = 0; i < ab_tensor_count(&r.out); i++) {
            bool hit = oracle_random(17, source(&in[0], &r.out.shape, i)) > 0;
            double dout = oracle_get(&r.dout, i);
            assert_true(
                oracle_get(&r.out, i) ==
                (hit ? oracle_get(&r.in[1], i) : oracle_get(&r.in[2], source(&in[2], &r.out.shape, i))));
            assert_true(oracle_get(&r.din[1], i) == (hit ? dout : 0));
            oracle_add(sums, source(&in[2], &r.out.shape, i), hit ? 0 : dout);
        }
        for (int64_t i = 0; i < 41; i++)
            op_run_near(&r, "din", &r.din[2], i, sums.sum[i], 2 * ORACLE_U32 * sums.magnitude[i]);
        for (int64_t i = 0; floats && i < ab_tensor_count(&r.in[0]); i++)
            assert_true(oracle_get(&r.din[0], i) == 0);
        oracle_sums_close(&sums);
        op_run_close(&r);
    }
}

static void where_chooses_by_numbers_or_ids_and_passes_each_its_part(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) op_each_lane_count(run_where, &format[f]);
}

static void run_fill(bool causal, double value, const op_formats *formats) {
    ab_shape in[] = {{4, {2, 3, 9, 11}}, {4, {2, 1, 1, 11}}};
    op_attrs attrs = op_attrs_default(&ab_op_masked_fill);
    if (causal) op_attrs_set(&ab_op_masked_fill, &attrs, "causal", 1, 0);
    if (!causal) op_attrs_set(&ab_op_masked_fill, &attrs, "equals", -2, 0);
    if (isfinite(value)) op_attrs_set(&ab_op_masked_fill, &attrs, "value", value, 0);
    ab_exec exec = {.training = true};
    op_run r;
    op_run_open(&r, &ab_op_masked_fill, &attrs, in, causal ? 1 : 2, *formats, &exec);
    op_run_fill_all(&r, 3);
    for (int64_t i = 0; i < 22 && !causal; i++) ((int32_t *)r.in[1].data)[i] = (int32_t)(i % 4) - 2;
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    for (int64_t i = 0; i < ab_tensor_count(&r.out); i++) {
        int64_t column = i % 11, row = i / 11 % 9, image = i / 297;
        bool hit = causal ? column > row + 2 : (image * 11 + column) % 4 == 0;
        double filled = oracle_round(r.out.format, value);
        assert_true(oracle_get(&r.out, i) == (hit ? filled : oracle_get(&r.in[0], i)));
        assert_true(oracle_get(&r.din[0], i) == (hit ? 0 : oracle_get(&r.dout, i)));
    }
    op_run_close(&r);
}

static void masks_cover_padding_or_the_future(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) {
        run_fill(true, -(double)INFINITY, &format[f]);
        run_fill(false, -1e9, &format[f]); /* minus infinity in fp16 */
    }
}

/* ---- bits and bad shapes --------------------------------------------------------------------- */

static void gradients_that_are_sums_do_not_depend_on_the_lanes(void **state) {
    (void)state;
    ab_shape in[] = {{3, {33, 70, 90}}, {1, {90}}};
    op_attrs attrs = op_attrs_default(&ab_op_div);
    ab_exec exec = {.training = true};
    op_run r[3];
    for (int threads = 3; threads >= 1; threads--) {
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        op_run_open(&r[threads - 1], &ab_op_div, &attrs, in, 2,
                    (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec);
        op_run_fill_all(&r[threads - 1], 3);
        assert_int_equal(op_run_prepare(&r[threads - 1]), AB_OK);
        op_run_both(&r[threads - 1]);
    }
    for (int k = 1; k < 3; k++) op_run_same_results(&r[0], &r[k]);
    for (int k = 0; k < 3; k++) op_run_close(&r[k]);
}

static void refused(const ab_op *op, const op_attrs *attrs, const ab_shape *in, int inputs,
                    const char *part) {
    ab_shape out;
    assert_int_equal(op->infer(attrs, in, inputs, &out), AB_CONFIG);
    if (!strstr(ab_error_message(), part)) fail_msg("%s", ab_error_message());
}

static void shapes_and_numbers_that_do_not_fit_are_named(void **state) {
    (void)state;
    ab_shape in[] = {{3, {2, 3, 5}}, {3, {2, 4, 5}}, {1, {5}}};
    op_attrs plain = op_attrs_default(&ab_op_mul), number = plain;
    op_attrs_set(&ab_op_mul, &number, "value", 3, 0);
    refused(&ab_op_mul, &plain, in, 2, "mul cannot broadcast [2, 3, 5] and [2, 4, 5]");
    refused(&ab_op_div, &plain, in, 1, "div expects two inputs, or one and a number 'value'");
    refused(&ab_op_sub, &number, in, 2, "sub expects two inputs, or one and a number 'value'");
    op_attrs mask = op_attrs_default(&ab_op_masked_fill);
    refused(&ab_op_masked_fill, &mask, in, 1, "or 'causal': true");
    refused(&ab_op_masked_fill, &mask, in, 2, "the mask [2, 4, 5] to [2, 3, 5]");
    ab_shape small[] = {{1, {5}}, {3, {2, 4, 5}}};
    refused(&ab_op_masked_fill, &mask, small, 2, "the mask [2, 4, 5] to [5]"); /* in place in torch */
    op_attrs where = op_attrs_default(&ab_op_where);
    refused(&ab_op_where, &where, in, 3, "the condition [2, 3, 5] and [2, 4, 5], [5]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_of_one_number_match_their_definitions),
        cmocka_unit_test(half_results_overflow_and_vanish_as_torchs_do),
        cmocka_unit_test(functions_of_two_numbers_broadcast_and_sum_gradients),
        cmocka_unit_test(only_what_a_wanted_gradient_reads_is_kept),
        cmocka_unit_test(where_chooses_by_numbers_or_ids_and_passes_each_its_part),
        cmocka_unit_test(masks_cover_padding_or_the_future),
        cmocka_unit_test(gradients_that_are_sums_do_not_depend_on_the_lanes),
        cmocka_unit_test(shapes_and_numbers_that_do_not_fit_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
