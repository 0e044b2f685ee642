/* What a probe sees: for every op, every value that is stored in a half tensor, once, as it is in fp32 before
 * the cast; and looking changes no bit. */
#include "oracle/op_run.h"

typedef struct op_case {
    const ab_op *op;
    ab_shape in[2];
    double out, kernel; /* out_channels or out_features; kernel_size; 0: none */
} op_case;

static const op_case cases[] = {
    {&ab_op_conv2d, {{.ndim = 4, .dim = {3, 9, 11, 3}}}, 5, 3},
    {&ab_op_conv2d, {{.ndim = 4, .dim = {3, 20, 20, 16}}}, 16, 3},
    {&ab_op_linear, {{.ndim = 2, .dim = {9, 50}}}, 12, 0},
    {&ab_op_linear, {{.ndim = 2, .dim = {300, 50}}}, 80, 0},
    {&ab_op_relu, {{.ndim = 4, .dim = {3, 40, 40, 20}}}, 0, 0},
    {&ab_op_max_pool2d, {{.ndim = 4, .dim = {30, 30, 30, 6}}}, 0, 2},
    {&ab_op_avg_pool2d, {{.ndim = 4, .dim = {3, 8, 8, 6}}}, 0, 3},
    {&ab_op_global_avg_pool, {{.ndim = 4, .dim = {3, 8, 8, 6}}}, 0, 0},
    {&ab_op_batch_norm2d, {{.ndim = 4, .dim = {5, 40, 40, 12}}}, 0, 0},
    {&ab_op_add, {{.ndim = 2, .dim = {70, 1000}}, {.ndim = 2, .dim = {70, 1000}}}, 0, 0},
    {&ab_op_mul, {{.ndim = 2, .dim = {70, 1000}}, {.ndim = 1, .dim = {1000}}}, 0, 0},
    {&ab_op_div, {{.ndim = 2, .dim = {7, 1000}}, {.ndim = 2, .dim = {7, 1}}}, 0, 0},
    {&ab_op_square, {{.ndim = 2, .dim = {70, 1000}}}, 0, 0},
    {&ab_op_sum, {{.ndim = 2, .dim = {70, 1000}}}, 0, 0},
    {&ab_op_mean, {{.ndim = 2, .dim = {70, 1000}}}, 0, 0},
    {&ab_op_concat, {{.ndim = 2, .dim = {70, 1000}}, {.ndim = 2, .dim = {7, 1000}}}, 0, 0},
    {&ab_op_flatten, {{.ndim = 4, .dim = {3, 8, 8, 6}}}, 0, 0},
    {&ab_op_cross_entropy, {{.ndim = 2, .dim = {50, 10}}, {.ndim = 1, .dim = {50}}}, 0, 0},
};

static op_attrs attrs_of(const op_case *k) {
    op_attrs a = op_attrs_default(k->op);
    if (k->out > 0.0) op_attrs_set(k->op, &a, k->kernel > 0.0 ? "out_channels" : "out_features", k->out, 0);
    if (k->kernel > 0.0) op_attrs_set(k->op, &a, "kernel_size", k->kernel, k->kernel);
    if (k->op->finish_attrs) assert_int_equal(k->op->finish_attrs(&a), AB_OK);
    return a;
}

typedef struct setting {
    const ab_format *format;
    const ab_format *result; /* NULL: format */
    ab_cpu_path path;
    bool accumulate_half;
} setting;

static void run(op_run *r, const op_case *k, const op_attrs *attrs, const setting *s, ab_observer *observer) {
    ab_exec exec = {
        .training = true, .observer = observer, .path = s->path, .accumulate_half = s->accumulate_half};
    op_run_open(r, k->op, attrs, k->in, k->in[1].ndim ? 2 : 1, (op_formats){s->format, s->format, s->result},
                &exec);
    op_run_fill_all(r, 5);
    if (k->op->is_loss) memset(r->in[1].data, 0, (size_t)ab_tensor_count(&r->in[1]) * sizeof(int32_t));
    assert_int_equal(op_run_prepare(r), AB_OK);
    op_run_both(r);
}

/* Tensors a run wrote, in a fixed order; NULL at the end. */
static int written(const op_run *r, const ab_tensor **list) {
    int count = 0;
    list[count++] = &r->out;
    for (int i = 0; i < r->inputs; i++)
        if (r->io.din[i]) list[count++] = &r->din[i];
    for (int i = 0; i < r->params; i++) list[count++] = r->io.dparam[i] ? &r->dparam[i] : &r->param[i];
    return count;
}

/* With one thread the calls come in the order of the elements. */
static void check_seen(const op_probe *probe, const ab_tensor *tensor, const ab_tensor *exact) {
    if (tensor->format == &ab_format_fp32) {
        assert_int_equal(probe->count[tensor->id], 0); /* not cast */
        return;
    }
    assert_int_equal(probe->count[tensor->id], ab_tensor_count(tensor));
    for (int64_t i = 0; i < ab_tensor_count(tensor); i++) {
        float seen = probe->seen[tensor->id][i];
        assert_true(oracle_round(tensor->format, (double)seen) == oracle_get(tensor, i));
        if (exact->format == &ab_format_fp32) assert_true((double)seen == oracle_get(exact, i));
    }
}

static void observe(const op_case *k, const setting *s) {
    op_attrs attrs = attrs_of(k);
    setting wide = *s;
    op_run plain, probed, exact;
    op_probe probe = op_probe_open();
    const ab_tensor *stored[16], *unrounded[16], *unseen[16];
    wide.result = &ab_format_fp32;
    wide.accumulate_half = false;
    run(&plain, k, &attrs, s, NULL);
    run(&probed, k, &attrs, s, &probe.base);
    run(&exact, k, &attrs, s->accumulate_half ? s : &wide, NULL);
    int count = written(&probed, stored);
    assert_int_equal(written(&exact, unrounded), count);
    assert_int_equal(written(&plain, unseen), count);
    assert_false(probe.invalid);
    for (int i = 0; i < count; i++) {
        assert_true(op_run_same_bits(stored[i], unseen[i]));
        check_seen(&probe, stored[i], unrounded[i]);
    }
    op_probe_close(&probe);
    op_run_close(&plain);
    op_run_close(&probed);
    op_run_close(&exact);
}

static void every_half_value_is_seen_once_before_the_cast(void **state) {
    (void)state;
    const ab_format *halves[] = {&ab_format_fp16, &ab_format_bf16};
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        for (size_t f = 0; f < AB_COUNT_OF(halves); f++) {
            setting settings[] = {{halves[f], NULL, AB_PATH_AUTO, false},
                                  {halves[f], NULL, AB_PATH_REFERENCE, false},
                                  {halves[f], NULL, AB_PATH_AUTO, true}};
            for (size_t s = 0; s < AB_COUNT_OF(settings); s++) observe(&cases[k], &settings[s]);
        }
}

static void fp32_results_are_not_shown(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++) {
        setting s = {&ab_format_fp32, NULL, AB_PATH_AUTO, false};
        observe(&cases[k], &s);
    }
}

/* With several threads only the order of the calls differs. */
static void lanes_show_the_same_number_of_values(void **state) {
    (void)state;
    assert_int_equal(ab_parallel_start(3), AB_OK);
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++) {
        op_attrs attrs = attrs_of(&cases[k]);
        setting s = {&ab_format_bf16, NULL, AB_PATH_AUTO, false};
        op_probe probe = op_probe_open();
        op_run plain, probed;
        const ab_tensor *stored[16], *unseen[16];
        run(&plain, &cases[k], &attrs, &s, NULL);
        run(&probed, &cases[k], &attrs, &s, &probe.base);
        int count = written(&probed, stored);
        written(&plain, unseen);
        assert_false(probe.invalid);
        for (int i = 0; i < count; i++) {
            bool half = stored[i]->format != &ab_format_fp32;
            assert_true(op_run_same_bits(stored[i], unseen[i]));
            assert_int_equal(probe.count[stored[i]->id], half ? ab_tensor_count(stored[i]) : 0);
        }
        op_probe_close(&probe);
        op_run_close(&plain);
        op_run_close(&probed);
    }
    assert_int_equal(ab_parallel_start(1), AB_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_value_is_seen_once_before_the_cast),
        cmocka_unit_test(fp32_results_are_not_shown),
        cmocka_unit_test(lanes_show_the_same_number_of_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
