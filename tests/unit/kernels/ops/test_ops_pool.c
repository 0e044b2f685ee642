/* max_pool2d, avg_pool2d and global_avg_pool against their definitions in double: every format, thread count
 * and CPU level, overlapping, gapped and padded windows, ties and NaN. */
#include "oracle/op_run.h"

#include "oracle/doubles.h"
#include "oracle/gradient.h"

typedef struct pool_case {
    int64_t n, h, w, c, kh, kw, sh, sw, ph, pw;
    bool count_pad;
} pool_case;

static const pool_case cases[] = {
    {2, 8, 8, 6, 2, 2, 2, 2, 0, 0, true},
    {2, 7, 9, 3, 3, 2, 2, 1, 1, 1, true},
    {1, 5, 5, 16, 3, 3, 1, 1, 1, 1, false},
    {3, 9, 7, 17, 2, 3, 3, 4, 0, 1, true},
    {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, true},
    {2, 6, 6, 40, 3, 3, 3, 3, 0, 0, true},
    {9, 12, 11, 5, 2, 2, 2, 2, 1, 0, false},
    {2, 7, 7, 8, 7, 7, 7, 7, 0, 0, true},
    /* neither overlapping nor padded: every count of channels that part of a vector holds, rows and columns
       that no window covers */
    {2, 9, 13, 1, 2, 2, 2, 2, 0, 0, true},
    {1, 8, 11, 2, 2, 2, 2, 3, 0, 0, true},
    {2, 9, 10, 3, 3, 3, 3, 3, 0, 0, true},
    {1, 6, 8, 4, 1, 2, 2, 2, 0, 0, true},
    {2, 4, 9, 5, 2, 2, 3, 2, 0, 0, true},
    {1, 7, 12, 7, 2, 3, 2, 3, 0, 0, true},
    {2, 6, 4, 8, 2, 2, 2, 2, 0, 0, true},
    {1, 5, 7, 11, 2, 2, 2, 2, 0, 0, true},
};

/* What all three ops are in double; global_avg_pool is one window over the image. */
typedef struct oracle_pool {
    pool_case k;
    bool max;
    int64_t oh, ow;
    double *in, *dout;
    oracle_sums out, din;
} oracle_pool;

/* Position in the image of window element (ky, kx) of output (oy, ox), or -1 in the padding. */
static int64_t position(const oracle_pool *p, int64_t n, int64_t oy, int64_t ox, int64_t ky, int64_t kx,
                        int64_t c) {
    int64_t y = oy * p->k.sh + ky - p->k.ph, x = ox * p->k.sw + kx - p->k.pw;
    if (y < 0 || y >= p->k.h || x < 0 || x >= p->k.w) return -1;
    return ((n * p->k.h + y) * p->k.w + x) * p->k.c + c;
}

static void solve_max(oracle_pool *p, int64_t out, int64_t n, int64_t oy, int64_t ox, int64_t c) {
    int64_t best = -1;
    for (int64_t ky = 0; ky < p->k.kh; ky++)
        for (int64_t kx = 0; kx < p->k.kw; kx++) {
            int64_t at = position(p, n, oy, ox, ky, kx, c);
            if (at >= 0 && (best < 0 || p->in[at] > p->in[best] || isnan(p->in[at]))) best = at;
        }
    oracle_add(p->out, out, p->in[best]);
    oracle_add(p->din, best, p->dout[out]);
}

static void solve_avg(oracle_pool *p, int64_t out, int64_t n, int64_t oy, int64_t ox, int64_t c) {
    int64_t inside = 0;
    for (int64_t i = 0; i < p->k.kh * p->k.kw; i++)
        inside += position(p, n, oy, ox, i / p->k.kw, i % p->k.kw, c) >= 0;
    double size = (double)(p->k.count_pad ? p->k.kh * p->k.kw : inside);
    for (int64_t i = 0; i < p->k.kh * p->k.kw; i++) {
        int64_t at = position(p, n, oy, ox, i / p->k.kw, i % p->k.kw, c);
        if (at < 0) continue;
        oracle_add(p->out, out, p->in[at] / size);
        oracle_add(p->din, at, p->dout[out] / size);
    }
}

static void solve(oracle_pool *p) {
    int64_t out = 0;
    for (int64_t n = 0; n < p->k.n; n++)
        for (int64_t oy = 0; oy < p->oh; oy++)
            for (int64_t ox = 0; ox < p->ow; ox++)
                for (int64_t c = 0; c < p->k.c; c++) (p->max ? solve_max : solve_avg)(p, out++, n, oy, ox, c);
}

static oracle_pool expect(const pool_case *k, const op_run *r, bool max, int64_t oh, int64_t ow) {
    oracle_pool p = {*k,
                     max,
                     oh,
                     ow,
                     oracle_values(&r->in[0]),
                     oracle_values(&r->dout),
                     oracle_sums_open(ab_tensor_count(&r->out)),
                     oracle_sums_open(ab_tensor_count(&r->in[0]))};
    solve(&p);
    return p;
}

static void forget(oracle_pool *p) {
    free(p->in);
    free(p->dout);
    oracle_sums_close(&p->out);
    oracle_sums_close(&p->din);
}

static op_attrs attrs_of(const ab_op *op, const pool_case *k) {
    op_attrs a = op_attrs_default(op);
    if (!op->attrs) return a;
    op_attrs_set(op, &a, "kernel_size", (double)k->kh, (double)k->kw);
    op_attrs_set(op, &a, "stride", (double)k->sh, (double)k->sw);
    op_attrs_set(op, &a, "padding", (double)k->ph, (double)k->pw);
    if (op == &ab_op_avg_pool2d) op_attrs_set(op, &a, "count_include_pad", k->count_pad, 0);
    assert_int_equal(op->finish_attrs(&a), AB_OK);
    return a;
}

/* Values on a coarse grid, so that ties are common; those of the first image as a relu delivers them. */
static void open_case(op_run *r, const ab_op *op, const op_attrs *attrs, const pool_case *k,
                      op_formats formats) {
    ab_shape in = {.ndim = 4, .dim = {k->n, k->h, k->w, k->c}};
    ab_exec exec = {.training = true};
    op_run_open(r, op, attrs, &in, 1, formats, &exec);
    op_run_fill_all(r, (uint64_t)(k->c + 1));
    for (int64_t i = 0; i < ab_tensor_count(&r->in[0]); i += 2)
        oracle_put(&r->in[0], i, nearbyint(2.0 * oracle_random(5, i)) / 2.0);
    for (int64_t i = 0; i < k->h * k->w * k->c; i++)
        oracle_put(&r->in[0], i, fmax(oracle_get(&r->in[0], i), 0.0));
    assert_int_equal(op_run_prepare(r), AB_OK);
}

typedef struct run_spec {
    const ab_op *op;
    op_formats formats;
} run_spec;

static void run_case(const run_spec *s, const pool_case *k) {
    op_attrs attrs = attrs_of(s->op, k);
    op_run r;
    open_case(&r, s->op, &attrs, k, s->formats);
    bool global = s->op == &ab_op_global_avg_pool;
    oracle_pool p = expect(k, &r, s->op == &ab_op_max_pool2d, global ? 1 : r.out.shape.dim[1],
                           global ? 1 : r.out.shape.dim[2]);
    op_run_both(&r);
    int64_t terms = p.max ? -2 : k->kh * k->kw; /* a maximum is exact */
    oracle_sums_check(&r, "out", &r.out, p.out, terms);
    oracle_sums_check(&r, "din", &r.din[0], p.din, k->kh * k->kw);
    forget(&p);
    op_run_close(&r);
}

static void run_cases(const void *argument) {
    const run_spec *s = argument;
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        pool_case k = cases[i];
        if (s->op == &ab_op_global_avg_pool) k = (pool_case){k.n, k.h, k.w, k.c, k.h, k.w, 1, 1, 0, 0, true};
        run_case(s, &k);
    }
}

static void check_op(const ab_op *op) {
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) {
        run_spec s = {op, format[f]};
        op_each_machine(run_cases, &s);
    }
    run_spec mixed = {op, {&ab_format_fp16, &ab_format_fp16, &ab_format_fp32}};
    op_each_lane_count(run_cases, &mixed);
}

static void max_pool_matches_the_definition(void **state) {
    (void)state;
    check_op(&ab_op_max_pool2d);
}

static void avg_pool_matches_the_definition(void **state) {
    (void)state;
    check_op(&ab_op_avg_pool2d);
}

static void global_avg_pool_matches_the_definition(void **state) {
    (void)state;
    check_op(&ab_op_global_avg_pool);
}

/* ---- the oracle itself ----------------------------------------------------------------------- */

static double weighted_output(const void *self) {
    oracle_pool p = *(const oracle_pool *)self;
    int64_t count = p.k.n * p.oh * p.ow * p.k.c;
    p.out = oracle_sums_open(count);
    p.din = oracle_sums_open(p.k.n * p.k.h * p.k.w * p.k.c);
    solve(&p);
    double total = 0.0;
    for (int64_t i = 0; i < count; i++) total += p.out.sum[i] * p.dout[i];
    oracle_sums_close(&p.out);
    oracle_sums_close(&p.din);
    return total;
}

static void the_oracle_agrees_with_finite_differences(void **state) {
    (void)state;
    const ab_op *ops[] = {&ab_op_max_pool2d, &ab_op_avg_pool2d};
    for (size_t o = 0; o < AB_COUNT_OF(ops); o++)
        for (int i = 0; i < 3; i++) {
            op_attrs attrs = attrs_of(ops[o], &cases[i]);
            op_run r;
            open_case(&r, ops[o], &attrs, &cases[i], (op_formats){&ab_format_fp32, &ab_format_fp32, NULL});
            op_run_fill(&r.in[0], 4); /* no ties: a maximum has no derivative there */
            oracle_pool p = expect(&cases[i], &r, o == 0, r.out.shape.dim[1], r.out.shape.dim[2]);
            int64_t count = ab_tensor_count(&r.in[0]);
            assert_true(oracle_gradient_error(weighted_output, &p, p.in, p.din.sum, count) < 1e-6);
            forget(&p);
            op_run_close(&r);
        }
}

/* ---- behaviour ------------------------------------------------------------------------------- */

/* A 2x2 window of one channel, all three ops' favourite size. */
static void one_window(op_run *r, const double values[4], const ab_format *format) {
    static const pool_case k = {1, 2, 2, 1, 2, 2, 2, 2, 0, 0, true};
    static op_attrs attrs;
    attrs = attrs_of(&ab_op_max_pool2d, &k);
    open_case(r, &ab_op_max_pool2d, &attrs, &k, (op_formats){format, format, NULL});
    for (int i = 0; i < 4; i++) oracle_put(&r->in[0], i, values[i]);
    oracle_put(&r->dout, 0, 1.0);
    op_run_both(r);
}

static void expect_winner(const op_run *r, int winner) {
    for (int i = 0; i < 4; i++) assert_true(oracle_get(&r->din[0], i) == (i == winner ? 1.0 : 0.0));
}

typedef struct winner_row {
    double in[4];
    int winner;
} winner_row;

#define INF ((double)INFINITY)
#define NOT_A_NUMBER ((double)NAN)

/* torch: a NaN replaces whatever came before, so the last one wins. */
static const winner_row winner_rows[] = {{{1, 2, 2, 0}, 1},
                                         {{3, 3, 3, 3}, 0},
                                         {{-INF, -INF, -INF, -INF}, 0},
                                         {{0, INF, INF, 1}, 1},
                                         {{-2, -3, -1, -1}, 2},
                                         {{1, NOT_A_NUMBER, 5, 0}, 1},
                                         {{NOT_A_NUMBER, 2, NOT_A_NUMBER, 7}, 2},
                                         {{NOT_A_NUMBER, 2, 3, 4}, 0},
                                         {{-1, -0.0, 0.0, -1}, 1},
                                         {{-1, 0.0, -0.0, -1}, 1}};

static void check_winners(const void *unused) {
    (void)unused;
    for (size_t i = 0; i < 2 * AB_COUNT_OF(winner_rows); i++) {
        const winner_row *row = &winner_rows[i / 2];
        op_run r;
        double largest = row->in[row->winner];
        one_window(&r, row->in, i % 2 == 0 ? &ab_format_fp16 : &ab_format_fp32);
        double out = oracle_get(&r.out, 0);
        assert_true(isnan(largest) ? isnan(out) : out == largest && signbit(out) == signbit(largest));
        expect_winner(&r, row->winner);
        op_run_close(&r);
    }
}

static void the_first_of_equal_maxima_or_the_last_nan_gets_the_gradient(void **state) {
    (void)state;
    op_each_machine(check_winners, NULL);
}

static void see_nothing(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self;
    (void)id;
    (void)thread;
    (void)values;
    (void)n;
}

enum { PLANTED = 6 };

/* Images: finite values, NaN and zeros of both signs among them, NaN in the gradient; nothing below zero, in
 * one but for its last pixel, in another with infinity and a NaN of either sign. */
static void plant(const op_run *r) {
    const int64_t in = ab_tensor_count(&r->in[0]) / PLANTED, out = ab_tensor_count(&r->dout) / PLANTED;
    for (int64_t i = 0; i < in; i += 3) oracle_put(&r->in[0], in + i, i % 2 == 0 ? -0.0 : NOT_A_NUMBER);
    for (int64_t i = 0; i < in; i += 5) oracle_put(&r->in[0], in + i, 0.0);
    oracle_put(&r->in[0], in - 1, -INF);
    oracle_put(&r->dout, 2 * out, NOT_A_NUMBER);
    oracle_put(&r->dout, out - 1, -0.0);
    for (int64_t i = 3 * in; i < PLANTED * in; i++)
        oracle_put(&r->in[0], i, fmax(oracle_get(&r->in[0], i), 0.0));
    oracle_put(&r->in[0], 4 * in - 1, INF);
    oracle_put(&r->in[0], 5 * in - 1, -1.0);
    oracle_put(&r->in[0], 5 * in, INF);
    oracle_put(&r->in[0], 5 * in + in / 2, NOT_A_NUMBER);
    oracle_put(&r->in[0], PLANTED * in - 1, copysign(NOT_A_NUMBER, -1.0));
}

static void run_planted(op_run *r, const pool_case *k, const ab_format *format, ab_observer *observer) {
    op_attrs attrs = attrs_of(&ab_op_max_pool2d, k);
    ab_shape in = {.ndim = 4, .dim = {k->n, k->h, k->w, k->c}};
    ab_exec exec = {.training = true, .observer = observer};
    op_run_open(r, &ab_op_max_pool2d, &attrs, &in, 1, (op_formats){format, format, NULL}, &exec);
    op_run_fill_all(r, (uint64_t)k->c);
    plant(r);
    assert_int_equal(op_run_prepare(r), AB_OK);
    op_run_both(r);
}

/* What is observed is computed in fp32, what is not on the stored codes. */
static void maxima_of_codes_are_those_of_values(const void *unused) {
    (void)unused;
    static const int64_t windows[][4] = {
        {2, 2, 2, 2}, {3, 2, 3, 2}, {2, 3, 3, 4}, {1, 2, 1, 2}, {3, 3, 3, 3}};
    static const int64_t channels[] = {1, 2, 3, 6, 8, 11, 16, 17};
    const ab_format *const formats[] = {&ab_format_fp16, &ab_format_bf16};
    ab_observer observer = {.see = see_nothing};
    for (size_t i = 0; i < AB_COUNT_OF(windows) * AB_COUNT_OF(channels); i++)
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++) {
            const int64_t *w = windows[i / AB_COUNT_OF(channels)], c = channels[i % AB_COUNT_OF(channels)];
            const pool_case k = {PLANTED, 10, 13, c, w[0], w[1], w[2], w[3], 0, 0, true};
            op_run plain, observed;
            run_planted(&plain, &k, formats[f], NULL);
            run_planted(&observed, &k, formats[f], &observer);
            op_run_same_results(&plain, &observed);
            op_run_close(&plain);
            op_run_close(&observed);
        }
}

static void half_maxima_have_the_same_bits_observed_or_not(void **state) {
    (void)state;
    op_each_machine(maxima_of_codes_are_those_of_values, NULL);
}

static void stride_defaults_to_the_kernel_and_padding_is_limited(void **state) {
    (void)state;
    const ab_op *ops[] = {&ab_op_max_pool2d, &ab_op_avg_pool2d};
    for (size_t i = 0; i < AB_COUNT_OF(ops); i++) {
        op_attrs a = op_attrs_default(ops[i]);
        ab_shape in = {.ndim = 4, .dim = {1, 9, 9, 2}}, out;
        op_attrs_set(ops[i], &a, "kernel_size", 3, 2);
        assert_int_equal(ops[i]->finish_attrs(&a), AB_OK);
        assert_int_equal(ops[i]->infer(&a, &in, 1, &out), AB_OK);
        assert_int_equal(out.dim[1], 3);
        assert_int_equal(out.dim[2], 4);
        assert_int_equal(out.dim[3], 2);
        op_attrs_set(ops[i], &a, "padding", 1, 2);
        assert_int_equal(ops[i]->finish_attrs(&a), AB_CONFIG);
        assert_non_null(strstr(ab_error_message(), ops[i]->name));
    }
}

static void shapes_are_checked_with_a_message(void **state) {
    (void)state;
    const ab_op *ops[] = {&ab_op_max_pool2d, &ab_op_avg_pool2d, &ab_op_global_avg_pool};
    for (size_t i = 0; i < AB_COUNT_OF(ops); i++) {
        op_attrs attrs = attrs_of(ops[i], &cases[7]);
        ab_shape features = {.ndim = 2, .dim = {3, 4}}, small = {.ndim = 4, .dim = {1, 6, 9, 1}}, out;
        assert_int_equal(ops[i]->infer(&attrs, &features, 1, &out), AB_CONFIG);
        assert_non_null(strstr(ab_error_message(), "[3, 4]"));
        if (!ops[i]->attrs) continue;
        assert_int_equal(ops[i]->infer(&attrs, &small, 1, &out), AB_CONFIG);
        assert_non_null(strstr(ab_error_message(), "[1, 6, 9, 1]"));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(max_pool_matches_the_definition),
        cmocka_unit_test(avg_pool_matches_the_definition),
        cmocka_unit_test(global_avg_pool_matches_the_definition),
        cmocka_unit_test(the_oracle_agrees_with_finite_differences),
        cmocka_unit_test(the_first_of_equal_maxima_or_the_last_nan_gets_the_gradient),
        cmocka_unit_test(half_maxima_have_the_same_bits_observed_or_not),
        cmocka_unit_test(stride_defaults_to_the_kernel_and_padding_is_limited),
        cmocka_unit_test(shapes_are_checked_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
