/* A recurrent op against its definition in double, with derivatives by differences: odd sizes, with and
 * without biases, several groups of samples; half formats with the rounding of every hidden state in the
 * definition too. The op's test gives one step of one sample. */
#ifndef ORACLE_RECURRENT_H
#define ORACLE_RECURRENT_H

#include "oracle/op_run.h"

#include "oracle/jacobian.h"

enum { RECURRENT_WIDEST = 32 }; /* hidden elements */

typedef struct recurrent_case {
    int64_t batch, steps, features, hidden;
    bool bias;
} recurrent_case;

/* The next hidden state h, and what the op keeps besides it: c, zeros at first. w: weights, then biases. */
typedef void (*recurrent_step)(const recurrent_case *k, double *const *w, const double *x, double *h,
                               double *c);

/* Defined by the op's test. */
typedef struct recurrent_op {
    const ab_op *op;
    recurrent_step step;
    int64_t gates;
    double half_error; /* of gradients, in half ulps of 1, beyond those of their terms */
} recurrent_op;
static const recurrent_op tested;

static const recurrent_case recurrent_cases[] = {{1, 1, 1, 1, true},  {2, 3, 4, 5, true},
                                                 {3, 4, 2, 3, false}, {17, 2, 3, 2, true},
                                                 {1, 7, 5, 11, true}, {2, 2, 9, 17, true}};

static double sigmoid_of(double x) { return 1.0 / (1.0 + exp(-x)); }

static void unroll(const void *self, double *const *x, double *out) {
    const recurrent_case *k = self;
    for (int64_t b = 0; b < k->batch; b++) {
        double h[RECURRENT_WIDEST] = {0}, c[RECURRENT_WIDEST] = {0};
        for (int64_t t = 0; t < k->steps; t++) {
            tested.step(k, x + 1, x[0] + (b * k->steps + t) * k->features, h, c);
            memcpy(out + (b * k->steps + t) * k->hidden, h, (size_t)k->hidden * sizeof *h);
        }
    }
}

static void open_case(op_run *r, const void *self, op_formats formats) {
    const recurrent_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    ab_shape in = {.ndim = 3, .dim = {k->batch, k->steps, k->features}};
    attrs = op_attrs_default(tested.op);
    op_attrs_set(tested.op, &attrs, "hidden_size", (double)k->hidden, 0);
    op_attrs_set(tested.op, &attrs, "bias", k->bias, 0);
    op_run_open(r, tested.op, &attrs, &in, 1, formats, &exec);
    op_run_fill_all(r, 31);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

/* In a half format each hidden state was rounded before the next step read it, so the definition is followed
 * step by step from the stored states; the difference that makes is part of the gradients' bound. */
static void check_half(const op_run *r, const recurrent_case *k, const oracle_jacobian *o) {
    double half_ulp = ldexp(1.0, -r->out.format->precision);
    for (int64_t b = 0; b < k->batch; b++) {
        double h[RECURRENT_WIDEST] = {0}, c[RECURRENT_WIDEST] = {0};
        for (int64_t t = 0; t < k->steps; t++) {
            tested.step(k, o->x + 1, o->x[0] + (b * k->steps + t) * k->features, h, c);
            for (int64_t j = 0; j < k->hidden; j++) {
                int64_t at = (b * k->steps + t) * k->hidden + j;
                op_run_near(r, "out", &r->out, at, h[j], 200.0 * ORACLE_U32);
                h[j] = oracle_get(&r->out, at);
            }
        }
    }
    for (int t = 0; t < o->tensors; t++)
        for (int64_t i = 0; o->gradient[t] && i < ab_tensor_count(o->gradient[t]); i++)
            op_run_near(r, "gradient", o->gradient[t], i, o->total[t][i],
                        half_ulp * (o->magnitude[t][i] * (double)(4 * k->steps) + tested.half_error));
}

static void check_case(const op_run *r, const void *self) {
    oracle_jacobian o = oracle_jacobian_open(r, unroll, self);
    if (r->out.format == &ab_format_fp32) {
        oracle_jacobian_check_out(r, &o, 40.0);
        oracle_jacobian_check_gradients(r, &o, 60.0);
    } else {
        check_half(r, self, &o);
    }
    oracle_jacobian_close(&o);
}

static void states_and_gradients_match_the_definition(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t k = 0; k < AB_COUNT_OF(recurrent_cases); k++)
        for (int f = 0; f < formats; f++) {
            oracle_run s = {
                .open = open_case, .check = check_case, .self = &recurrent_cases[k], .formats = format[f]};
            oracle_run_once(&s);
        }
}

static void bits_do_not_depend_on_the_lanes(void **state) {
    (void)state;
    static const recurrent_case large = {40, 9, 30, 64, true};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) {
        op_run r[3];
        for (int threads = 3; threads >= 1; threads--) {
            assert_int_equal(ab_parallel_start(threads), AB_OK);
            open_case(&r[threads - 1], &large, format[f]);
            op_run_both(&r[threads - 1]);
        }
        op_run_same_results(&r[0], &r[1]);
        op_run_same_results(&r[0], &r[2]);
        for (int i = 0; i < 3; i++) op_run_close(&r[i]);
    }
}

static void parameters_and_shapes_are_torchs(void **state) {
    (void)state;
    static const char *const names[] = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"};
    op_attrs attrs = op_attrs_default(tested.op);
    ab_shape in = {.ndim = 3, .dim = {2, 3, 5}}, flat = {.ndim = 2, .dim = {2, 5}}, out;
    ab_param_spec spec[AB_MAX_PARAMS];
    op_attrs_set(tested.op, &attrs, "hidden_size", 4, 0);
    assert_int_equal(tested.op->params(&attrs, &in, spec), 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(spec[i].name, names[i]);
        assert_int_equal(spec[i].shape.dim[0], tested.gates * 4);
        assert_true(spec[i].init == AB_INIT_UNIFORM && spec[i].init_bound == 0.5);
    }
    assert_int_equal(spec[0].shape.dim[1], 5);
    assert_int_equal(spec[1].shape.dim[1], 4);
    assert_int_equal(tested.op->infer(&attrs, &in, 1, &out), AB_OK);
    assert_int_equal(out.dim[2], 4);
    assert_int_equal(tested.op->infer(&attrs, &flat, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[2, 5]"));
}

static int run_recurrent_tests(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_and_gradients_match_the_definition),
        cmocka_unit_test(bits_do_not_depend_on_the_lanes),
        cmocka_unit_test(parameters_and_shapes_are_torchs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
