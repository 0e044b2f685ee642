/* relu, add and flatten, and the helpers all kernels store with: element by element in every format, on every
 * CPU level and thread count, in small and large tensors. */
#include "oracle/op_run.h"

#include "oracle/doubles.h"

static const ab_shape shapes[] = {{.ndim = 4, .dim = {2, 3, 5, 7}},
                                  {.ndim = 4, .dim = {1, 1, 1, 1}},
                                  {.ndim = 2, .dim = {3, 4099}},
                                  {.ndim = 4, .dim = {3, 37, 36, 17}}};

typedef struct run_spec {
    const ab_op *op;
    op_formats formats;
    void (*check)(const op_run *r);
} run_spec;

static void run_shapes(const void *argument) {
    const run_spec *s = argument;
    for (size_t i = 0; i < AB_COUNT_OF(shapes); i++) {
        ab_shape in[] = {shapes[i], shapes[i]};
        ab_exec exec = {.training = true};
        op_run r;
        op_attrs attrs = op_attrs_default(s->op);
        op_run_open(&r, s->op, &attrs, in, s->op->inputs + s->op->optional_inputs, s->formats, &exec);
        op_run_fill_all(&r, i + 1);
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        s->check(&r);
        op_run_close(&r);
    }
}

static void check_op(const ab_op *op, void (*check)(const op_run *r)) {
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) {
        run_spec s = {op, format[f], check};
        op_each_machine(run_shapes, &s);
    }
    run_spec mixed = {op, {&ab_format_fp16, &ab_format_fp16, &ab_format_fp32}, check};
    op_each_lane_count(run_shapes, &mixed);
}

static void check_relu(const op_run *r) {
    for (int64_t i = 0; i < ab_tensor_count(&r->out); i++) {
        double x = oracle_get(&r->in[0], i);
        assert_true(oracle_get(&r->out, i) == (x > 0.0 ? x : 0.0));
        assert_true(oracle_get(&r->din[0], i) == (x > 0.0 ? oracle_get(&r->dout, i) : 0.0));
    }
}

static void relu_keeps_what_is_positive(void **state) {
    (void)state;
    check_op(&ab_op_relu, check_relu);
}

static void check_add(const op_run *r) {
    for (int64_t i = 0; i < ab_tensor_count(&r->out); i++) {
        double sum = oracle_get(&r->in[0], i) + oracle_get(&r->in[1], i);
        op_run_near(r, "out", &r->out, i, sum, ORACLE_U32 * fabs(sum));
        for (int k = 0; k < 2; k++) assert_true(oracle_get(&r->din[k], i) == oracle_get(&r->dout, i));
    }
}

static void add_rounds_once_and_passes_the_gradient_to_both(void **state) {
    (void)state;
    check_op(&ab_op_add, check_add);
}

/* torch flattens NCHW: feature (c, y, x) of the NHWC image. */
static void check_flatten(const op_run *r) {
    const ab_shape *in = &r->in[0].shape;
    bool image = in->ndim == 4;
    int64_t h = image ? in->dim[1] : 1, w = image ? in->dim[2] : 1, c = in->dim[in->ndim - 1];
    assert_int_equal(r->out.shape.ndim, 2);
    for (int64_t n = 0; n < in->dim[0]; n++)
        for (int64_t k = 0; k < c; k++)
            for (int64_t pixel = 0; pixel < h * w; pixel++) {
                int64_t feature = (n * c + k) * h * w + pixel, at = (n * h * w + pixel) * c + k;
                assert_true(oracle_get(&r->out, feature) == oracle_get(&r->in[0], at));
                assert_true(oracle_get(&r->din[0], at) == oracle_get(&r->dout, feature));
            }
}

static void flatten_puts_channels_first_like_torch(void **state) {
    (void)state;
    check_op(&ab_op_flatten, check_flatten);
}

static void relu_lets_nan_and_infinity_through(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    const double in[] = {(double)NAN, (double)INFINITY, (double)-INFINITY, -0.0, 0.0, 1.0};
    const double out[] = {(double)NAN, (double)INFINITY, 0.0, 0.0, 0.0, 1.0};
    const double gradient[] = {2.0, 2.0, 0.0, 0.0, 0.0, 2.0};
    for (int f = 0; f < formats; f++) {
        ab_shape shape = {.ndim = 2, .dim = {1, 6}};
        ab_exec exec = {.training = true};
        op_run r;
        op_run_open(&r, &ab_op_relu, NULL, &shape, 1, format[f], &exec);
        for (int i = 0; i < 6; i++) {
            oracle_put(&r.in[0], i, in[i]);
            oracle_put(&r.dout, i, 2.0);
        }
        op_run_both(&r);
        for (int i = 0; i < 6; i++) {
            double stored = oracle_get(&r.out, i);
            assert_true(isnan(out[i]) ? isnan(stored) : stored == out[i]);
            assert_true(oracle_get(&r.din[0], i) == gradient[i]);
        }
        op_run_close(&r);
    }
}

/* Every bit pattern of the format as an input, as an output and, shifted by `turn`, as a gradient; signalling
 * NaNs too. */
static void relu_of_all_patterns(op_run *r, const ab_format *format, int turn, ab_observer *observer) {
    ab_shape shape = {.ndim = 1, .dim = {65536}};
    ab_exec exec = {.training = true, .observer = observer};
    op_run_open(r, &ab_op_relu, NULL, &shape, 1, (op_formats){format, format, NULL}, &exec);
    uint16_t *in = r->in[0].data, *dout = r->dout.data;
    for (int i = 0; i < 65536; i++) {
        in[i] = (uint16_t)i;
        dout[i] = (uint16_t)(i + turn);
    }
    op_run_both(r);
}

static void compare_patterns(const void *unused) {
    static const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    (void)unused;
    for (size_t f = 0; f < AB_COUNT_OF(halves); f++)
        for (int turn = 0; turn < 65536; turn += 9973) {
            op_run seen, unseen;
            op_probe probe = op_probe_open();
            relu_of_all_patterns(&unseen, halves[f], turn, NULL);
            relu_of_all_patterns(&seen, halves[f], turn, &probe.base);
            op_run_same_results(&seen, &unseen);
            op_probe_close(&probe);
            op_run_close(&seen);
            op_run_close(&unseen);
        }
}

/* An unwatched relu works on the stored bits: they must be what widening, fp32 and rounding give. */
static void relu_on_stored_bits_equals_relu_in_fp32(void **state) {
    (void)state;
    op_each_machine(compare_patterns, NULL);
}

static void add_refuses_two_shapes_and_names_them(void **state) {
    (void)state;
    ab_shape in[] = {{.ndim = 2, .dim = {3, 4}}, {.ndim = 2, .dim = {3, 5}}}, out;
    op_attrs attrs = op_attrs_default(&ab_op_add);
    assert_int_equal(ab_op_add.infer(&attrs, in, 2, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[3, 4]"));
    assert_non_null(strstr(ab_error_message(), "[3, 5]"));
    ab_shape odd = {.ndim = 3, .dim = {3, 4, 5}};
    assert_int_equal(ab_op_flatten.infer(NULL, &odd, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[3, 4, 5]"));
}

/* ---- casting and accumulating ---------------------------------------------------------------- */

static ab_tensor stored(op_run *r, int64_t n, const ab_format *format, uint64_t seed) {
    ab_shape shape = {.ndim = 1, .dim = {n}};
    ab_tensor t = op_run_tensor(r, shape, format, 7);
    for (int64_t i = 0; i < n; i++) oracle_put(&t, i, 300.0 * oracle_random(seed, i));
    return t;
}

static void cast_all(const void *unused) {
    static const ab_format *const all[] = {&ab_format_fp32, &ab_format_fp16, &ab_format_bf16};
    static const int64_t counts[] = {1, 31, 70001};
    (void)unused;
    for (size_t k = 0; k < AB_COUNT_OF(counts); k++)
        for (size_t f = 0; f < 9; f++) {
            op_run r = {.op = &ab_op_add};
            const ab_format *to = all[f / 3], *from = all[f % 3];
            ab_tensor src = stored(&r, counts[k], from, 1), dst = stored(&r, counts[k], to, 2);
            ab_tensor sum = stored(&r, counts[k], to, 3);
            double *before = oracle_values(&sum);
            ab_exec exec = {0};
            ab_cast(&exec, &dst, &src);
            ab_accumulate(&exec, &sum, &src);
            for (int64_t i = 0; i < counts[k]; i++) {
                double x = oracle_get(&src, i), total = before[i] + x;
                assert_true(oracle_get(&dst, i) == oracle_round(to, x));
                op_run_near(&r, "sum", &sum, i, total, ORACLE_U32 * fabs(total));
            }
            op_run_check_guards(&r);
            free(before);
            op_run_close(&r);
        }
}

static void casts_round_once_and_sums_are_rounded_to_the_destination(void **state) {
    (void)state;
    op_each_machine(cast_all, NULL);
}

static void an_fp32_view_is_the_tensor_itself_or_a_widened_copy(void **state) {
    (void)state;
    op_run r = {.op = &ab_op_add};
    ab_tensor whole = stored(&r, 50000, &ab_format_fp32, 1), half = stored(&r, 50000, &ab_format_bf16, 2);
    float *scratch = op_run_block(&r, 50000 * sizeof(float));
    assert_ptr_equal(ab_view_f32(&whole, scratch), whole.data);
    const float *view = ab_view_f32(&half, scratch);
    assert_ptr_equal(view, scratch);
    for (int64_t i = 0; i < 50000; i++) assert_true((double)view[i] == oracle_get(&half, i));
    op_run_check_guards(&r);
    op_run_close(&r);
}

/* ---- the list -------------------------------------------------------------------------------- */

static void ops_are_found_by_name_and_unknown_names_get_the_nearest(void **state) {
    (void)state;
    for (int i = 0; i < ab_op_count(); i++) {
        const ab_op *op;
        int index;
        assert_int_equal(ab_op_find(ab_op_at(i)->name, &op, &index), AB_OK);
        assert_ptr_equal(op, ab_op_at(i));
        assert_int_equal(index, i);
        assert_int_equal(ab_op_find(ab_op_at(i)->name, &op, NULL), AB_OK);
    }
    const ab_op *op;
    assert_int_equal(ab_op_find("conv2", &op, NULL), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "\"conv2\""));
    assert_non_null(strstr(ab_error_message(), "conv2d"));
    assert_int_equal(ab_op_find("zzzzzzzzzz", &op, NULL), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "zzzzzzzzzz"));
}

static void classes_follow_apex(void **state) {
    (void)state;
    const struct {
        const char *name;
        ab_op_class class_of;
    } rows[] = {{"conv2d", AB_CLASS_low},          {"linear", AB_CLASS_low},
                {"cross_entropy", AB_CLASS_fp32},  {"add", AB_CLASS_promote},
                {"batch_norm2d", AB_CLASS_follow}, {"relu", AB_CLASS_follow}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        const ab_op *op;
        int index;
        assert_int_equal(ab_op_find(rows[i].name, &op, &index), AB_OK);
        assert_int_equal(ab_op_class_at(index), rows[i].class_of);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(relu_keeps_what_is_positive),
        cmocka_unit_test(add_rounds_once_and_passes_the_gradient_to_both),
        cmocka_unit_test(flatten_puts_channels_first_like_torch),
        cmocka_unit_test(relu_lets_nan_and_infinity_through),
        cmocka_unit_test(relu_on_stored_bits_equals_relu_in_fp32),
        cmocka_unit_test(add_refuses_two_shapes_and_names_them),
        cmocka_unit_test(casts_round_once_and_sums_are_rounded_to_the_destination),
        cmocka_unit_test(an_fp32_view_is_the_tensor_itself_or_a_widened_copy),
        cmocka_unit_test(ops_are_found_by_name_and_unknown_names_get_the_nearest),
        cmocka_unit_test(classes_follow_apex),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
