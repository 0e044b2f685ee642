/* linear against the double-precision oracle (a 1x1 convolution of 1x1 images), in every format, path, thread
 * count and CPU level, and behind three-dimensional inputs. */
#include "oracle/op_run.h"

#include "kernels/format/convert.h"
#include "kernels/ops/product/bf16_unit.h"
#include "kernels/ops/rows.h"
#include "kernels/vec/isa.h"
#include "oracle/conv.h"

typedef struct linear_case {
    int64_t rows, in, out;
    bool bias;
} linear_case;

static const linear_case cases[] = {
    {1, 1, 1, true},      {3, 5, 7, true},      {17, 33, 10, false},  {64, 400, 12, true},
    {2, 1030, 3, true},   {96, 64, 48, true},   {72, 260, 180, true}, /* cut into slices */
    {128, 40, 50, true},  {129, 40, 50, true},                        /* few rows, and one more */
    {70, 150, 190, true}, {65, 272, 48, false},                       /* several parts, groups and blocks */
    {512, 96, 70, true},  {600, 34, 21, true},  {150, 530, 66, true}, /* more rows: blocks and sections */
    {1100, 34, 20, true}, {63, 34, 129, true}, /* tiles of oneDNN before 3.1 (library_defects.c) */
};

typedef struct expected {
    oracle_conv shape;
    double *in, *weight, *dout;
    oracle_sums out, din, dweight, dbias;
} expected;

static op_attrs attrs_of(const linear_case *k) {
    op_attrs a = op_attrs_default(&ab_op_linear);
    op_attrs_set(&ab_op_linear, &a, "out_features", (double)k->out, 0);
    op_attrs_set(&ab_op_linear, &a, "bias", k->bias, 0);
    return a;
}

static expected expect(const linear_case *k, const op_run *r) {
    expected e = {.shape = {k->rows, 1, 1, k->in, k->out, 1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1},
                  .in = oracle_values(&r->in[0]),
                  .weight = oracle_values(&r->param[0]),
                  .dout = oracle_values(&r->dout),
                  .out = oracle_sums_open(k->rows * k->out),
                  .din = oracle_sums_open(k->rows * k->in),
                  .dweight = oracle_sums_open(k->out * k->in),
                  .dbias = oracle_sums_open(k->out)};
    for (int64_t i = 0; i < k->rows * k->out; i++) {
        if (k->bias) oracle_add(e.out, i, oracle_get(&r->param[1], i % k->out));
        oracle_add(e.dbias, i % k->out, e.dout[i]);
    }
    oracle_conv_all(&e.shape, e.in, e.weight, e.dout, e.out, e.din, e.dweight);
    return e;
}

static void forget(expected *e) {
    oracle_sums *sums[] = {&e->out, &e->din, &e->dweight, &e->dbias};
    for (size_t i = 0; i < AB_COUNT_OF(sums); i++) oracle_sums_close(sums[i]);
    free(e->in);
    free(e->weight);
    free(e->dout);
}

static void open_case(op_run *r, const linear_case *k, const op_attrs *attrs, op_formats formats,
                      const ab_exec *exec) {
    ab_shape in = {.ndim = 2, .dim = {k->rows, k->in}};
    op_run_open(r, &ab_op_linear, attrs, &in, 1, formats, exec);
    op_run_fill_all(r, (uint64_t)(k->rows * 7 + k->in));
}

static void check_all(const op_run *r, const linear_case *k, const expected *e) {
    oracle_sums_check(r, "out", &r->out, e->out, k->in + 1);
    oracle_sums_check(r, "din", &r->din[0], e->din, k->out);
    oracle_sums_check(r, "dweight", &r->dparam[0], e->dweight, k->rows);
    if (k->bias) oracle_sums_check(r, "dbias", &r->dparam[1], e->dbias, k->rows);
}

typedef struct run_spec {
    const linear_case *k;
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
        check_all(&r, s->k, s->e);
    } else {
        assert_int_equal(s->path, AB_PATH_NATIVE);
        assert_int_equal(status, AB_UNAVAILABLE);
    }
    op_run_close(&r);
}

static void check_formats(op_formats formats) {
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        op_attrs attrs = attrs_of(&cases[i]);
        ab_exec exec = {0};
        op_run r;
        open_case(&r, &cases[i], &attrs, formats, &exec);
        expected e = expect(&cases[i], &r);
        run_spec s = {&cases[i], formats, AB_PATH_AUTO, &e};
        op_each_machine(run_and_compare, &s);
        for (int path = AB_PATH_NATIVE; path <= AB_PATH_REFERENCE; path++) {
            s.path = (ab_cpu_path)path;
            op_each_lane_count(run_and_compare, &s);
        }
        forget(&e);
        op_run_close(&r);
    }
}

static void every_case_format_and_path_matches_the_oracle(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) check_formats(format[f]);
}

static void each_tensor_may_have_its_own_format(void **state) {
    (void)state;
    check_formats((op_formats){&ab_format_fp16, &ab_format_fp32, NULL});
    check_formats((op_formats){&ab_format_bf16, &ab_format_fp16, &ab_format_fp32});
}

static void a_third_dimension_is_more_rows(void **state) {
    (void)state;
    static const linear_case flat = {6, 5, 4, true};
    op_attrs attrs = attrs_of(&flat);
    ab_exec exec = {.training = true};
    ab_shape deep = {.ndim = 3, .dim = {2, 3, 5}};
    op_run a, b;
    open_case(&a, &flat, &attrs, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL}, &exec);
    op_run_open(&b, &ab_op_linear, &attrs, &deep, 1, (op_formats){&ab_format_fp16, &ab_format_fp16, NULL},
                &exec);
    op_run_fill_all(&b, (uint64_t)(flat.rows * 7 + flat.in));
    assert_int_equal(b.out.shape.ndim, 3);
    assert_int_equal(b.out.shape.dim[2], 4);
    assert_int_equal(op_run_prepare(&a), AB_OK);
    assert_int_equal(op_run_prepare(&b), AB_OK);
    op_run_both(&a);
    op_run_both(&b);
    op_run_same_results(&a, &b);
    op_run_close(&a);
    op_run_close(&b);
}

static void case_with_other_lanes(const linear_case *k, op_formats formats) {
    op_attrs attrs = attrs_of(k);
    op_run r[3];
    for (int i = 0; i < 3; i++) {
        ab_exec exec = {.training = true};
        assert_int_equal(ab_parallel_start(3 - i), AB_OK);
        open_case(&r[i], k, &attrs, formats, &exec);
        assert_int_equal(op_run_prepare(&r[i]), AB_OK);
        op_run_both(&r[i]);
        if (i > 0) op_run_same_results(&r[0], &r[i]);
    }
    for (int i = 0; i < 3; i++) op_run_close(&r[i]);
}

static void bits_do_not_depend_on_the_lanes(void **state) {
    (void)state;
    static const op_formats formats[] = {{&ab_format_fp32, &ab_format_fp32, NULL},
                                         {&ab_format_fp16, &ab_format_fp16, NULL},
                                         {&ab_format_bf16, &ab_format_bf16, NULL}};
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++) case_with_other_lanes(&cases[k], formats[f]);
}

static void case_at_two_widths(const linear_case *k, op_formats formats) {
    const ab_isa levels[] = {AB_ISA_AVX2, AB_ISA_AVX512};
    static const char *const passes[] = {"forward", "backward_data", "backward_weights"};
    op_attrs attrs = attrs_of(k);
    op_run r[2];
    for (int i = 0; i < 2; i++) {
        ab_exec exec = {.training = true, .path = AB_PATH_CONVERT};
        assert_int_equal(ab_isa_force(levels[i]), AB_OK);
        open_case(&r[i], k, &attrs, formats, &exec);
        assert_int_equal(op_run_prepare(&r[i]), AB_OK);
        op_run_both(&r[i]);
    }
    const char *own = k->rows <= 128 ? "panel:avx2" : "blocked:avx2";
    for (size_t i = 0; i < AB_COUNT_OF(passes); i++)
        assert_non_null(strstr(ab_op_linear.describe(&r[0].io, passes[i]), own));
    op_run_same_results(&r[0], &r[1]);
    for (int i = 0; i < 2; i++) op_run_close(&r[i]);
}

static void every_vector_width_gives_the_same_bits(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats && ab_isa_best() >= AB_ISA_AVX512; f++)
        for (size_t k = 0; k < AB_COUNT_OF(cases); k++) case_at_two_widths(&cases[k], format[f]);
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

static void copy_values(const ab_tensor *to, const ab_tensor *from) {
    for (int64_t i = 0; i < ab_tensor_count(from); i++) oracle_put(to, i, oracle_get(from, i));
}

static void check_rounded(const ab_tensor *half, const ab_tensor *wide) {
    for (int64_t i = 0; i < ab_tensor_count(wide); i++) {
        const float value = (float)oracle_get(wide, i);
        uint16_t code;
        ab_narrow(&code, half->format, &value, 1);
        assert_int_equal(((const uint16_t *)half->data)[i], code);
    }
}

static void case_in_half_and_fp32(const linear_case *k, const ab_format *half) {
    const op_formats formats[] = {{half, half, NULL}, {&ab_format_fp32, &ab_format_fp32, NULL}};
    op_attrs attrs = attrs_of(k);
    op_run r[2];
    for (int i = 0; i < 2; i++) {
        ab_exec exec = {.training = true, .path = AB_PATH_CONVERT};
        open_case(&r[i], k, &attrs, formats[i], &exec);
        copy_values(&r[i].in[0], &r[0].in[0]);
        copy_values(&r[i].dout, &r[0].dout);
        for (int p = 0; p < 1 + k->bias; p++) copy_values(&r[i].param[p], &r[0].param[p]);
        assert_int_equal(op_run_prepare(&r[i]), AB_OK);
        op_run_both(&r[i]);
    }
    check_rounded(&r[0].out, &r[1].out);
    check_rounded(&r[0].din[0], &r[1].din[0]);
    check_rounded(&r[0].dparam[0], &r[1].dparam[0]);
    for (int i = 0; i < 2; i++) op_run_close(&r[i]);
}

/* Also where tiles round their results themselves: panels of 16 columns and more, sums that go on, lines that
 * fill no tile. */
static void half_results_are_those_of_fp32_rounded_once(void **state) {
    (void)state;
    static const linear_case whole[] = {{70, 304, 80, true}, {131, 528, 64, true}, {1100, 48, 20, false}};
    static const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    for (int isa = AB_ISA_AVX2; isa <= (int)ab_isa_best() && isa <= AB_ISA_AVX512; isa++)
        for (size_t f = 0; f < AB_COUNT_OF(halves); f++) {
            assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
            for (size_t k = 0; k < AB_COUNT_OF(cases); k++) case_in_half_and_fp32(&cases[k], halves[f]);
            for (size_t k = 0; k < AB_COUNT_OF(whole); k++) case_in_half_and_fp32(&whole[k], halves[f]);
        }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

static void expect_row_sums(const op_run *r) {
    const ab_tensor *bias = &r->dparam[1];
    float *sum = calloc((size_t)ab_tensor_count(bias), sizeof *sum);
    void *scratch = aligned_alloc(AB_ALIGN, ab_rows_sum_bytes(&r->dout));
    assert_true(sum && scratch);
    ab_rows_sum(&r->dout, sum, scratch);
    for (int64_t i = 0; i < ab_tensor_count(bias); i++)
        assert_true(oracle_get(bias, i) == oracle_round(bias->format, (double)sum[i]));
    free(scratch);
    free(sum);
}

/* weights: whether the weight gradient is wanted. */
static void case_of_bias(const linear_case *k, op_formats formats, ab_cpu_path path, bool weights) {
    op_attrs attrs = attrs_of(k);
    ab_exec exec = {.training = true, .path = path};
    op_run r;
    open_case(&r, k, &attrs, formats, &exec);
    if (!weights) r.io.dparam[0] = NULL;
    const ab_status status = op_run_prepare(&r);
    assert_true(status == AB_OK || path == AB_PATH_NATIVE);
    if (status == AB_OK) {
        op_run_both(&r);
        expect_row_sums(&r);
    }
    op_run_close(&r);
}

/* Blocks sum bias gradients while they turn dout: by the same sums as rows of other ops. On the host alone,
 * which the paths here do not leave. */
static void bias_gradients_are_sums_over_rows(void **state) {
    (void)state;
    static const linear_case many[] = {
        {140, 20, 64, true}, {700, 18, 64, true}, {1100, 20, 260, true}, {2100, 10, 128, true}};
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best(); isa++) {
        assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
        for (int f = 0; f < formats; f++)
            for (size_t k = 0; k < AB_COUNT_OF(many); k++)
                for (int i = 0; i < 4; i++)
                    case_of_bias(&many[k], format[f], i & 1 ? AB_PATH_NATIVE : AB_PATH_CONVERT, i & 2);
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

static bool runs_as(ab_isa level, ab_cpu_path path, const linear_case *k, const char *text) {
    op_attrs attrs = attrs_of(k);
    ab_exec exec = {.training = true, .path = path};
    op_run r;
    assert_int_equal(ab_isa_force(level), AB_OK);
    open_case(&r, k, &attrs, (op_formats){&ab_format_bf16, &ab_format_bf16, NULL}, &exec);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    const bool same = strcmp(ab_op_linear.describe(&r.io, "backward_data"), text) == 0;
    op_run_close(&r);
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
    return same;
}

static void bf16_is_computed_in_pairs_where_the_cpu_level_has_a_unit(void **state) {
    (void)state;
    static const linear_case many = {200, 40, 50, true};
    const linear_case *of[] = {&cases[5], &many};
    static const char *const kinds[] = {"panel", "blocked"};
    for (int path = AB_PATH_AUTO; path <= AB_PATH_NATIVE; path++)
        for (size_t i = 0; i < AB_COUNT_OF(of); i++) {
            const ab_bf16_unit *unit = ab_bf16_unit_get(path == AB_PATH_NATIVE);
            char text[64];
            if (!unit) continue;
            snprintf(text, sizeof text, "native+%s:%s", kinds[i], unit->name);
            assert_true(runs_as(ab_isa_best(), (ab_cpu_path)path, of[i], text));
            assert_false(runs_as(AB_ISA_PLAIN, AB_PATH_AUTO, of[i], text));
        }
}

static void check_infinities(const linear_case *k, ab_cpu_path path) {
    op_attrs attrs = attrs_of(k);
    ab_exec exec = {.training = true, .path = path};
    op_run r;
    open_case(&r, k, &attrs, (op_formats){&ab_format_bf16, &ab_format_bf16, NULL}, &exec);
    oracle_put(&r.in[0], k->in + 2, (double)INFINITY);
    oracle_put(&r.dout, 2 * k->out + 1, (double)-INFINITY);
    if (op_run_prepare(&r) == AB_OK) {
        op_run_both(&r);
        for (int64_t i = 0; i < ab_tensor_count(&r.out); i++)
            assert_int_equal(!isfinite(oracle_get(&r.out, i)), i / k->out == 1);
        for (int64_t i = 0; i < ab_tensor_count(&r.din[0]); i++)
            assert_int_equal(!isfinite(oracle_get(&r.din[0], i)), i / k->in == 2);
        for (int64_t i = 0; i < ab_tensor_count(&r.dparam[0]); i++)
            assert_int_equal(!isfinite(oracle_get(&r.dparam[0], i)), i % k->in == 2 || i / k->in == 1);
    }
    op_run_close(&r);
}

/* An infinity in one input reaches exactly its row of out and its column of the weight gradient; one in dout
 * exactly its row of din and of the weight gradient. */
static void infinities_stay_in_their_row(void **state) {
    (void)state;
    static const linear_case many = {131, 38, 18, true};
    for (int path = AB_PATH_AUTO; path <= AB_PATH_REFERENCE; path++) {
        for (int k = 1; k < 4; k++) check_infinities(&cases[k], (ab_cpu_path)path);
        check_infinities(&many, (ab_cpu_path)path);
    }
}

static void images_must_be_flattened_first(void **state) {
    (void)state;
    op_attrs attrs = attrs_of(&cases[0]);
    ab_shape image = {.ndim = 4, .dim = {1, 8, 8, 3}}, out;
    assert_int_equal(ab_op_linear.infer(&attrs, &image, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[1, 8, 8, 3]"));
    assert_non_null(strstr(ab_error_message(), "flatten"));
}

static void flops_count_two_per_multiply_add(void **state) {
    (void)state;
    op_attrs attrs = attrs_of(&cases[1]);
    ab_shape in = {.ndim = 2, .dim = {3, 5}}, out;
    assert_int_equal(ab_op_linear.infer(&attrs, &in, 1, &out), AB_OK);
    assert_true(ab_op_linear.flops(&attrs, &in, &out) == 2.0 * 3 * 5 * 7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_format_and_path_matches_the_oracle),
        cmocka_unit_test(each_tensor_may_have_its_own_format),
        cmocka_unit_test(a_third_dimension_is_more_rows),
        cmocka_unit_test(bits_do_not_depend_on_the_lanes),
        cmocka_unit_test(every_vector_width_gives_the_same_bits),
        cmocka_unit_test(half_results_are_those_of_fp32_rounded_once),
        cmocka_unit_test(bias_gradients_are_sums_over_rows),
        cmocka_unit_test(bf16_is_computed_in_pairs_where_the_cpu_level_has_a_unit),
        cmocka_unit_test(infinities_stay_in_their_row),
        cmocka_unit_test(images_must_be_flattened_first),
        cmocka_unit_test(flops_count_two_per_multiply_add),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
