/* gelu (both forms), silu, tanh, sigmoid against libm in double: over their whole range, in every format, on
 * every CPU level and thread count with the same bits; what NaN and infinities give. */
#include "oracle/op_run.h"

#include "oracle/jacobian.h"

typedef struct activation {
    const ab_op *op;
    double approximate; /* of gelu */
    double (*f)(double x);
    double ulps; /* of 2^-24 relative, beside what the rounding of the argument moves */
} activation;

static double gelu_none(double x) { return 0.5 * x * erfc(-x / sqrt(2.0)); }
/* (1 + tanh u) / 2 = 1 / (1 + exp(-2 u)), which keeps its digits where tanh u is -1. */
static double gelu_tanh(double x) {
    return x / (1.0 + exp(-2.0 * sqrt(2.0 / acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
static double sigmoid_of(double x) { return 1.0 / (1.0 + exp(-x)); }
static double silu_of(double x) { return x / (1.0 + exp(-x)); }

static const activation all[] = {{&ab_op_gelu, 0, gelu_none, 12},
                                 {&ab_op_gelu, 1, gelu_tanh, 12},
                                 {&ab_op_silu, 0, silu_of, 6},
                                 {&ab_op_tanh, 0, tanh, 6},
                                 {&ab_op_sigmoid, 0, sigmoid_of, 6}};

enum { POINTS = 4099 };

/* Dense near 0, out to where the functions have become 0, 1 or x. */
static double point(int64_t i) {
    double t = 2.0 * (double)i / (POINTS - 1) - 1.0;
    return 12.0 * t * t * t;
}

static void open_points(op_run *r, const void *self, op_formats formats) {
    const activation *a = self;
    static op_attrs attrs; /* borrowed by the run */
    ab_exec exec = {.training = true};
    ab_shape shape = {.ndim = 2, .dim = {1, POINTS}};
    attrs = op_attrs_default(a->op);
    if (a->op == &ab_op_gelu) op_attrs_set(a->op, &attrs, "approximate", a->approximate, 0);
    op_run_open(r, a->op, &attrs, &shape, 1, formats, &exec);
    op_run_fill_all(r, 5);
    for (int64_t i = 0; i < POINTS; i++) oracle_put(&r->in[0], i, point(i));
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static double slope(double (*f)(double), double x) {
    double h = 1e-3;
    return (f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h);
}

static void check_points(const op_run *r, const void *self) {
    const activation *a = self;
    bool reads_out = a->op->backward_needs == AB_NEEDS_OUT;
    for (int64_t i = 0; i < POINTS; i++) {
        double x = oracle_get(&r->in[0], i), y = a->f(x), dy = oracle_get(&r->dout, i), d = slope(a->f, x);
        op_run_near(r, "out", &r->out, i, y, a->ulps * ORACLE_U32 * (fabs(y) + fabs(x * d)) + 0x1p-140);
        double stored = oracle_get(&r->out, i), bound = 1e-10;
        if (reads_out) d = a->op == &ab_op_tanh ? 1.0 - stored * stored : stored * (1.0 - stored);
        /* the slope is a sum of two terms that may cancel: 1 - y of a y near 1 is exact, x s (1 - s) + s is
         * not */
        bound += ORACLE_U32 * fabs(dy) * (reads_out ? 4.0 * fabs(d) : a->ulps * (fabs(d) + 1.0));
        op_run_near(r, "din", &r->din[0], i, dy * d, bound);
    }
}

static void values_and_slopes_match_libm_with_the_same_bits_everywhere(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(all); k++)
        oracle_run_all((oracle_run){.open = open_points, .check = check_points, .self = &all[k]});
}

/* The formulas that read the output agree with the slope of the function itself. */
static void slopes_from_the_output_are_slopes_of_the_function(void **state) {
    (void)state;
    for (int64_t i = 0; i < POINTS; i += 7) {
        double x = point(i), t = tanh(x), s = sigmoid_of(x);
        assert_true(fabs(slope(tanh, x) - (1.0 - t * t)) < 1e-10);
        assert_true(fabs(slope(sigmoid_of, x) - s * (1.0 - s)) < 1e-10);
    }
}

/* torch 2.11, CPU: gelu(-inf) is nan (0 times inf) in the erf form. */
static void special_values_pass_as_in_torch(void **state) {
    (void)state;
    const double in[] = {(double)NAN, (double)INFINITY, (double)-INFINITY, 0.0, -0.0, 100.0, -100.0};
    for (size_t k = 0; k < AB_COUNT_OF(all); k++) {
        ab_shape shape = {.ndim = 1, .dim = {AB_COUNT_OF(in)}};
        ab_exec exec = {.training = true};
        op_attrs attrs = op_attrs_default(all[k].op);
        op_run r;
        if (all[k].op == &ab_op_gelu) op_attrs_set(all[k].op, &attrs, "approximate", all[k].approximate, 0);
        op_run_open(&r, all[k].op, &attrs, &shape, 1, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL},
                    &exec);
        for (size_t i = 0; i < AB_COUNT_OF(in); i++) {
            oracle_put(&r.in[0], (int64_t)i, in[i]);
            oracle_put(&r.dout, (int64_t)i, 1.0);
        }
        op_run_both(&r);
        bool bounded = all[k].op == &ab_op_tanh || all[k].op == &ab_op_sigmoid;
        assert_true(isnan(oracle_get(&r.out, 0)));
        assert_true(isnan(oracle_get(&r.din[0], 0)));
        assert_true(oracle_get(&r.out, 1) == (bounded ? 1.0 : (double)INFINITY));
        assert_true(bounded || isnan(oracle_get(&r.out, 2)));
        assert_true(oracle_get(&r.out, 3) == all[k].f(0.0));
        assert_true(oracle_get(&r.out, 5) == (bounded ? 1.0 : 100.0));
        assert_true(fabs(oracle_get(&r.out, 6)) <= 1.0);
        op_run_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_and_slopes_match_libm_with_the_same_bits_everywhere),
        cmocka_unit_test(slopes_from_the_output_are_slopes_of_the_function),
        cmocka_unit_test(special_values_pass_as_in_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
