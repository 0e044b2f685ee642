/* An op against a forward function in double and nothing else: its derivatives are fourth-order central
 * differences of that function (good to about 1e-11), so no gradient is written down twice.
 *
 * Bounds: an output may be off by what `factor` roundings of the inputs and of itself move it (its
 * condition); a gradient by `factor` roundings of the terms dout_j * d out_j / d x_i it is the sum of. */
#ifndef AB_TESTS_ORACLE_JACOBIAN_H
#define AB_TESTS_ORACLE_JACOBIAN_H

#include "oracle/doubles.h"

/* out = f(x[0], x[1], ...): first the op's inputs, then its parameters. Integer inputs arrive as doubles. */
typedef void (*oracle_forward)(const void *self, double *const *x, double *out);

enum { ORACLE_TENSORS = AB_MAX_INPUTS + AB_MAX_PARAMS };

typedef struct oracle_jacobian {
    oracle_forward f;
    const void *self;
    int tensors, inputs;
    const ab_tensor *tensor[ORACLE_TENSORS];
    const ab_tensor *gradient[ORACLE_TENSORS]; /* what the op wrote; NULL: none */
    double *x[ORACLE_TENSORS];
    int64_t outs;
    double *out, *condition; /* condition[j] = sum of |x_i d out_j / d x_i| */
    double *total[ORACLE_TENSORS], *magnitude[ORACLE_TENSORS]; /* of the gradient's terms */
} oracle_jacobian;

static inline double *oracle_ids(const ab_tensor *tensor) {
    double *v = oracle_doubles(ab_tensor_count(tensor));
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) v[i] = (double)((const int32_t *)tensor->data)[i];
    return v;
}

static inline void oracle_jacobian_column(oracle_jacobian *o, int t, int64_t i, const double *dout,
                                          double *const column[4]) {
    static const double steps[] = {-2.0, -1.0, 1.0, 2.0}, weights[] = {1.0, -8.0, 8.0, -1.0};
    double keep = o->x[t][i], h = 1e-3 * fmax(0.1, fmin(1.0, fabs(keep)));
    for (int k = 0; k < 4; k++) {
        o->x[t][i] = keep + steps[k] * h;
        o->f(o->self, o->x, column[k]);
    }
    o->x[t][i] = keep;
    for (int64_t j = 0; j < o->outs; j++) {
        double slope = 0.0;
        for (int k = 0; k < 4; k++) slope += weights[k] * column[k][j];
        slope /= 12.0 * h;
        o->condition[j] += fabs(keep * slope);
        o->total[t][i] += dout[j] * slope;
        o->magnitude[t][i] += fabs(dout[j] * slope);
    }
}

/* Reads the run's tensors (before or after it ran: nothing that is read changes). */
static inline oracle_jacobian oracle_jacobian_open(const op_run *r, oracle_forward f, const void *self) {
    oracle_jacobian o = {.f = f, .self = self, .inputs = r->inputs, .tensors = r->inputs + r->params};
    double *dout = oracle_values(&r->dout), *column[4];
    o.outs = ab_tensor_count(&r->out);
    o.out = oracle_doubles(o.outs);
    o.condition = oracle_doubles(o.outs);
    for (int k = 0; k < 4; k++) column[k] = oracle_doubles(o.outs);
    for (int t = 0; t < o.tensors; t++) {
        int p = t - r->inputs;
        o.tensor[t] = p < 0 ? &r->in[t] : &r->param[p];
        o.gradient[t] = p < 0 ? r->io.din[t] : r->io.dparam[p];
        o.x[t] = o.tensor[t]->format ? oracle_values(o.tensor[t]) : oracle_ids(o.tensor[t]);
        o.total[t] = oracle_doubles(ab_tensor_count(o.tensor[t]));
        o.magnitude[t] = oracle_doubles(ab_tensor_count(o.tensor[t]));
    }
    f(self, o.x, o.out);
    for (int t = 0; t < o.tensors; t++)
        for (int64_t i = 0; o.tensor[t]->format && i < ab_tensor_count(o.tensor[t]); i++)
            oracle_jacobian_column(&o, t, i, dout, column);
    for (int k = 0; k < 4; k++) free(column[k]);
    free(dout);
    return o;
}

static inline void oracle_jacobian_close(oracle_jacobian *o) {
    for (int t = 0; t < o->tensors; t++) {
        free(o->x[t]);
        free(o->total[t]);
        free(o->magnitude[t]);
    }
    free(o->out);
    free(o->condition);
}

static inline void oracle_jacobian_check_out(const op_run *r, const oracle_jacobian *o, double factor) {
    for (int64_t j = 0; j < o->outs; j++)
        op_run_near(r, "out", &r->out, j, o->out[j],
                    factor * ORACLE_U32 * (fabs(o->out[j]) + o->condition[j]) + 1e-44);
}

/* 1e-10: what the differences themselves are off by. An eighth of the tensor's largest term covers what
 * cancels inside a derivative, such as a softmax's. */
static inline void oracle_jacobian_check_gradients(const op_run *r, const oracle_jacobian *o, double factor) {
    static const char *const names[] = {"din", "dparam"};
    for (int t = 0; t < o->tensors; t++) {
        double largest = 0.0;
        for (int64_t i = 0; i < ab_tensor_count(o->tensor[t]); i++)
            largest = fmax(largest, o->magnitude[t][i]);
        for (int64_t i = 0; o->gradient[t] && i < ab_tensor_count(o->gradient[t]); i++)
            op_run_near(r, names[t >= o->inputs], o->gradient[t], i, o->total[t][i],
                        factor * ORACLE_U32 * (o->magnitude[t][i] + largest / 8.0) + 1e-10);
    }
}

/* ---- running an op over formats, threads and CPU levels -------------------------------------- */

/* One case of an op, filled and prepared by `open`; `check` gets the run after both passes. */
typedef struct oracle_run {
    void (*open)(op_run *r, const void *self, op_formats formats);
    void (*check)(const op_run *r, const void *self);
    const void *self;
    op_formats formats;
} oracle_run;

static inline void oracle_run_once(const void *argument) {
    const oracle_run *s = argument;
    op_run r;
    s->open(&r, s->self, s->formats);
    op_run_both(&r);
    s->check(&r, s->self);
    op_run_close(&r);
}

/* On this machine's level in every format, and that all thread counts and CPU levels store the same bits. */
static inline void oracle_run_all(oracle_run s) {
    static const op_formats all[] = {{&ab_format_fp32, &ab_format_fp32, NULL},
                                     {&ab_format_fp16, &ab_format_fp16, NULL},
                                     {&ab_format_bf16, &ab_format_bf16, NULL}};
    for (size_t f = 0; f < AB_COUNT_OF(all); f++) {
        op_run first, r;
        s.formats = all[f];
        oracle_run_once(&s);
        s.open(&first, s.self, s.formats);
        op_run_both(&first);
        for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++)
            for (int threads = 3; threads >= 1; threads--) {
                if (ab_isa_force((ab_isa)isa) != AB_OK) continue;
                assert_int_equal(ab_parallel_start(threads), AB_OK);
                s.open(&r, s.self, s.formats);
                op_run_both(&r);
                op_run_same_results(&first, &r);
                op_run_close(&r);
            }
        assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
        op_run_close(&first);
    }
}

#endif
