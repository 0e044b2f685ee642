/* conv2d against a double-precision oracle: every format, path, thread count and CPU level; odd sizes, strides, padding,
 * dilation, groups. The bound is (terms + 2) u times the sum of magnitudes plus half a unit of the stored format. */
#include "oracle/op_run.h"

#include "oracle/conv.h"
#include "oracle/gradient.h"

typedef struct conv_case {
    int64_t n, h, w, c, oc, kh, kw, sh, sw, ph, pw, dh, dw, groups;
    bool bias;
} conv_case;

static const conv_case cases[] = {
    {2, 7, 9, 3, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},     {1, 8, 5, 1, 6, 5, 3, 2, 1, 2, 0, 1, 1, 1, true},
    {2, 9, 9, 4, 6, 3, 3, 1, 1, 2, 2, 2, 2, 2, true},     {3, 6, 6, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, false},
    {2, 11, 7, 6, 16, 5, 5, 1, 1, 0, 0, 1, 1, 1, true},   {1, 5, 5, 8, 8, 1, 1, 2, 2, 0, 0, 1, 1, 1, true},
    {2, 7, 7, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 8, true},     {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, true},
    {2, 10, 11, 16, 32, 3, 3, 2, 2, 1, 1, 1, 1, 1, true}, {2, 12, 13, 1, 6, 5, 5, 1, 1, 0, 0, 1, 1, 1, true},
    {9, 12, 20, 3, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},  {1, 9, 6, 2, 9, 4, 2, 3, 2, 1, 1, 2, 3, 1, true},
};

/* The oracle's answer for one case and format. */
typedef struct expected {
    oracle_conv shape;
    int64_t in_count, out_count, w_count;
    double *in, *weight, *bias, *dout;
    oracle_sums out, din, dweight, dbias;
} expected;

static double *doubles(int64_t n) {
    double *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

static oracle_sums sums(int64_t n) { return (oracle_sums){doubles(n), doubles(n)}; }

static double *values_of(const ab_tensor *tensor) {
    double *v = doubles(ab_tensor_count(tensor));
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) v[i] = oracle_get(tensor, i);
    return v;
}

static oracle_conv oracle_shape(const conv_case *k, const ab_shape *out) {
    return (oracle_conv){k->n,  k->h,  k->w,  k->c,  k->oc, k->kh,     k->kw,       k->sh,
                         k->sw, k->ph, k->pw, k->dh, k->dw, k->groups, out->dim[1], out->dim[2]};
}

static void solve(expected *e) {
    for (int64_t i = 0; e->bias && i < e->out_count; i++) oracle_add(e->out, i, e->bias[i % e->shape.oc]);
    oracle_conv_all(&e->shape, e->in, e->weight, e->dout, e->out, e->din, e->dweight);
    for (int64_t i = 0; i < e->out_count; i++) oracle_add(e->dbias, i % e->shape.oc, e->dout[i]);
}

static expected expect(const conv_case *k, const op_run *r) {
    expected e = {.shape = oracle_shape(k, &r->out.shape),
                  .in_count = ab_tensor_count(&r->in[0]),
                  .out_count = ab_tensor_count(&r->out),
                  .w_count = ab_tensor_count(&r->param[0])};
    e.in = values_of(&r->in[0]);
    e.weight = values_of(&r->param[0]);
    e.bias = k->bias ? values_of(&r->param[1]) : NULL;
    e.dout = values_of(&r->dout);
    e.out = sums(e.out_count);
    e.din = sums(e.in_count);
    e.dweight = sums(e.w_count);
    e.dbias = sums(k->oc);
    solve(&e);
    return e;
}

static void forget(expected *e) {
    double *all[] = {e->in,          e->weight,
                     e->bias,        e->dout,
                     e->out.sum,     e->out.magnitude,
                     e->din.sum,     e->din.magnitude,
                     e->dweight.sum, e->dweight.magnitude,
                     e->dbias.sum,   e->dbias.magnitude};
    for (size_t i = 0; i < AB_COUNT_OF(all); i++) free(all[i]);
}

static op_attrs attrs_of(const conv_case *k) {
    const ab_op *op = &ab_op_conv2d;
    op_attrs a = op_attrs_default(op);
    op_attrs_set(op, &a, "out_channels", (double)k->oc, 0);
    op_attrs_set(op, &a, "kernel_size", (double)k->kh, (double)k->kw);
    op_attrs_set(op, &a, "stride", (double)k->sh, (double)k->sw);
    op_attrs_set(op, &a, "padding", (double)k->ph, (double)k->pw);
    op_attrs_set(op, &a, "dilation", (double)k->dh, (double)k->dw);
    op_attrs_set(op, &a, "groups", (double)k->groups, 0);
    op_attrs_set(op, &a, "bias", k->bias, 0);
    return a;
}

static void open_case(op_run *r, const conv_case *k, const op_attrs *attrs, op_formats formats,
                      const ab_exec *exec) {
    ab_shape in = {.ndim = 4, .dim = {k->n, k->h, k->w, k->c}};
    op_run_open(r, &ab_op_conv2d, attrs, &in, 1, formats, exec);
    op_run_fill_all(r, (uint64_t)(k - cases) + 1);
}

static void near_all(const op_run *r, const char *what, const ab_tensor *tensor, oracle_sums expected_sums,
                     int64_t terms) {
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++)
        op_run_near(r, what, tensor, i, expected_sums.sum[i],
                    (double)(terms + 2) * ORACLE_U32 * expected_sums.magnitude[i]);
}

typedef struct run_spec {
    const conv_case *k;
    op_formats formats;
    ab_cpu_path path;
    const expected *e;
} run_spec;

static void run_and_compare(const void *argument) {
    const run_spec *s = argument;
    op_attrs attrs = attrs_of(s->k);
    ab_exec exec = {.training = true, .path = s->path};
    const oracle_conv *c = &s->e->shape;
    op_run r;
    open_case(&r, s->k, &attrs, s->formats, &exec);
    ab_status status = op_run_prepare(&r);
    if (status == AB_OK) {
        op_run_both(&r);
        near_all(&r, "out", &r.out, s->e->out, c->c / c->groups * c->kh * c->kw + 1);
        near_all(&r, "din", &r.din[0], s->e->din, c->oc / c->groups * c->kh * c->kw);
        near_all(&r, "dweight", &r.dparam[0], s->e->dweight, c->n * c->oh * c->ow);
        if (s->k->bias) near_all(&r, "dbias", &r.dparam[1], s->e->dbias, c->n * c->oh * c->ow);
    } else {
        assert_int_equal(s->path, AB_PATH_NATIVE);
        assert_int_equal(status, AB_UNAVAILABLE);
    }
    op_run_close(&r);
}

static void every_case_format_and_path_matches_the_oracle(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++)
        for (int f = 0; f < formats; f++) {
            op_attrs attrs = attrs_of(&cases[i]);
            ab_exec exec = {0};
            op_run r;
            open_case(&r, &cases[i], &attrs, format[f], &exec);
            expected e = expect(&cases[i], &r);
            for (int path = AB_PATH_AUTO; path <= AB_PATH_REFERENCE; path++) {
                run_spec s = {&cases[i], format[f], (ab_cpu_path)path, &e};
                op_each_machine(run_and_compare, &s);
            }
            forget(&e);
            op_run_close(&r);
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_format_and_path_matches_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
