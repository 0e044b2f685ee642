/* conv2d against a double-precision oracle: every format, path, thread count and CPU level; odd sizes,
 * strides, padding, dilation, groups. The bound is (terms + 2) u times the sum of magnitudes plus half a unit
 * of the stored format. */
#include "oracle/op_run.h"

#include "kernels/vec/isa.h"
#include "oracle/conv.h"
#include "oracle/gradient.h"

typedef struct conv_case {
    int64_t n, h, w, c, oc, kh, kw, sh, sw, ph, pw, dh, dw, groups;
    bool bias;
} conv_case;

static const conv_case cases[] = {
    {2, 7, 9, 3, 5, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},
    {1, 8, 5, 1, 6, 5, 3, 2, 1, 2, 0, 1, 1, 1, true},
    {2, 9, 9, 4, 6, 3, 3, 1, 1, 2, 2, 2, 2, 2, true},
    {3, 6, 6, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, false},
    {2, 11, 7, 6, 16, 5, 5, 1, 1, 0, 0, 1, 1, 1, true},
    {1, 5, 5, 8, 8, 1, 1, 2, 2, 0, 0, 1, 1, 1, true},
    {2, 7, 7, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1, 8, true},
    {1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, true},
    {2, 10, 11, 16, 32, 3, 3, 2, 2, 1, 1, 1, 1, 1, true},
    {2, 12, 19, 1, 6, 5, 5, 1, 1, 0, 0, 1, 1, 1, true},
    {9, 12, 20, 3, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},
    {1, 9, 6, 2, 9, 4, 2, 3, 2, 1, 1, 2, 3, 1, true},
    {2, 9, 13, 2, 4, 3, 6, 2, 3, 1, 2, 1, 1, 1, true},
    {2, 11, 9, 2, 5, 3, 3, 1, 1, 1, 1, 3, 1, 1, true},
    {3, 4, 4, 5, 1, 4, 4, 1, 1, 3, 3, 1, 1, 1, false},
    /* pairs of bf16, tiles of AMX: several a row, an odd width, more images than blocks, a row of the kernel
       as long as allowed */
    {3, 9, 37, 6, 7, 3, 4, 1, 1, 1, 2, 1, 1, 1, true},
    {17, 6, 17, 8, 12, 2, 8, 1, 1, 0, 3, 1, 1, 1, true},
    {2, 7, 6, 8, 16, 3, 2, 1, 1, 2, 1, 1, 1, 1, false},
    /* direct: pairs of vectors, rows that no tile divides, strides, edges above and beside an image, few
       rows, kernel rows one after the other, no image under the first rows of results */
    {3, 5, 17, 16, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},
    {10, 4, 7, 32, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, false},
    {9, 7, 13, 16, 48, 3, 3, 2, 2, 1, 1, 1, 1, 1, true},
    {2, 8, 12, 32, 64, 1, 1, 2, 2, 0, 0, 1, 1, 1, false},
    {2, 10, 12, 6, 16, 5, 5, 1, 1, 0, 0, 1, 1, 1, true},
    {2, 1, 9, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},
    {1, 3, 9, 64, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, false},
    {2, 3, 8, 16, 16, 3, 3, 2, 1, 3, 1, 1, 1, 1, true},
    {1, 6, 9, 16, 32, 5, 5, 1, 2, 2, 2, 1, 1, 1, true},
    /* pairs of bf16, tiles of AMX: three and four of them side by side, more positions than tiles */
    {9, 5, 9, 48, 64, 3, 2, 1, 1, 2, 0, 1, 1, 1, true},
    /* narrow: one, two and three vectors of pixels a row, the last overlapping, for every count of channels
     */
    {1, 4, 21, 2, 1, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},
    {2, 3, 40, 1, 2, 2, 3, 1, 1, 0, 1, 1, 1, 1, true},
    {1, 4, 16, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1, false},
    {2, 3, 33, 1, 4, 3, 3, 1, 2, 1, 1, 1, 1, 1, true},
    {1, 3, 26, 2, 5, 1, 3, 1, 1, 0, 1, 1, 1, 1, true},
    {2, 3, 47, 1, 8, 3, 1, 1, 1, 1, 0, 1, 1, 1, true},
    /* where implementations of oneDNN are wrong (library_defects.c) */
    {1, 9, 6, 33, 5, 3, 1, 1, 1, 0, 0, 2, 1, 1, true},
    {2, 8, 1, 16, 3, 3, 3, 1, 2, 1, 1, 1, 1, 1, true},
    {2, 12, 12, 96, 12, 1, 2, 3, 2, 0, 0, 1, 1, 1, true},
};

/* The oracle's answer for one case and format. */
typedef struct expected {
    oracle_conv shape;
    double *in, *weight, *bias, *dout;
    oracle_sums out, din, dweight, dbias;
    int64_t out_count;
} expected;

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
    expected e = {.shape = oracle_shape(k, &r->out.shape), .out_count = ab_tensor_count(&r->out)};
    e.in = oracle_values(&r->in[0]);
    e.weight = oracle_values(&r->param[0]);
    e.bias = k->bias ? oracle_values(&r->param[1]) : NULL;
    e.dout = oracle_values(&r->dout);
    e.out = oracle_sums_open(e.out_count);
    e.din = oracle_sums_open(ab_tensor_count(&r->in[0]));
    e.dweight = oracle_sums_open(ab_tensor_count(&r->param[0]));
    e.dbias = oracle_sums_open(k->oc);
    solve(&e);
    return e;
}

static void forget(expected *e) {
    double *inputs[] = {e->in, e->weight, e->bias, e->dout};
    oracle_sums *results[] = {&e->out, &e->din, &e->dweight, &e->dbias};
    for (size_t i = 0; i < AB_COUNT_OF(inputs); i++) free(inputs[i]);
    for (size_t i = 0; i < AB_COUNT_OF(results); i++) oracle_sums_close(results[i]);
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
    op_run_fill_all(r, (uint64_t)(k->n * 1000 + k->h * 100 + k->c));
}

static void check_all(const op_run *r, const expected *e) {
    const oracle_conv *c = &e->shape;
    oracle_sums_check(r, "out", &r->out, e->out, c->c / c->groups * c->kh * c->kw + 1);
    oracle_sums_check(r, "din", &r->din[0], e->din, c->oc / c->groups * c->kh * c->kw);
    oracle_sums_check(r, "dweight", &r->dparam[0], e->dweight, c->n * c->oh * c->ow);
    if (r->params > 1) oracle_sums_check(r, "dbias", &r->dparam[1], e->dbias, c->n * c->oh * c->ow);
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
    op_run r;
    open_case(&r, s->k, &attrs, s->formats, &exec);
    ab_status status = op_run_prepare(&r);
    if (status == AB_OK) {
        op_run_both(&r);
        check_all(&r, s->e);
    } else {
        assert_int_equal(s->path, AB_PATH_NATIVE);
        assert_int_equal(status, AB_UNAVAILABLE);
    }
    op_run_close(&r);
}

/* Calls `body` with the oracle's answer for every case. */
static void each_case(op_formats formats, void (*body)(const run_spec *)) {
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        op_attrs attrs = attrs_of(&cases[i]);
        ab_exec exec = {0};
        op_run r;
        open_case(&r, &cases[i], &attrs, formats, &exec);
        expected e = expect(&cases[i], &r);
        run_spec s = {&cases[i], formats, AB_PATH_AUTO, &e};
        body(&s);
        forget(&e);
        op_run_close(&r);
    }
}

static void every_path(const run_spec *s) {
    run_spec one = *s;
    op_each_machine(run_and_compare, &one);
    for (int path = AB_PATH_NATIVE; path <= AB_PATH_REFERENCE; path++) {
        one.path = (ab_cpu_path)path;
        op_each_lane_count(run_and_compare, &one);
    }
}

static void every_case_format_and_path_matches_the_oracle(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) each_case(format[f], every_path);
}

static void each_tensor_may_have_its_own_format(void **state) {
    (void)state;
    each_case((op_formats){&ab_format_bf16, &ab_format_fp32, NULL}, every_path);
    each_case((op_formats){&ab_format_fp16, &ab_format_bf16, &ab_format_fp32}, every_path);
}

/* Large enough for the library's passes to be cut into slices of the batch: same sums, same bits with any
 * number of threads. */
static void a_large_batch_gives_the_same_bits_on_any_number_of_lanes(void **state) {
    (void)state;
    static const conv_case shapes[] = {{8, 14, 15, 12, 24, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},
                                       {11, 12, 13, 16, 32, 3, 3, 1, 1, 1, 1, 1, 1, 1, true}};
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_bf16};
    static const ab_cpu_path paths[] = {AB_PATH_AUTO, AB_PATH_NATIVE};
    for (int k = 0; k < 8; k++) {
        const conv_case large = shapes[k / 4];
        op_attrs attrs = attrs_of(&large);
        op_formats format = {formats[k / 2 % 2], formats[k / 2 % 2], NULL};
        op_run r[3];
        bool ready = true;
        for (int i = 0; i < 3 && ready; i++) {
            ab_exec exec = {.training = true, .path = paths[k % 2]};
            assert_int_equal(ab_parallel_start(3 - i), AB_OK);
            open_case(&r[i], &large, &attrs, format, &exec);
            ready = op_run_prepare(&r[i]) == AB_OK;
            if (ready) op_run_both(&r[i]);
            if (ready && i > 0) op_run_same_results(&r[0], &r[i]);
        }
        if (ready) {
            expected e = expect(&large, &r[0]);
            check_all(&r[0], &e);
            forget(&e);
        }
        for (int i = 0; i < (ready ? 3 : 1); i++) op_run_close(&r[i]);
    }
    assert_int_equal(ab_parallel_start(1), AB_OK);
}

/* ---- the oracle itself ----------------------------------------------------------------------- */

static double weighted_output(const void *self) {
    const expected *e = self;
    memset(e->out.sum, 0, (size_t)e->out_count * sizeof(double));
    memset(e->dbias.sum, 0, (size_t)e->shape.oc * sizeof(double));
    expected scratch = *e;
    scratch.din = oracle_sums_open(e->shape.n * e->shape.h * e->shape.w * e->shape.c);
    scratch.dweight =
        oracle_sums_open(e->shape.oc * e->shape.c / e->shape.groups * e->shape.kh * e->shape.kw);
    solve(&scratch);
    double total = 0.0;
    for (int64_t i = 0; i < e->out_count; i++) total += e->out.sum[i] * e->dout[i];
    oracle_sums_close(&scratch.din);
    oracle_sums_close(&scratch.dweight);
    return total;
}

static void finite_differences(const run_spec *s) {
    const expected *e = s->e;
    if (e->out_count > 600) return; /* each difference is a whole convolution */
    double *dbias = oracle_doubles(e->shape.oc);
    memcpy(dbias, e->dbias.sum, (size_t)e->shape.oc * sizeof(double));
    int64_t in_count = e->shape.n * e->shape.h * e->shape.w * e->shape.c;
    int64_t w_count = e->shape.oc * e->shape.c / e->shape.groups * e->shape.kh * e->shape.kw;
    assert_true(oracle_gradient_error(weighted_output, e, e->in, e->din.sum, in_count) < 1e-7);
    assert_true(oracle_gradient_error(weighted_output, e, e->weight, e->dweight.sum, w_count) < 1e-7);
    if (e->bias) assert_true(oracle_gradient_error(weighted_output, e, e->bias, dbias, e->shape.oc) < 1e-7);
    free(dbias);
}

static void the_oracle_agrees_with_finite_differences(void **state) {
    (void)state;
    each_case((op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, finite_differences);
}

/* ---- behaviour ------------------------------------------------------------------------------- */

static void new_weights_are_used_when_the_version_changes(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++)
        for (int path = AB_PATH_AUTO; path <= AB_PATH_REFERENCE; path++) {
            op_attrs attrs = attrs_of(&cases[3]);
            ab_exec exec = {.training = true, .path = (ab_cpu_path)path};
            op_run r;
            open_case(&r, &cases[3], &attrs, format[f], &exec);
            if (op_run_prepare(&r) == AB_OK) {
                op_run_both(&r);
                op_run_fill(&r.param[0], 777);
                r.io.params_version++;
                op_run_both(&r);
                expected e = expect(&cases[3], &r);
                check_all(&r, &e);
                forget(&e);
            }
            op_run_close(&r);
        }
}

static void unwanted_gradients_are_not_computed(void **state) {
    (void)state;
    for (int unwanted = 0; unwanted < 3; unwanted++) {
        op_attrs attrs = attrs_of(&cases[4]);
        ab_exec exec = {.training = true};
        op_run r;
        open_case(&r, &cases[4], &attrs, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL}, &exec);
        expected e = expect(&cases[4], &r);
        if (unwanted == 0) r.io.din[0] = NULL;
        if (unwanted == 1) r.io.dparam[0] = NULL;
        if (unwanted == 2) r.io.dparam[0] = r.io.dparam[1] = NULL;
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        if (unwanted != 0) oracle_sums_check(&r, "din", &r.din[0], e.din, 16 * 25);
        if (unwanted == 0) oracle_sums_check(&r, "dweight", &r.dparam[0], e.dweight, 2 * 7 * 3);
        if (unwanted != 2) oracle_sums_check(&r, "dbias", &r.dparam[1], e.dbias, 2 * 7 * 3);
        if (unwanted == 0) assert_string_equal(r.op->describe(&r.io, "backward_data"), "none");
        forget(&e);
        op_run_close(&r);
    }
}

/* 683 * 3 = 2049 is a tie in fp16; with the bias 2049.5 it must become 2050. Rounding first would give 2048.
 */
static void the_bias_is_added_before_the_one_rounding(void **state) {
    (void)state;
    static const conv_case one = {1, 2, 2, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1, 1, true};
    for (int path = AB_PATH_AUTO; path <= AB_PATH_REFERENCE; path++) {
        op_attrs attrs = attrs_of(&one);
        ab_exec exec = {.training = true, .path = (ab_cpu_path)path};
        op_run r;
        open_case(&r, &one, &attrs, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL}, &exec);
        for (int i = 0; i < 4; i++) oracle_put(&r.in[0], i, 683.0);
        oracle_put(&r.param[0], 0, 3.0);
        oracle_put(&r.param[1], 0, 0.5);
        if (op_run_prepare(&r) == AB_OK) {
            op_run_both(&r);
            for (int i = 0; i < 4; i++) assert_true(oracle_get(&r.out, i) == 2050.0);
        }
        op_run_close(&r);
    }
}

static void same_finiteness(const op_run *r, const char *what, const ab_tensor *tensor, int64_t i,
                            double exact) {
    double stored = oracle_get(tensor, i);
    if (!isfinite(stored) != !isfinite(exact))
        fail_msg("%s[%lld] is %g, expected %g (%s)", what, (long long)i, stored, exact,
                 r->op->describe(&r->io, strcmp(what, "out") == 0   ? "forward"
                                         : strcmp(what, "din") == 0 ? "backward_data"
                                                                    : "backward_weights"));
}

/* A gradient of infinity at output channel 0. cuDNN multiplies it by the zeros of the padding too (seen: 9.19
 * on an H100), as it does for PyTorch: there all weights of that channel may be non-finite. */
static void check_weight_gradient(const op_run *r, const expected *e) {
    const int64_t count = ab_tensor_count(&r->dparam[0]), of_a_channel = count / e->shape.oc;
    for (int64_t i = 0; i < count; i++) {
        const bool may_be_nan = op_run_device && i < of_a_channel && !isfinite(oracle_get(&r->dparam[0], i));
        if (!may_be_nan) same_finiteness(r, "dweight", &r->dparam[0], i, e->dweight.sum[i]);
    }
}

/* An infinity in one pixel reaches exactly the outputs whose windows contain it. */
static void infinities_stay_where_they_belong(void **state) {
    (void)state;
    static const size_t which[] = {0, 3, 4, 6, 9, 10, 18, 20, 24, 26};
    for (size_t k = 0; k < AB_COUNT_OF(which); k++)
        for (int path = AB_PATH_AUTO; path <= AB_PATH_REFERENCE; path++) {
            const conv_case *c = &cases[which[k]];
            op_attrs attrs = attrs_of(c);
            ab_exec exec = {.training = true, .path = (ab_cpu_path)path};
            op_run r;
            open_case(&r, c, &attrs, (op_formats){&ab_format_bf16, &ab_format_bf16, NULL}, &exec);
            int64_t in_at = (2 * c->w + 3) * c->c, out_at = 0; /* a corner: taps of its window are padding */
            oracle_put(&r.in[0], in_at, (double)INFINITY);
            oracle_put(&r.dout, out_at, (double)INFINITY);
            expected e = expect(c, &r);
            if (op_run_prepare(&r) == AB_OK) {
                op_run_both(&r);
                for (int64_t i = 0; i < e.out_count; i++) same_finiteness(&r, "out", &r.out, i, e.out.sum[i]);
                for (int64_t i = 0; i < ab_tensor_count(&r.din[0]); i++)
                    same_finiteness(&r, "din", &r.din[0], i, e.din.sum[i]);
                check_weight_gradient(&r, &e);
            }
            forget(&e);
            op_run_close(&r);
        }
}

static void bits_depend_neither_on_the_lanes_nor_on_the_run(void **state) {
    (void)state;
    static const size_t which[] = {0, 3, 4, 9, 12, 18, 20, 24};
    static const int threads[] = {2, 2, 1, 3};
    for (size_t k = 0; k < AB_COUNT_OF(which); k++)
        for (int path = AB_PATH_AUTO; path <= AB_PATH_REFERENCE; path++) {
            op_attrs attrs = attrs_of(&cases[which[k]]);
            op_run r[AB_COUNT_OF(threads)];
            bool ready = true;
            for (size_t i = 0; i < AB_COUNT_OF(threads); i++) {
                ab_exec exec = {.training = true, .path = (ab_cpu_path)path};
                assert_int_equal(ab_parallel_start(threads[i]), AB_OK);
                open_case(&r[i], &cases[which[k]], &attrs,
                          (op_formats){&ab_format_bf16, &ab_format_bf16, NULL}, &exec);
                ready = ready && op_run_prepare(&r[i]) == AB_OK;
                if (ready) op_run_both(&r[i]);
                if (ready && i > 0) op_run_same_results(&r[0], &r[i]);
            }
            for (size_t i = 0; i < AB_COUNT_OF(threads); i++) op_run_close(&r[i]);
        }
    assert_int_equal(ab_parallel_start(1), AB_OK);
}

/* Our own kernels compute the sums of a lane in one order at every vector width with FMA. */
static void own_kernels_give_the_same_bits_at_every_vector_width(void **state) {
    (void)state;
    static const conv_case own[] = {{2, 32, 32, 1, 6, 5, 5, 1, 1, 0, 0, 1, 1, 1, true},
                                    {2, 9, 23, 1, 7, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},
                                    {2, 14, 14, 6, 16, 5, 5, 1, 1, 0, 0, 1, 1, 1, true},
                                    {2, 8, 50, 3, 8, 3, 5, 1, 2, 1, 2, 1, 1, 1, true},
                                    {3, 6, 17, 16, 16, 3, 3, 1, 1, 1, 1, 1, 1, 1, true},
                                    {3, 9, 11, 32, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1, true}};
    static const ab_isa levels[] = {AB_ISA_AVX2, AB_ISA_AVX512};
    for (size_t k = 0; k < AB_COUNT_OF(own) && ab_isa_best() >= AB_ISA_AVX512; k++) {
        op_attrs attrs = attrs_of(&own[k]);
        op_run r[2];
        for (int i = 0; i < 2; i++) {
            ab_exec exec = {.training = true, .path = AB_PATH_CONVERT};
            assert_int_equal(ab_isa_force(levels[i]), AB_OK);
            open_case(&r[i], &own[k], &attrs, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec);
            assert_int_equal(op_run_prepare(&r[i]), AB_OK);
            op_run_both(&r[i]);
        }
        op_run_same_results(&r[0], &r[1]);
        expected e = expect(&own[k], &r[1]);
        check_all(&r[1], &e);
        forget(&e);
        for (int i = 0; i < 2; i++) op_run_close(&r[i]);
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

static void see_nothing(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

/* What is observed is computed in fp32 and rounded by itself, what is not where it is computed. */
static void observed_or_not(const void *format) {
    ab_observer observer = {.see = see_nothing};
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++) {
        op_attrs attrs = attrs_of(&cases[k]);
        op_run r[2];
        for (int i = 0; i < 2; i++) {
            ab_exec exec = {.training = true, .path = AB_PATH_CONVERT, .observer = i == 0 ? NULL : &observer};
            open_case(&r[i], &cases[k], &attrs, (op_formats){format, format, NULL}, &exec);
            assert_int_equal(op_run_prepare(&r[i]), AB_OK);
            op_run_both(&r[i]);
        }
        op_run_same_results(&r[0], &r[1]);
        for (int i = 0; i < 2; i++) op_run_close(&r[i]);
    }
}

static void half_results_have_the_same_bits_observed_or_not(void **state) {
    (void)state;
    op_each_machine(observed_or_not, &ab_format_fp16);
    op_each_machine(observed_or_not, &ab_format_bf16);
}

static void shapes_are_checked_with_a_message(void **state) {
    (void)state;
    op_attrs attrs = attrs_of(&cases[0]);
    ab_shape out, features = {.ndim = 2, .dim = {4, 10}}, small = {.ndim = 4, .dim = {1, 1, 3, 3}};
    conv_case valid = cases[0];
    valid.ph = 0;
    op_attrs unpadded = attrs_of(&valid);
    assert_int_equal(ab_op_conv2d.infer(&attrs, &features, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[4, 10]"));
    assert_int_equal(ab_op_conv2d.infer(&unpadded, &small, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[1, 1, 3, 3]"));
    op_attrs grouped = attrs_of(&cases[0]);
    op_attrs_set(&ab_op_conv2d, &grouped, "groups", 2, 0);
    ab_shape in = {.ndim = 4, .dim = {1, 8, 8, 3}};
    assert_int_equal(ab_op_conv2d.infer(&grouped, &in, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "groups 2"));
}

static void flops_count_two_per_multiply_add(void **state) {
    (void)state;
    op_attrs attrs = attrs_of(&cases[2]);
    ab_shape in = {.ndim = 4, .dim = {2, 9, 9, 4}}, out;
    assert_int_equal(ab_op_conv2d.infer(&attrs, &in, 1, &out), AB_OK);
    assert_true(ab_op_conv2d.flops(&attrs, &in, &out) == 2.0 * (2 * 9 * 9 * 6) * (2 * 3 * 3));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_format_and_path_matches_the_oracle),
        cmocka_unit_test(each_tensor_may_have_its_own_format),
        cmocka_unit_test(a_large_batch_gives_the_same_bits_on_any_number_of_lanes),
        cmocka_unit_test(the_oracle_agrees_with_finite_differences),
        cmocka_unit_test(new_weights_are_used_when_the_version_changes),
        cmocka_unit_test(unwanted_gradients_are_not_computed),
        cmocka_unit_test(the_bias_is_added_before_the_one_rounding),
        cmocka_unit_test(infinities_stay_where_they_belong),
        cmocka_unit_test(bits_depend_neither_on_the_lanes_nor_on_the_run),
        cmocka_unit_test(own_kernels_give_the_same_bits_at_every_vector_width),
        cmocka_unit_test(half_results_have_the_same_bits_observed_or_not),
        cmocka_unit_test(shapes_are_checked_with_a_message),
        cmocka_unit_test(flops_count_two_per_multiply_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
