/* Layer and RMS norm of rows of whole vectors, several at once in loops of their formats, against those of
 * row after row, which an observer gets, bit for bit: all pairs of formats, at every CPU level; numbers of
 * rows that leave some over, rows longer than a span of a sum, and infinities and NaNs of several bits. */
#include "kernels/format/convert.h"
#include "oracle/op_run.h"

typedef struct setting {
    const ab_op *op;
    const ab_format *in, *out;
    int64_t rows, n;
    bool bias;
    double special; /* of an input, a gradient and a weight; 0: none */
} setting;

static void fill(op_run *r, const setting *s) {
    op_run_fill_all(r, 5);
    for (int64_t i = 0; i < s->n; i++) oracle_put(&r->in[0], i, 3.0 + 0.01 * (double)i);
    if (s->special == 0.0) return;
    oracle_put(&r->in[0], s->n + 7, s->special);
    oracle_put(&r->dout, 3 * s->n + 9, s->special);
    oracle_put(&r->dout, 4 * s->n + 2, -s->special);
    oracle_put(&r->param[0], 11, s->special);
    if (!isnan(s->special)) return;
    /* NaNs of all bits, which a rounding would carry over into zeros */
    const uint32_t all = 0x7fffffff;
    memcpy((float *)r->param[0].data + 12, &all, sizeof all);
    if (s->in == &ab_format_fp32) memcpy((float *)r->in[0].data + 5 * s->n, &all, sizeof all);
    if (s->out == &ab_format_fp32) memcpy((float *)r->dout.data + 6 * s->n, &all, sizeof all);
}

/* Formats are set when there is memory for fp32. */
static void run(op_run *r, const setting *s, ab_observer *observer) {
    const ab_shape shape = {.ndim = 2, .dim = {s->rows, s->n}};
    const ab_exec exec = {.training = true, .observer = observer};
    op_attrs attrs = op_attrs_default(s->op);
    if (s->op == &ab_op_layer_norm) op_attrs_set(s->op, &attrs, "bias", s->bias, 0);
    op_run_open(r, s->op, &attrs, &shape, 1, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec);
    r->in[0].format = r->din[0].format = s->in;
    r->out.format = r->dout.format = s->out;
    fill(r, s);
    assert_int_equal(op_run_prepare(r), AB_OK);
    op_run_both(r);
}

static void expect_equal(const setting *s, const char *what, const ab_tensor *a, const ab_tensor *b) {
    const int64_t n = ab_tensor_count(a);
    float *x = malloc((size_t)n * sizeof *x), *y = malloc((size_t)n * sizeof *y);
    assert_true(x && y);
    ab_widen(x, a->data, a->format, n);
    ab_widen(y, b->data, b->format, n);
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&x[i], &y[i], sizeof *x) != 0 && !(isnan(x[i]) && isnan(y[i])))
            fail_msg("%s, %s to %s, %lld rows of %lld, %s %lld: %.9g, row by row %.9g", s->op->name,
                     s->in->name, s->out->name, (long long)s->rows, (long long)s->n, what, (long long)i,
                     (double)x[i], (double)y[i]);
    free(x);
    free(y);
}

static void compare(const void *argument) {
    const setting *s = argument;
    op_probe probe = op_probe_open();
    op_run several, one;
    run(&several, s, NULL);
    run(&one, s, &probe.base);
    expect_equal(s, "value", &several.out, &one.out);
    expect_equal(s, "gradient", &several.din[0], &one.din[0]);
    for (int i = 0; i < several.params; i++)
        expect_equal(s, "parameter's gradient", &several.dparam[i], &one.dparam[i]);
    for (int i = 0; i < several.saved; i++)
        expect_equal(s, "statistic", &several.saved_tensor[i], &one.saved_tensor[i]);
    op_run_close(&several);
    op_run_close(&one);
    op_probe_close(&probe);
}

static const struct {
    int64_t rows, n;
    bool bias;
} sizes[] = {{9, 16, true}, {23, 32, false}, {145, 128, true}, {11, 1040, true}, {13, 2064, false}};

static void compare_formats(const setting *s) {
    const ab_format *const all[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    setting with = *s;
    for (int in = 0; in < 3; in++)
        for (int out = 0; out < 3; out++) {
            with.in = all[in];
            with.out = all[out];
            op_each_machine(compare, &with);
        }
}

static void several_rows_have_the_bits_of_row_by_row(void **state) {
    const double specials[] = {0.0, (double)INFINITY, (double)NAN};
    (void)state;
    for (size_t s = 0; s < AB_COUNT_OF(specials); s++)
        for (size_t k = 0; k < AB_COUNT_OF(sizes); k++)
            for (int rms = 0; rms < 2; rms++) {
                setting with = {.op = rms ? &ab_op_rms_norm : &ab_op_layer_norm,
                                .rows = sizes[k].rows,
                                .n = sizes[k].n,
                                .bias = sizes[k].bias,
                                .special = specials[s]};
                compare_formats(&with);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(several_rows_have_the_bits_of_row_by_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
