/* rnn against the recurrence in double: states, gradients through time, half storage, both functions; the
 * oracle against finite differences. */
#include "oracle/doubles.h"
#include "oracle/gradient.h"
#include "oracle/op_run.h"

typedef struct rnn_case {
    int64_t batch, steps, features, hidden;
    bool relu, bias;
} rnn_case;

static const rnn_case cases[] = {
    {1, 1, 1, 1, false, true},    {2, 5, 3, 4, false, true},   {19, 7, 5, 33, true, true},
    {33, 4, 17, 9, false, false}, {3, 6, 8, 150, false, true}, {2, 1, 4, 3, true, false},
};

static op_attrs attrs_of(const rnn_case *k) {
    op_attrs a = op_attrs_default(&ab_op_rnn);
    op_attrs_set(&ab_op_rnn, &a, "hidden_size", (double)k->hidden, 0);
    op_attrs_set(&ab_op_rnn, &a, "nonlinearity", k->relu, 0);
    op_attrs_set(&ab_op_rnn, &a, "bias", k->bias, 0);
    return a;
}

static void open_case(op_run *r, const rnn_case *k, const op_attrs *attrs, op_formats formats) {
    ab_shape in = {3, {k->batch, k->steps, k->features}};
    ab_exec exec = {.training = true};
    op_run_open(r, &ab_op_rnn, attrs, &in, 1, formats, &exec);
    op_run_fill_all(r, 4);
    for (int p = 0; p < r->params; p++) /* small weights: errors do not grow through the steps */
        for (int64_t i = 0; i < ab_tensor_count(&r->param[p]); i++)
            oracle_put(&r->param[p], i, 0.6 * oracle_get(&r->param[p], i) / sqrt((double)k->hidden));
    assert_int_equal(op_run_prepare(r), AB_OK);
}

/* What the recurrence works on; `states` may be given (as they were stored) or computed. */
typedef struct recurrence {
    const rnn_case *k;
    const ab_format *stored;
    double *x, *w[4], *h, *dout;
    double *dx, *dw[4], *d;
} recurrence;

static double f_of(const rnn_case *k, double x) { return k->relu ? fmax(x, 0) : tanh(x); }

static double *row(double *base, const rnn_case *k, int64_t n, int64_t t, int64_t width) {
    return base + (n * k->steps + t) * width;
}

static void run_forward(recurrence *o) {
    const rnn_case *k = o->k;
    for (int64_t n = 0; n < k->batch; n++)
        for (int64_t t = 0; t < k->steps; t++)
            for (int64_t j = 0; j < k->hidden; j++) {
                double sum = k->bias ? o->w[2][j] + o->w[3][j] : 0;
                for (int64_t i = 0; i < k->features; i++)
                    sum += o->w[0][j * k->features + i] * row(o->x, k, n, t, k->features)[i];
                for (int64_t i = 0; t > 0 && i < k->hidden; i++)
                    sum += o->w[1][j * k->hidden + i] * row(o->h, k, n, t - 1, k->hidden)[i];
                double state = f_of(k, sum);
                row(o->h, k, n, t, k->hidden)[j] = o->stored ? oracle_round(o->stored, state) : state;
            }
}

/* From the states alone; sums from the last step to the first. */
static void run_backward(recurrence *o) {
    const rnn_case *k = o->k;
    for (int64_t n = 0; n < k->batch; n++)
        for (int64_t t = k->steps - 1; t >= 0; t--)
            for (int64_t j = 0; j < k->hidden; j++) {
                double g = row(o->dout, k, n, t, k->hidden)[j], h = row(o->h, k, n, t, k->hidden)[j];
                for (int64_t i = 0; t + 1 < k->steps && i < k->hidden; i++)
                    g += row(o->d, k, n, t + 1, k->hidden)[i] * o->w[1][i * k->hidden + j];
                g *= k->relu ? (h > 0 ? 1 : 0) : 1 - h * h;
                row(o->d, k, n, t, k->hidden)[j] = g;
                for (int64_t i = 0; i < k->features; i++) {
                    row(o->dx, k, n, t, k->features)[i] += g * o->w[0][j * k->features + i];
                    o->dw[0][j * k->features + i] += g * row(o->x, k, n, t, k->features)[i];
                }
                for (int64_t i = 0; t > 0 && i < k->hidden; i++)
                    o->dw[1][j * k->hidden + i] += g * row(o->h, k, n, t - 1, k->hidden)[i];
                for (int b = 2; k->bias && b < 4; b++) o->dw[b][j] += g;
            }
}

static recurrence open_oracle(const rnn_case *k, const op_run *r, const ab_format *stored) {
    const int64_t all = k->batch * k->steps;
    recurrence o = {.k = k, .stored = stored, .x = oracle_values(&r->in[0]), .dout = oracle_values(&r->dout)};
    o.h = oracle_doubles(all * k->hidden);
    o.d = oracle_doubles(all * k->hidden);
    o.dx = oracle_doubles(all * k->features);
    for (int p = 0; p < r->params; p++) {
        o.w[p] = oracle_values(&r->param[p]);
        o.dw[p] = oracle_doubles(ab_tensor_count(&r->param[p]));
    }
    return o;
}

static void close_oracle(recurrence *o) {
    double *all[] = {o->x, o->h, o->d, o->dx, o->dout};
    for (size_t i = 0; i < AB_COUNT_OF(all); i++) free(all[i]);
    for (int p = 0; p < 4; p++) {
        free(o->w[p]);
        free(o->dw[p]);
    }
}

static void near_all(const op_run *r, const char *what, const ab_tensor *tensor, const double *exact,
                     double error) {
    double largest = 0;
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) largest = fmax(largest, fabs(exact[i]));
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++)
        op_run_near(r, what, tensor, i, exact[i], error * (largest + fabs(exact[i])));
}

static void run_cases(const void *argument) {
    const op_formats *formats = argument;
    for (size_t c = 0; c < AB_COUNT_OF(cases); c++) {
        const rnn_case *k = &cases[c];
        op_attrs attrs = attrs_of(k);
        op_run r;
        open_case(&r, k, &attrs, *formats);
        op_run_both(&r);
        const bool half = formats->activation != &ab_format_fp32;
        recurrence o = open_oracle(k, &r, half ? formats->activation : NULL);
        run_forward(&o);
        /* half: a state that was rounded the other way moves the next one by that much */
        near_all(&r, "out", &r.out, o.h, half ? oracle_half_ulp(formats->activation, 1.0) * 2 : 4e-6);
        for (int64_t i = 0; i < ab_tensor_count(&r.out); i++) o.h[i] = oracle_get(&r.out, i);
        run_backward(&o); /* from the states as the op stored them */
        near_all(&r, "din", &r.din[0], o.dx, 4e-6);
        for (int p = 0; p < r.params; p++) near_all(&r, "dparam", &r.dparam[p], o.dw[p], 4e-6);
        close_oracle(&o);
        op_run_close(&r);
    }
}

static void states_and_gradients_match_the_recurrence(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) op_each_machine(run_cases, &format[f]);
}

static double weighted_states(const void *self) {
    recurrence o = *(const recurrence *)self;
    double sum = 0;
    run_forward(&o);
    for (int64_t i = 0; i < o.k->batch * o.k->steps * o.k->hidden; i++) sum += o.h[i] * o.dout[i];
    return sum;
}

static void the_oracle_agrees_with_finite_differences(void **state) {
    (void)state;
    const rnn_case *k = &cases[1];
    op_attrs attrs = attrs_of(k);
    op_run r;
    open_case(&r, k, &attrs, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL});
    recurrence o = open_oracle(k, &r, NULL);
    run_forward(&o);
    run_backward(&o);
    assert_true(oracle_gradient_error(weighted_states, &o, o.x, o.dx, k->batch * k->steps * k->features) <
                1e-6);
    for (int p = 0; p < 4; p++)
        assert_true(
            oracle_gradient_error(weighted_states, &o, o.w[p], o.dw[p], ab_tensor_count(&r.param[p])) < 1e-6);
    close_oracle(&o);
    op_run_close(&r);
}

static void bits_do_not_depend_on_the_lanes(void **state) {
    (void)state;
    op_attrs attrs = attrs_of(&cases[2]);
    op_run r[3];
    for (int threads = 3; threads >= 1; threads--) {
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        open_case(&r[threads - 1], &cases[2], &attrs, (op_formats){&ab_format_bf16, &ab_format_bf16, NULL});
        op_run_both(&r[threads - 1]);
    }
    for (int i = 1; i < 3; i++) op_run_same_results(&r[0], &r[i]);
    for (int i = 0; i < 3; i++) op_run_close(&r[i]);
}

static void images_are_refused(void **state) {
    (void)state;
    op_attrs attrs = attrs_of(&cases[1]);
    ab_shape in = {4, {2, 3, 3, 1}}, out;
    assert_int_equal(ab_op_rnn.infer(&attrs, &in, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "rnn expects [batch, steps, features], found [2, 3, 3, 1]"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(states_and_gradients_match_the_recurrence),
        cmocka_unit_test(the_oracle_agrees_with_finite_differences),
        cmocka_unit_test(bits_do_not_depend_on_the_lanes),
        cmocka_unit_test(images_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
