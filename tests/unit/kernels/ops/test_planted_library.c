/* Stand-ins for a library that does not keep infinities and NaNs where they belong, behind conv2d and matmul:
 * one spreads them over neighbouring outputs, as oneDNN 2.6 does with AMX; one loses them. */
#define _GNU_SOURCE
#include "oracle/op_run.h"

#include "kernels/ops/product/gemm.h"
#include "kernels/ops/product/pass.h"
#include "kernels/ops/product/product.h"
#include "kernels/ops/product/repairs.h"
#include "oracle/conv.h"

#ifdef AB_HAVE_DNNL
#include <dlfcn.h>
#include <oneapi/dnnl/dnnl.h>
#endif

enum { NEIGHBOURS = 16 };

typedef enum defect { NONE, SPREADS, LOSES } defect;
static defect planted;

/* A library's result of n values. */
static void spoil(float *result, int64_t n) {
    for (int64_t first = 0; first < n; first += NEIGHBOURS) {
        const int64_t end = first + NEIGHBOURS < n ? first + NEIGHBOURS : n;
        bool found = false;
        for (int64_t i = first; i < end; i++) {
            found = found || !isfinite(result[i]);
            if (planted == LOSES && !isfinite(result[i])) result[i] = 0.25f;
        }
        for (int64_t i = first; planted == SPREADS && found && i < end; i++) result[i] = NAN;
    }
}

/* ---- convolution ----------------------------------------------------------------------------- */

typedef struct stand_in {
    ab_pass base;
    ab_pass *honest;
    int64_t results;
} stand_in;

static ab_status run_stand_in(ab_pass *base, const ab_pass_args *args) {
    const stand_in *s = (const stand_in *)base;
    ab_status status = s->honest->run(s->honest, args);
    spoil(args->dst, s->results);
    return status;
}

static ab_status pack_stand_in(ab_pass *base, const void *weights, void *packed, void *scratch) {
    const stand_in *s = (const stand_in *)base;
    return s->honest->pack(s->honest, weights, packed, scratch);
}

static void destroy_stand_in(ab_pass *base) {
    stand_in *s = (stand_in *)base;
    s->honest->destroy(s->honest);
    free(s);
}

static ab_status make_stand_in(const ab_pass_spec *spec, ab_pass **pass) {
    const ab_window *w = &spec->conv.window;
    const int64_t in = spec->conv.batch * w->in[0] * w->in[1] * w->channels,
                  out = spec->conv.batch * w->out[0] * w->out[1] * spec->conv.out_channels;
    stand_in *s = calloc(1, sizeof *s);
    *pass = NULL;
    assert_non_null(s);
    assert_int_equal(ab_reference_pass(spec, &s->honest), AB_OK);
    s->base = *s->honest;
    s->base.keeps_nonfinite = false;
    s->base.pack = s->honest->pack ? pack_stand_in : NULL;
    s->base.run = run_stand_in;
    s->base.destroy = destroy_stand_in;
    s->results = spec->kind == AB_PASS_FORWARD         ? out
                 : spec->kind == AB_PASS_BACKWARD_DATA ? in
                                                       : spec->conv.out_channels * w->channels /
                                                             spec->conv.groups * w->kernel[0] * w->kernel[1];
    *pass = &s->base;
    return AB_OK;
}

static ab_conv conv = {.window = {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 1}, .dilation = {1, 2}},
                       .batch = 8,
                       .out_channels = 20,
                       .groups = 2};
static const ab_shape image = {.ndim = 4, .dim = {8, 17, 16, 18}};

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    static const ab_product_kind kind = {.what = "conv2d", .library = make_stand_in};
    ab_window_place(&conv.window, &io->in[0]->shape, &io->out->shape);
    return ab_product_prepare(exec, io, &kind, &conv, workspace_bytes, state_bytes);
}

static ab_op planted_conv(op_attrs *attrs) {
    ab_op op = ab_op_conv2d;
    op.prepare = prepare;
    *attrs = op_attrs_default(&op);
    op_attrs_set(&op, attrs, "out_channels", (double)conv.out_channels, 0);
    op_attrs_set(&op, attrs, "kernel_size", 3, 3);
    op_attrs_set(&op, attrs, "stride", 2, 1);
    op_attrs_set(&op, attrs, "padding", 1, 1);
    op_attrs_set(&op, attrs, "dilation", 1, 2);
    op_attrs_set(&op, attrs, "groups", (double)conv.groups, 0);
    op_attrs_set(&op, attrs, "bias", 1, 0);
    return op;
}

/* Where infinities are put: nowhere, in the input, in the gradient of the output, in a weight, in the bias.
 */
enum { NOWHERE, IN_INPUT, IN_DOUT, IN_WEIGHT, IN_BIAS, PLACES };

static void plant(const op_run *r, int place) {
    const ab_tensor *tensor[PLACES] = {
        [IN_INPUT] = &r->in[0], [IN_DOUT] = &r->dout, [IN_WEIGHT] = &r->param[0], [IN_BIAS] = &r->param[1]};
    op_run_fill_all((op_run *)(uintptr_t)r, 5);
    if (!tensor[place]) return;
    const int64_t n = ab_tensor_count(tensor[place]);
    oracle_put(tensor[place], 0, (double)INFINITY);
    oracle_put(tensor[place], n / 2, (double)NAN);
    oracle_put(tensor[place], n - 1, -(double)INFINITY);
}

static void run(op_run *r, const ab_op *op, const op_attrs *attrs, const ab_format *format, int place) {
    const ab_exec exec = {.training = true, .path = AB_PATH_CONVERT};
    op_run_open(r, op, attrs, &image, 1, (op_formats){format, format, NULL}, &exec);
    plant(r, place);
    assert_int_equal(op_run_prepare(r), AB_OK);
    op_run_both(r);
}

static void check(const op_run *r, const char *what, const ab_tensor *result, const double *exact) {
    for (int64_t i = 0; i < ab_tensor_count(result); i++)
        if (!isfinite(oracle_get(result, i)) != !isfinite(exact[i]) ||
            (isfinite(exact[i]) && fabs(oracle_get(result, i) - exact[i]) > 0.01 * fabs(exact[i]) + 0.3))
            fail_msg("%s %s[%lld] is %g, expected %g", r->in[0].format->name, what, (long long)i,
                     oracle_get(result, i), exact[i]);
}

static void check_all(const op_run *r) {
    const oracle_conv shape = {
        8, 17, 16, 18, 20, 3, 3, 2, 1, 1, 1, 1, 2, 2, r->out.shape.dim[1], r->out.shape.dim[2]};
    double *in = oracle_values(&r->in[0]), *weight = oracle_values(&r->param[0]),
           *dout = oracle_values(&r->dout);
    oracle_sums out = oracle_sums_open(ab_tensor_count(&r->out)),
                din = oracle_sums_open(ab_tensor_count(&r->in[0])),
                dweight = oracle_sums_open(ab_tensor_count(&r->param[0]));
    for (int64_t i = 0; i < ab_tensor_count(&r->out); i++)
        out.sum[i] = oracle_get(&r->param[1], i % conv.out_channels);
    oracle_conv_all(&shape, in, weight, dout, out, din, dweight);
    check(r, "out", &r->out, out.sum);
    check(r, "din", &r->din[0], din.sum);
    check(r, "dweight", &r->dparam[0], dweight.sum);
    oracle_sums_close(&out);
    oracle_sums_close(&din);
    oracle_sums_close(&dweight);
    free(in);
    free(weight);
    free(dout);
}

/* Which of the defects the counts tell of. */
static void check_counts(ab_repair_counts before, int place) {
    const ab_repair_counts now = ab_repair_totals();
    const bool corrected = planted != NONE && place != NOWHERE;
    assert_true((now.products > before.products) == corrected);
    assert_true((now.cleared > before.cleared) == (corrected && planted == SPREADS));
    assert_true((now.restored > before.restored) == (corrected && planted == LOSES));
}

static void convolutions_are_corrected(void **state) {
    (void)state;
    static const ab_format *const formats[] = {&ab_format_fp32, &ab_format_bf16, &ab_format_fp16};
    op_attrs attrs;
    const ab_op op = planted_conv(&attrs);
    for (planted = NONE; planted <= LOSES; planted++)
        for (int place = NOWHERE; place < PLACES; place++)
            for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
                const ab_repair_counts before = ab_repair_totals();
                op_run r;
                run(&r, &op, &attrs, formats[f], place);
                check_all(&r);
                check_counts(before, place);
                op_run_close(&r);
            }
}

static void corrected_bits_do_not_depend_on_the_number_of_threads(void **state) {
    (void)state;
    op_attrs attrs;
    const ab_op op = planted_conv(&attrs);
    planted = SPREADS;
    for (int place = IN_INPUT; place < PLACES; place++) {
        op_run r[3];
        for (int i = 0; i < 3; i++) {
            assert_int_equal(ab_parallel_start(i + 1), AB_OK);
            run(&r[i], &op, &attrs, &ab_format_fp32, place);
            if (i > 0) op_run_same_results(&r[0], &r[i]);
        }
        for (int i = 0; i < 3; i++) op_run_close(&r[i]);
    }
    assert_int_equal(ab_parallel_start(1), AB_OK);
}

/* An overflow of finite operands is the library's to make. */
static void overflows_of_finite_operands_stay(void **state) {
    (void)state;
    op_attrs attrs;
    const ab_op op = planted_conv(&attrs);
    const ab_exec exec = {.training = true, .path = AB_PATH_CONVERT};
    const ab_repair_counts before = ab_repair_totals();
    op_run r;
    planted = SPREADS;
    op_run_open(&r, &op, &attrs, &image, 1, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec);
    op_run_fill_all(&r, 5);
    oracle_put(&r.in[0], 5, 3e38);
    oracle_put(&r.param[0], 0, 3e38);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    assert_int_equal(ab_repair_totals().products, before.products);
    op_run_close(&r);
}

/* ---- matrix products ------------------------------------------------------------------------- */

#ifdef AB_HAVE_DNNL

/* In front of the library's own. */
dnnl_status_t dnnl_sgemm(char transa, char transb, dnnl_dim_t m, dnnl_dim_t n, dnnl_dim_t k, float alpha,
                         const float *a, dnnl_dim_t lda, const float *b, dnnl_dim_t ldb, float beta, float *c,
                         dnnl_dim_t ldc) {
    dnnl_status_t (*sgemm)(char, char, dnnl_dim_t, dnnl_dim_t, dnnl_dim_t, float, const float *, dnnl_dim_t,
                           const float *, dnnl_dim_t, float, float *, dnnl_dim_t);
    *(void **)&sgemm = dlsym(RTLD_NEXT, "dnnl_sgemm");
    assert_true(sgemm != NULL);
    const dnnl_status_t status = sgemm(transa, transb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
    for (dnnl_dim_t row = 0; row < m; row++) spoil(c + row * ldc, n);
    return status;
}

enum { ROWS = 37, COLUMNS = 270, INNER = 21, ROOM = 280 }; /* too wide for our own products */

static float values_a[ROOM * ROOM], values_b[ROOM * ROOM], values_c[ROOM * ROOM], old_c[ROOM * ROOM];

static double exact_product(const ab_gemm *g, int64_t row, int64_t column) {
    double sum = 0.0;
    for (int64_t k = 0; k < g->inner; k++)
        sum += (double)g->a[g->transpose_a ? k * ROOM + row : row * ROOM + k] *
               (double)g->b[g->transpose_b ? column * ROOM + k : k * ROOM + column];
    return (double)g->alpha * sum +
           (g->beta != 0.0f ? (double)g->beta * (double)old_c[row * ROOM + column] : 0.0);
}

static void multiply(const ab_gemm *g) {
    memcpy(values_c, old_c, sizeof old_c);
    ab_gemm_run(g, AB_PATH_AUTO, NULL);
    for (int64_t row = 0; row < g->rows; row++)
        for (int64_t column = 0; column < g->columns; column++) {
            const double exact = exact_product(g, row, column), made = (double)g->c[row * ROOM + column];
            if (!isfinite(made) != !isfinite(exact) || (isfinite(exact) && fabs(made - exact) > 1e-4))
                fail_msg("c[%lld, %lld] is %g, expected %g", (long long)row, (long long)column, made, exact);
        }
    for (int64_t row = 0; row < ROOM; row++) /* nothing was written beside the product */
        for (int64_t column = 0; column < ROOM; column++)
            if (row >= g->rows || column >= g->columns)
                assert_true(values_c[row * ROOM + column] == old_c[row * ROOM + column]);
}

static void matrix_products_are_corrected(void **state) {
    (void)state;
    float *const at[] = {&values_a[2 * ROOM + 3], &values_b[4 * ROOM + 5], &old_c[6 * ROOM + 7], NULL};
    for (planted = NONE; planted <= LOSES; planted++)
        for (int k = 0; k < 32; k++) {
            for (int64_t i = 0; i < ROOM * ROOM; i++) {
                values_a[i] = (float)oracle_random(1, i);
                values_b[i] = (float)oracle_random(2, i);
                old_c[i] = (float)oracle_random(3, i);
            }
            if (at[k % 4]) *at[k % 4] = k % 3 ? INFINITY : NAN;
            const ab_gemm g = {.transpose_a = k & 4,
                               .transpose_b = k & 8,
                               .rows = ROWS,
                               .columns = COLUMNS,
                               .inner = INNER,
                               .alpha = 0.5f,
                               .beta = k & 16 ? 1.0f : 0.0f,
                               .a = values_a,
                               .lda = ROOM,
                               .b = values_b,
                               .ldb = ROOM,
                               .c = values_c,
                               .ldc = ROOM};
            multiply(&g);
        }
    planted = NONE;
}

#else

static void matrix_products_are_corrected(void **state) {
    (void)state;
    skip();
}

#endif

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(convolutions_are_corrected),
        cmocka_unit_test(corrected_bits_do_not_depend_on_the_number_of_threads),
        cmocka_unit_test(overflows_of_finite_operands_stay),
        cmocka_unit_test(matrix_products_are_corrected),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
