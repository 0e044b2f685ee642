/* matmul against sums in double: batches, operands that are shared by several products, blocks of rows, every
 * format and path. */
#include "oracle/doubles.h"
#include "oracle/op_run.h"

static const ab_shape cases[][2] = {
    {{2, {7, 5}}, {2, {5, 9}}},
    {{2, {300, 65}}, {2, {65, 33}}},
    {{3, {20, 9, 17}}, {3, {20, 17, 11}}},
    {{4, {2, 3, 33, 8}}, {4, {2, 3, 8, 33}}},
    {{3, {6, 40, 7}}, {2, {7, 12}}},
    {{2, {40, 7}}, {3, {6, 7, 12}}},
    {{4, {2, 1, 5, 6}}, {3, {3, 6, 4}}},
    {{2, {1, 1}}, {2, {1, 1}}},
};

/* Matrix of an operand for product `item` of the result. */
static int64_t matrix(const ab_shape *out, const ab_shape *operand, int64_t item) {
    int64_t index = 0, step = 1;
    for (int i = 3; i <= out->ndim; i++) {
        int64_t digit = item % out->dim[out->ndim - i];
        item /= out->dim[out->ndim - i];
        if (i > operand->ndim) continue;
        if (operand->dim[operand->ndim - i] != 1) index += digit * step;
        step *= operand->dim[operand->ndim - i];
    }
    return index;
}

static void check(const op_run *r) {
    const ab_shape *a = &r->in[0].shape, *b = &r->in[1].shape, *out = &r->out.shape;
    const int64_t m = a->dim[a->ndim - 2], k = a->dim[a->ndim - 1], n = b->dim[b->ndim - 1];
    const int64_t items = ab_tensor_count(&r->out) / (m * n);
    oracle_sums c = oracle_sums_open(ab_tensor_count(&r->out)),
                by_a = oracle_sums_open(ab_tensor_count(&r->in[0])),
                by_b = oracle_sums_open(ab_tensor_count(&r->in[1]));
    for (int64_t item = 0; item < items; item++)
        for (int64_t i = 0; i < m; i++)
            for (int64_t j = 0; j < n; j++) {
                int64_t at = (item * m + i) * n + j;
                double dout = oracle_get(&r->dout, at);
                for (int64_t l = 0; l < k; l++) {
                    int64_t at_a = (matrix(out, a, item) * m + i) * k + l,
                            at_b = (matrix(out, b, item) * k + l) * n + j;
                    double x = oracle_get(&r->in[0], at_a), y = oracle_get(&r->in[1], at_b);
                    oracle_add(c, at, x * y);
                    oracle_add(by_a, at_a, dout * y);
                    oracle_add(by_b, at_b, dout * x);
                }
            }
    oracle_sums_check(r, "out", &r->out, c, k);
    oracle_sums_check(r, "da", &r->din[0], by_a, n * items);
    oracle_sums_check(r, "db", &r->din[1], by_b, m * items);
    oracle_sums_close(&c);
    oracle_sums_close(&by_a);
    oracle_sums_close(&by_b);
}

typedef struct run_spec {
    op_formats formats;
    ab_cpu_path path;
} run_spec;

static void open_case(op_run *r, const ab_shape *in, op_formats formats, const ab_exec *exec) {
    op_run_open(r, &ab_op_matmul, NULL, in, 2, formats, exec);
    op_run_fill_all(r, 3);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void run_cases(const void *argument) {
    const run_spec *s = argument;
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        ab_exec exec = {.training = true, .path = s->path};
        op_run r;
        open_case(&r, cases[i], s->formats, &exec);
        op_run_both(&r);
        check(&r);
        op_run_close(&r);
    }
}

static void products_and_gradients_match_sums_in_double(void **state) {
    (void)state;
    static const ab_cpu_path paths[] = {AB_PATH_AUTO, AB_PATH_REFERENCE};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t p = 0; p < AB_COUNT_OF(paths); p++)
        for (int f = 0; f < formats; f++) {
            run_spec s = {format[f], paths[p]};
            op_each_lane_count(run_cases, &s);
        }
}

static void bits_do_not_depend_on_the_lanes(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        ab_exec exec = {.training = true};
        op_run r[3];
        for (int threads = 3; threads >= 1; threads--) {
            assert_int_equal(ab_parallel_start(threads), AB_OK);
            open_case(&r[threads - 1], cases[i], (op_formats){&ab_format_bf16, &ab_format_bf16, NULL}, &exec);
            op_run_both(&r[threads - 1]);
        }
        for (int k = 1; k < 3; k++) op_run_same_results(&r[0], &r[k]);
        for (int k = 0; k < 3; k++) op_run_close(&r[k]);
    }
}

/* What a gradient does not read is gone by then. */
static void each_gradient_reads_the_other_operand_alone(void **state) {
    (void)state;
    assert_int_equal(ab_op_needs(&ab_op_matmul, NULL, 2, 1), 2);
    assert_int_equal(ab_op_needs(&ab_op_matmul, NULL, 2, 2), 1);
    assert_int_equal(ab_op_needs(&ab_op_matmul, NULL, 2, 3), 3);
    for (int wanted = 0; wanted < 2; wanted++) {
        ab_exec exec = {.training = true};
        op_run r, whole;
        const op_formats formats = {&ab_format_fp16, &ab_format_fp16, NULL};
        op_run_open(&r, &ab_op_matmul, NULL, cases[2], 2, formats, &exec);
        r.io.din[1 - wanted] = NULL;
        op_run_fill_all(&r, 3);
        assert_int_equal(op_run_prepare(&r), AB_OK);
        assert_int_equal(r.op->forward(&r.exec, &r.io), AB_OK);
        r.in[wanted].data = NULL;
        assert_int_equal(r.op->backward(&r.exec, &r.io), AB_OK);
        open_case(&whole, cases[2], formats, &exec);
        assert_int_equal(whole.op->forward(&whole.exec, &whole.io), AB_OK);
        assert_int_equal(whole.op->backward(&whole.exec, &whole.io), AB_OK);
        assert_true(op_run_same_bits(&r.din[wanted], &whole.din[wanted]));
        op_run_close(&r);
        op_run_close(&whole);
    }
}

/* 4096 ones: a sum in fp16 stops at 2048. */
static void half_accumulation_loses_what_half_sums_lose(void **state) {
    (void)state;
    ab_shape in[] = {{2, {1, 4096}}, {2, {4096, 1}}};
    for (int half = 0; half < 2; half++) {
        ab_exec exec = {.training = true, .accumulate_half = half == 1};
        op_run r;
        open_case(&r, in, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL}, &exec);
        for (int i = 0; i < 4096; i++) {
            oracle_put(&r.in[0], i, 1);
            oracle_put(&r.in[1], i, 1);
        }
        op_run_both(&r);
        assert_true(oracle_get(&r.out, 0) == (half ? 2048 : 4096));
        assert_non_null(strstr(r.op->describe(&r.io, "forward"), half ? "half accumulation" : "convert+"));
        op_run_close(&r);
    }
}

static void shapes_that_do_not_multiply_are_named(void **state) {
    (void)state;
    const ab_shape bad[][2] = {
        {{2, {3, 4}}, {2, {3, 4}}}, {{1, {4}}, {2, {4, 3}}}, {{3, {2, 3, 4}}, {3, {3, 4, 3}}}};
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        ab_shape out;
        char text[AB_SHAPE_TEXT];
        assert_int_equal(ab_op_matmul.infer(NULL, bad[i], 2, &out), AB_CONFIG);
        assert_non_null(strstr(ab_error_message(), ab_shape_text(&bad[i][0], text)));
        assert_non_null(strstr(ab_error_message(), ab_shape_text(&bad[i][1], text)));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_and_gradients_match_sums_in_double),
        cmocka_unit_test(bits_do_not_depend_on_the_lanes),
        cmocka_unit_test(each_gradient_reads_the_other_operand_alone),
        cmocka_unit_test(half_accumulation_loses_what_half_sums_lose),
        cmocka_unit_test(shapes_that_do_not_multiply_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
