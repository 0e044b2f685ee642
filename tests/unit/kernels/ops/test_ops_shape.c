/* reshape, permute, transpose, concat, sum, mean, max: against index arithmetic and sums in double, in every
 * format, on every CPU level and thread count. */
#include "oracle/doubles.h"
#include "oracle/gradient.h"
#include "oracle/op_run.h"

/* Sets an integer-list attribute. */
static void set_ints(const ab_op *op, op_attrs *attrs, const char *name, const int64_t *values, int count) {
    const ab_attr *a = op->attrs;
    while (strcmp(a->name, name) != 0) a++;
    ab_ints ints = {.count = count};
    memcpy(ints.value, values, (size_t)count * sizeof *values);
    memcpy(attrs->bytes + a->offset, &ints, sizeof ints);
}

/* Index of an element, most significant first; and back, over the shape's own strides. */
static void unravel(const ab_shape *shape, int64_t at, int64_t *index) {
    for (int i = shape->ndim - 1; i >= 0; i--) {
        index[i] = at % shape->dim[i];
        at /= shape->dim[i];
    }
}

static int64_t ravel(const ab_shape *shape, const int64_t *index) {
    int64_t at = 0;
    for (int i = 0; i < shape->ndim; i++) at = at * shape->dim[i] + index[i];
    return at;
}

typedef struct op_case {
    const ab_op *op;
    ab_shape in[3];
    int inputs;
    int64_t list[6]; /* dims, shape, dim: how many */
    int count;
    bool keepdim;
    void (*check)(const struct op_case *k, const op_run *r);
} op_case;

static op_attrs attrs_of(const op_case *k) {
    op_attrs a = op_attrs_default(k->op);
    if (k->op == &ab_op_permute) set_ints(k->op, &a, "dims", k->list, k->count);
    if (k->op == &ab_op_reshape) set_ints(k->op, &a, "shape", k->list, k->count);
    if (k->op == &ab_op_concat) op_attrs_set(k->op, &a, "dim", (double)k->list[0], 0);
    if (k->op == &ab_op_transpose) op_attrs_set(k->op, &a, "dim0", (double)k->list[0], 0);
    if (k->op == &ab_op_transpose) op_attrs_set(k->op, &a, "dim1", (double)k->list[1], 0);
    if (k->op == &ab_op_sum || k->op == &ab_op_mean || k->op == &ab_op_max) {
        set_ints(k->op, &a, "dim", k->list, k->count);
        op_attrs_set(k->op, &a, "keepdim", k->keepdim, 0);
    }
    return a;
}

/* ---- moving values --------------------------------------------------------------------------- */

static void check_reshape(const op_case *k, const op_run *r) {
    (void)k;
    for (int64_t i = 0; i < ab_tensor_count(&r->out); i++) {
        assert_true(oracle_get(&r->out, i) == oracle_get(&r->in[0], i));
        assert_true(oracle_get(&r->din[0], i) == oracle_get(&r->dout, i));
    }
}

static void check_permute(const op_case *k, const op_run *r) {
    const ab_shape *in = &r->in[0].shape, *out = &r->out.shape;
    int64_t order[AB_MAX_DIMS], from[AB_MAX_DIMS] = {0}, to[AB_MAX_DIMS];
    for (int i = 0; i < in->ndim; i++) order[i] = k->op == &ab_op_permute ? k->list[i] : i;
    for (int i = 0; i < in->ndim; i++) order[i] = order[i] < 0 ? order[i] + in->ndim : order[i];
    if (k->op == &ab_op_transpose) {
        int64_t a = k->list[0] < 0 ? k->list[0] + in->ndim : k->list[0];
        int64_t b = k->list[1] < 0 ? k->list[1] + in->ndim : k->list[1];
        order[a] = b;
        order[b] = a;
    }
    for (int i = 0; i < in->ndim; i++) assert_int_equal(out->dim[i], in->dim[order[i]]);
    for (int64_t at = 0; at < ab_tensor_count(&r->out); at++) {
        unravel(out, at, to);
        for (int i = 0; i < in->ndim; i++) from[order[i]] = to[i];
        assert_true(oracle_get(&r->out, at) == oracle_get(&r->in[0], ravel(in, from)));
        assert_true(oracle_get(&r->din[0], ravel(in, from)) == oracle_get(&r->dout, at));
    }
}

static void check_concat(const op_case *k, const op_run *r) {
    const int dim = (int)(k->list[0] < 0 ? k->list[0] + r->out.shape.ndim : k->list[0]);
    int64_t start = 0, index[AB_MAX_DIMS];
    for (int i = 0; i < k->inputs; i++) {
        for (int64_t at = 0; at < ab_tensor_count(&r->in[i]); at++) {
            unravel(&r->in[i].shape, at, index);
            index[dim] += start;
            int64_t to = ravel(&r->out.shape, index);
            assert_true(oracle_get(&r->out, to) == oracle_get(&r->in[i], at));
            assert_true(oracle_get(&r->din[i], at) == oracle_get(&r->dout, to));
        }
        start += r->in[i].shape.dim[dim];
    }
    assert_int_equal(r->out.shape.dim[dim], start);
}

/* ---- reducing -------------------------------------------------------------------------------- */

/* Which element of the result an element of the input belongs to. */
static int64_t result_of(const op_case *k, const ab_shape *in, int64_t at) {
    int64_t index[AB_MAX_DIMS], result = 0;
    unravel(in, at, index);
    for (int i = 0; i < in->ndim; i++) {
        bool gone = k->count == 0;
        for (int d = 0; d < k->count; d++) gone = gone || k->list[d] == i || k->list[d] + in->ndim == i;
        if (!gone) result = result * in->dim[i] + index[i];
    }
    return result;
}

static void check_sum(const op_case *k, const op_run *r) {
    const int64_t kept = ab_tensor_count(&r->out), n = ab_tensor_count(&r->in[0]);
    const double scale = k->op == &ab_op_mean ? (double)kept / (double)n : 1.0;
    oracle_sums sums = oracle_sums_open(kept);
    for (int64_t i = 0; i < n; i++)
        oracle_add(sums, result_of(k, &r->in[0].shape, i), scale * oracle_get(&r->in[0], i));
    for (int64_t i = 0; i < kept; i++) /* double inside: no error that grows with the number of terms */
        op_run_near(r, "out", &r->out, i, sums.sum[i],
                    2 * ORACLE_U32 * fabs(sums.sum[i]) + 0x1p-40 * sums.magnitude[i]);
    for (int64_t i = 0; i < n; i++) {
        double exact = scale * oracle_get(&r->dout, result_of(k, &r->in[0].shape, i));
        op_run_near(r, "din", &r->din[0], i, exact, 2 * ORACLE_U32 * fabs(exact));
    }
    oracle_sums_close(&sums);
}

static void check_max(const op_case *k, const op_run *r) {
    const int64_t kept = ab_tensor_count(&r->out), n = ab_tensor_count(&r->in[0]);
    double *best = oracle_doubles(kept), *hits = oracle_doubles(kept);
    for (int64_t i = 0; i < kept; i++) best[i] = -(double)INFINITY;
    for (int64_t i = 0; i < n; i++) {
        int64_t to = result_of(k, &r->in[0].shape, i);
        double x = oracle_get(&r->in[0], i);
        hits[to] = x > best[to] ? 1 : hits[to] + (x == best[to]);
        best[to] = fmax(best[to], x);
    }
    for (int64_t i = 0; i < kept; i++) assert_true(oracle_get(&r->out, i) == best[i]);
    for (int64_t i = 0; i < n; i++) {
        int64_t to = result_of(k, &r->in[0].shape, i);
        bool hit = oracle_get(&r->in[0], i) == best[to];
        double exact = hit ? oracle_get(&r->dout, to) / hits[to] : 0.0;
        op_run_near(r, "din", &r->din[0], i, exact, ORACLE_U32 * fabs(exact));
    }
    free(best);
    free(hits);
}

/* ---- running --------------------------------------------------------------------------------- */

static const op_case cases[] = {
    {&ab_op_reshape, {{4, {2, 3, 5, 7}}}, 1, {0, -1, 7}, 3, false, check_reshape},
    {&ab_op_reshape, {{3, {3, 50, 999}}}, 1, {0, 25, -1, 27}, 4, false, check_reshape},
    {&ab_op_permute, {{4, {2, 3, 5, 7}}}, 1, {0, 2, 1, 3}, 4, false, check_permute},
    {&ab_op_permute, {{4, {3, 5, 4, 33}}}, 1, {3, 0, -2, 1}, 4, false, check_permute},
    {&ab_op_permute, {{3, {30, 65, 70}}}, 1, {0, 2, 1}, 3, false, check_permute},
    {&ab_op_permute, {{5, {2, 3, 1, 4, 5}}}, 1, {4, 3, 2, 1, 0}, 5, false, check_permute},
    {&ab_op_transpose, {{3, {7, 3, 601}}}, 1, {-1, -2}, 2, false, check_permute},
    {&ab_op_transpose, {{2, {3, 4099}}}, 1, {0, 1}, 2, false, check_permute},
    {&ab_op_concat,
     {{4, {2, 3, 5, 7}}, {4, {2, 3, 5, 1}}, {4, {2, 3, 5, 40}}},
     3,
     {-1},
     1,
     false,
     check_concat},
    {&ab_op_concat, {{3, {3, 700, 21}}, {3, {3, 1, 21}}}, 2, {1}, 1, false, check_concat},
    {&ab_op_concat, {{2, {3, 5}}, {2, {9, 5}}}, 2, {0}, 1, false, check_concat},
    {&ab_op_sum, {{4, {2, 3, 5, 7}}}, 1, {0}, 0, false, check_sum},
    {&ab_op_sum, {{2, {300, 601}}}, 1, {0}, 1, false, check_sum},
    {&ab_op_sum, {{3, {3, 90000, 1}}}, 1, {-2}, 1, true, check_sum},
    {&ab_op_sum, {{4, {4, 6, 5, 9}}}, 1, {0, 2}, 2, false, check_sum},
    {&ab_op_sum, {{4, {4, 6, 5, 9}}}, 1, {1, -1}, 2, true, check_sum},
    {&ab_op_mean, {{2, {99, 1301}}}, 1, {0}, 0, false, check_sum},
    {&ab_op_mean, {{4, {3, 28, 28, 33}}}, 1, {1, 2}, 2, false, check_sum},
    {&ab_op_mean, {{3, {8, 65, 48}}}, 1, {1}, 1, true, check_sum},
    {&ab_op_max, {{3, {7, 40, 33}}}, 1, {1}, 1, false, check_max},
    {&ab_op_max, {{2, {70, 1033}}}, 1, {1}, 1, true, check_max},
    {&ab_op_max, {{2, {70, 1033}}}, 1, {0}, 0, false, check_max},
};

typedef struct run_spec {
    const op_case *k;
    op_formats formats;
} run_spec;

static void run_case(const void *argument) {
    const run_spec *s = argument;
    op_attrs attrs = attrs_of(s->k);
    ab_exec exec = {.training = true};
    op_run r;
    op_run_open(&r, s->k->op, &attrs, s->k->in, s->k->inputs, s->formats, &exec);
    op_run_fill_all(&r, 3);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    s->k->check(s->k, &r);
    op_run_close(&r);
}

static void every_value_arrives_and_every_sum_is_rounded_once(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++)
        for (int f = 0; f < formats; f++) {
            run_spec s = {&cases[i], format[f]};
            if (i % 4 == 0)
                op_each_machine(run_case, &s);
            else
                op_each_lane_count(run_case, &s);
        }
}

static void bits_do_not_depend_on_the_lanes(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        op_attrs attrs = attrs_of(&cases[i]);
        ab_exec exec = {.training = true};
        op_run r[3];
        for (int threads = 3; threads >= 1; threads--) {
            op_run *run = &r[threads - 1];
            assert_int_equal(ab_parallel_start(threads), AB_OK);
            op_run_open(run, cases[i].op, &attrs, cases[i].in, cases[i].inputs,
                        (op_formats){&ab_format_fp16, &ab_format_fp16, NULL}, &exec);
            op_run_fill_all(run, 9);
            assert_int_equal(op_run_prepare(run), AB_OK);
            op_run_both(run);
        }
        for (int k = 1; k < 3; k++) op_run_same_results(&r[0], &r[k]);
        for (int k = 0; k < 3; k++) op_run_close(&r[k]);
    }
}

/* A sum of 2^24 + 1 ones in fp32 would stop at 2^24; of half results only the last rounding may be lossy. */
static void long_sums_do_not_saturate(void **state) {
    (void)state;
    ab_shape shape = {2, {1 << 12, (1 << 12) + 1}};
    op_attrs attrs = op_attrs_default(&ab_op_sum);
    ab_exec exec = {.training = true};
    op_run r;
    op_run_open(&r, &ab_op_sum, &attrs, &shape, 1,
                (op_formats){&ab_format_bf16, &ab_format_bf16, &ab_format_fp32}, &exec);
    uint16_t *one = r.in[0].data;
    for (int64_t i = 0; i < ab_tensor_count(&r.in[0]); i++) one[i] = 0x3f80;
    oracle_put(&r.dout, 0, 1.0);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    assert_true(oracle_get(&r.out, 0) == (double)ab_shape_count(&shape));
    op_run_close(&r);
}

static void a_maximum_is_shared_by_equal_elements_and_keeps_nan(void **state) {
    (void)state;
    const double in[] = {2, 5, 5, 1, 5, 3, (double)NAN, 9}, share[] = {0, 1, 1, 0, 1, 0, 0, 0};
    ab_shape shape = {2, {2, 4}};
    op_attrs attrs = op_attrs_default(&ab_op_max);
    const int64_t last = -1;
    set_ints(&ab_op_max, &attrs, "dim", &last, 1);
    ab_exec exec = {.training = true};
    op_run r;
    op_run_open(&r, &ab_op_max, &attrs, &shape, 1, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL},
                &exec);
    for (int i = 0; i < 8; i++) oracle_put(&r.in[0], i, in[i]);
    for (int i = 0; i < 2; i++) oracle_put(&r.dout, i, 3.0);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    op_run_both(&r);
    assert_true(oracle_get(&r.out, 0) == 5.0 && isnan(oracle_get(&r.out, 1)));
    for (int i = 0; i < 4; i++) assert_true(oracle_get(&r.din[0], i) == 1.5 * share[i]);
    op_run_close(&r);
}

static void refused(const ab_op *op, const op_attrs *attrs, const ab_shape *in, int inputs,
                    const char *part) {
    ab_shape out;
    assert_int_equal(op->infer(attrs, in, inputs, &out), AB_CONFIG);
    if (!strstr(ab_error_message(), part)) fail_msg("%s", ab_error_message());
}

static void shapes_that_do_not_fit_are_named(void **state) {
    (void)state;
    const int64_t bad[] = {0, 7, -1}, twice[] = {0, 0, 1};
    ab_shape in[2] = {{3, {2, 3, 5}}, {3, {2, 4, 5}}};
    op_attrs a = op_attrs_default(&ab_op_reshape);
    set_ints(&ab_op_reshape, &a, "shape", bad, 3);
    refused(&ab_op_reshape, &a, in, 1, "cannot make [0, 7, -1] of [2, 3, 5]");
    a = op_attrs_default(&ab_op_permute);
    set_ints(&ab_op_permute, &a, "dims", twice, 3);
    refused(&ab_op_permute, &a, in, 1, "[2, 3, 5]");
    a = op_attrs_default(&ab_op_transpose);
    op_attrs_set(&ab_op_transpose, &a, "dim0", 3, 0);
    refused(&ab_op_transpose, &a, in, 1, "dim0 3");
    a = op_attrs_default(&ab_op_concat);
    op_attrs_set(&ab_op_concat, &a, "dim", 2, 0);
    refused(&ab_op_concat, &a, in, 2, "[2, 3, 5] and [2, 4, 5]");
    a = op_attrs_default(&ab_op_sum);
    set_ints(&ab_op_sum, &a, "dim", twice, 2);
    refused(&ab_op_sum, &a, in, 1, "[2, 3, 5]");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_arrives_and_every_sum_is_rounded_once),
        cmocka_unit_test(bits_do_not_depend_on_the_lanes),
        cmocka_unit_test(long_sums_do_not_saturate),
        cmocka_unit_test(a_maximum_is_shared_by_equal_elements_and_keeps_nan),
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
