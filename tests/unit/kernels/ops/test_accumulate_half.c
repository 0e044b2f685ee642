/* accumulate_half: every product and every partial sum is rounded to the half format, in the documented
 * order. Checked bit for bit against a sequential sum in double with its own rounding, and in closed form: a
 * sum of ones sticks at 2^precision. */
#include "oracle/op_run.h"

#include "oracle/doubles.h"

static const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};

/* fp16 counts to 2048, bf16 to 256. */
static double sticking_point(const ab_format *format) { return ldexp(1.0, format->precision); }

static void fill_ones(const ab_tensor *tensor) {
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) oracle_put(tensor, i, 1.0);
}

static void expect_all(const ab_tensor *tensor, double value) {
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++)
        if (oracle_get(tensor, i) != value)
            fail_msg("element %lld is %g, expected %g", (long long)i, oracle_get(tensor, i), value);
}

static op_attrs linear_attrs(double out) {
    op_attrs attrs = op_attrs_default(&ab_op_linear);
    op_attrs_set(&ab_op_linear, &attrs, "out_features", out, 0);
    return attrs;
}

/* All ones: out = features, din = out features, dweight = dbias = rows, as far as the format counts. */
static void ones(const ab_format *format, bool half, int64_t rows, int64_t in, int64_t out) {
    op_attrs attrs = linear_attrs((double)out);
    ab_shape shape = {.ndim = 2, .dim = {rows, in}};
    ab_exec exec = {.training = true, .accumulate_half = half};
    op_run r;
    op_run_open(&r, &ab_op_linear, &attrs, &shape, 1, (op_formats){format, format, NULL}, &exec);
    fill_ones(&r.in[0]);
    fill_ones(&r.param[0]);
    fill_ones(&r.dout);
    for (int64_t i = 0; i < out; i++) oracle_put(&r.param[1], i, 0.0);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    double most = half ? sticking_point(format) : (double)INFINITY;
    expect_all(&r.out, oracle_round(format, fmin((double)in, most)));
    expect_all(&r.din[0], oracle_round(format, fmin((double)out, most)));
    expect_all(&r.dparam[0], oracle_round(format, fmin((double)rows, most)));
    expect_all(&r.dparam[1], oracle_round(format, fmin((double)rows, most)));
    op_run_close(&r);
}

static void a_sum_of_ones_sticks_at_the_precision_of_the_format(void **state) {
    (void)state;
    for (size_t f = 0; f < AB_COUNT_OF(halves); f++) {
        ones(halves[f], true, 3, 4096, 2);
        ones(halves[f], true, 2, 3, 4096);
        ones(halves[f], true, 4096, 2, 3);
    }
}

static void fp32_accumulation_does_not_stick(void **state) {
    (void)state;
    for (size_t f = 0; f < AB_COUNT_OF(halves); f++) {
        ones(halves[f], false, 3, 4096, 2);
        ones(halves[f], false, 2, 3, 4096);
        ones(halves[f], false, 4096, 2, 3);
    }
}

/* ---- the documented order, step by step ------------------------------------------------------ */

typedef struct conv_case {
    int64_t n, h, w, c, oc, k, stride, padding, dilation, groups;
} conv_case;

static const conv_case cases[] = {{2, 6, 7, 3, 4, 3, 1, 1, 1, 1},
                                  {1, 9, 8, 4, 6, 3, 2, 2, 2, 2},
                                  {3, 5, 5, 1, 6, 5, 1, 0, 1, 1},
                                  {2, 1, 1, 70, 9, 1, 1, 0, 1, 1}};

typedef struct problem {
    const conv_case *k;
    const ab_format *format;
    int64_t oh, ow;
    double *in, *weight, *dout;
} problem;

static int64_t in_index(const problem *p, int64_t n, int64_t y, int64_t x, int64_t c) {
    const conv_case *k = p->k;
    if (y < 0 || y >= k->h || x < 0 || x >= k->w) return -1;
    return ((n * k->h + y) * k->w + x) * k->c + c;
}

static double step(const problem *p, double sum, double a, double b) {
    return oracle_round(p->format, sum + oracle_round(p->format, a * b));
}

static double forward_sum(const problem *p, int64_t n, int64_t oy, int64_t ox, int64_t o) {
    const conv_case *k = p->k;
    int64_t per_in = k->c / k->groups, group = o / (k->oc / k->groups);
    double sum = 0.0;
    for (int64_t ky = 0; ky < k->k; ky++)
        for (int64_t kx = 0; kx < k->k; kx++)
            for (int64_t i = 0; i < per_in; i++) {
                int64_t at = in_index(p, n, oy * k->stride + ky * k->dilation - k->padding,
                                      ox * k->stride + kx * k->dilation - k->padding, group * per_in + i);
                if (at >= 0)
                    sum = step(p, sum, p->in[at], p->weight[((o * per_in + i) * k->k + ky) * k->k + kx]);
            }
    return sum;
}

/* The output position that reads input position `at` through tap `tap`, or -1. */
static int64_t reader(const conv_case *k, int64_t at, int64_t tap, int64_t limit) {
    int64_t reach = at + k->padding - tap * k->dilation;
    return reach < 0 || reach % k->stride || reach / k->stride >= limit ? -1 : reach / k->stride;
}

static double data_sum(const problem *p, int64_t n, int64_t y, int64_t x, int64_t c) {
    const conv_case *k = p->k;
    int64_t per_in = k->c / k->groups, per_out = k->oc / k->groups, group = c / per_in;
    double sum = 0.0;
    for (int64_t ky = 0; ky < k->k; ky++)
        for (int64_t kx = 0; kx < k->k; kx++)
            for (int64_t o = group * per_out; o < (group + 1) * per_out; o++) {
                int64_t oy = reader(k, y, ky, p->oh), ox = reader(k, x, kx, p->ow);
                if (oy < 0 || ox < 0) continue;
                sum = step(p, sum, p->dout[((n * p->oh + oy) * p->ow + ox) * k->oc + o],
                           p->weight[((o * per_in + c % per_in) * k->k + ky) * k->k + kx]);
            }
    return sum;
}

static double weight_sum(const problem *p, int64_t o, int64_t i, int64_t ky, int64_t kx) {
    const conv_case *k = p->k;
    int64_t per_in = k->c / k->groups, group = o / (k->oc / k->groups);
    double sum = 0.0;
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t oy = 0; oy < p->oh; oy++)
            for (int64_t ox = 0; ox < p->ow; ox++) {
                int64_t at = in_index(p, n, oy * k->stride + ky * k->dilation - k->padding,
                                      ox * k->stride + kx * k->dilation - k->padding, group * per_in + i);
                if (at >= 0)
                    sum = step(p, sum, p->in[at], p->dout[((n * p->oh + oy) * p->ow + ox) * k->oc + o]);
            }
    return sum;
}

static void same(const char *what, const ab_tensor *tensor, int64_t i, double expected) {
    if (oracle_get(tensor, i) != expected)
        fail_msg("%s[%lld] is %.9g, expected %.9g", what, (long long)i, oracle_get(tensor, i), expected);
}

static void check_order(const op_run *r, const problem *p) {
    const conv_case *k = p->k;
    int64_t i = 0, per_in = k->c / k->groups;
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t oy = 0; oy < p->oh; oy++)
            for (int64_t ox = 0; ox < p->ow; ox++)
                for (int64_t o = 0; o < k->oc; o++) same("out", &r->out, i++, forward_sum(p, n, oy, ox, o));
    i = 0;
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t y = 0; y < k->h; y++)
            for (int64_t x = 0; x < k->w; x++)
                for (int64_t c = 0; c < k->c; c++) same("din", &r->din[0], i++, data_sum(p, n, y, x, c));
    i = 0;
    for (int64_t o = 0; o < k->oc; o++)
        for (int64_t c = 0; c < per_in; c++)
            for (int64_t ky = 0; ky < k->k; ky++)
                for (int64_t kx = 0; kx < k->k; kx++)
                    same("dweight", &r->dparam[0], i++, weight_sum(p, o, c, ky, kx));
}

static void run_case(const conv_case *k, const ab_format *format) {
    const ab_op *op = &ab_op_conv2d;
    op_attrs attrs = op_attrs_default(op);
    op_attrs_set(op, &attrs, "out_channels", (double)k->oc, 0);
    op_attrs_set(op, &attrs, "kernel_size", (double)k->k, (double)k->k);
    op_attrs_set(op, &attrs, "stride", (double)k->stride, (double)k->stride);
    op_attrs_set(op, &attrs, "padding", (double)k->padding, (double)k->padding);
    op_attrs_set(op, &attrs, "dilation", (double)k->dilation, (double)k->dilation);
    op_attrs_set(op, &attrs, "groups", (double)k->groups, 0);
    op_attrs_set(op, &attrs, "bias", 0, 0);
    ab_shape in = {.ndim = 4, .dim = {k->n, k->h, k->w, k->c}};
    ab_exec exec = {.training = true, .accumulate_half = true};
    op_run r;
    op_run_open(&r, op, &attrs, &in, 1, (op_formats){format, format, NULL}, &exec);
    op_run_fill_all(&r, (uint64_t)k->c);
    problem p = {k,
                 format,
                 r.out.shape.dim[1],
                 r.out.shape.dim[2],
                 oracle_values(&r.in[0]),
                 oracle_values(&r.param[0]),
                 oracle_values(&r.dout)};
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    check_order(&r, &p);
    assert_non_null(strstr(op->describe(&r.io, "forward"), "half accumulation"));
    free(p.in);
    free(p.weight);
    free(p.dout);
    op_run_close(&r);
}

static void all_cases(const void *format) {
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) run_case(&cases[i], format);
}

static void sums_are_rounded_step_by_step_in_the_documented_order(void **state) {
    (void)state;
    for (size_t f = 0; f < AB_COUNT_OF(halves); f++) op_each_lane_count(all_cases, halves[f]);
}

/* An op that runs in fp32 has no half format to accumulate in. */
static void fp32_ops_ignore_it(void **state) {
    (void)state;
    op_attrs attrs = linear_attrs(5);
    ab_shape shape = {.ndim = 2, .dim = {4, 300}};
    op_run r[2];
    for (int i = 0; i < 2; i++) {
        ab_exec exec = {.training = true, .accumulate_half = i == 1};
        op_run_open(&r[i], &ab_op_linear, &attrs, &shape, 1,
                    (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec);
        op_run_fill_all(&r[i], 3);
        assert_int_equal(op_run_prepare(&r[i]), AB_OK);
        op_run_both(&r[i]);
    }
    op_run_same_results(&r[0], &r[1]);
    op_run_close(&r[0]);
    op_run_close(&r[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sum_of_ones_sticks_at_the_precision_of_the_format),
        cmocka_unit_test(fp32_accumulation_does_not_stick),
        cmocka_unit_test(sums_are_rounded_step_by_step_in_the_documented_order),
        cmocka_unit_test(fp32_ops_ignore_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
