/* What a probe sees of the ops of transformers, recurrences and images: every value that is stored in a half
 * tensor, once, as it is in fp32 before the cast, in whatever order; looking changes no bit. */
#include "oracle/op_run.h"

typedef struct op_case {
    const ab_op *op;
    ab_shape in;
    const char *attr[2];
    double value[2];
} op_case;

static const op_case cases[] = {
    {&ab_op_layer_norm, {3, {3, 7, 33}}, {NULL}, {0}},
    {&ab_op_rms_norm, {2, {40, 250}}, {NULL}, {0}},
    {&ab_op_group_norm, {4, {3, 9, 9, 6}}, {"num_groups"}, {3}},
    {&ab_op_gelu, {2, {70, 950}}, {NULL}, {0}},
    {&ab_op_silu, {2, {7, 1000}}, {NULL}, {0}},
    {&ab_op_tanh, {2, {7, 1000}}, {NULL}, {0}},
    {&ab_op_sigmoid, {2, {7, 1000}}, {NULL}, {0}},
    {&ab_op_softmax, {3, {3, 7, 33}}, {NULL}, {0}},
    {&ab_op_log_softmax, {2, {3, 2000}}, {NULL}, {0}},
    {&ab_op_scaled_dot_product_attention, {3, {2, 11, 36}}, {"num_heads", "is_causal"}, {3, 1}},
    {&ab_op_scaled_dot_product_attention, {3, {1, 40, 24}}, {"num_heads", "dropout_p"}, {2, 0.25}},
    {&ab_op_lstm, {3, {19, 4, 5}}, {"hidden_size"}, {7}},
    {&ab_op_gru, {3, {19, 4, 5}}, {"hidden_size"}, {7}},
    {&ab_op_fused_layer_norm, {3, {3, 7, 33}}, {NULL}, {0}},
    {&ab_op_fused_rms_norm, {2, {40, 250}}, {"memory_efficient"}, {1}},
    {&ab_op_embedding, {2, {5, 9}}, {"num_embeddings", "embedding_dim"}, {13, 17}},
    {&ab_op_positional_embedding, {3, {3, 5, 9}}, {"num_embeddings", "class_token"}, {8, 1}},
    {&ab_op_dropout, {2, {3, 3001}}, {NULL}, {0}},
    {&ab_op_select, {3, {3, 5, 2100}}, {"index"}, {2}},
    {&ab_op_upsample, {4, {3, 5, 4, 3}}, {"scale_factor"}, {2}},
};

static op_attrs attrs_of(const op_case *k) {
    op_attrs a = op_attrs_default(k->op);
    for (int i = 0; i < 2 && k->attr[i]; i++) op_attrs_set(k->op, &a, k->attr[i], k->value[i], k->value[i]);
    return a;
}

static void run(op_run *r, const op_case *k, const op_attrs *attrs, const ab_format *format,
                bool accumulate_half, ab_observer *observer) {
    ab_exec exec = {.training = true, .observer = observer, .accumulate_half = accumulate_half, .seed = 3};
    op_run_open(r, k->op, attrs, &k->in, 1, (op_formats){format, format, NULL}, &exec);
    op_run_fill_all(r, 5);
    for (int64_t i = 0; k->op == &ab_op_embedding && i < ab_tensor_count(&r->in[0]); i++)
        ((int32_t *)r->in[0].data)[i] = (int32_t)(i * 5 % 13);
    assert_int_equal(op_run_prepare(r), AB_OK);
    op_run_both(r);
}

static int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Both lists in order, so that threads and heads may come as they like. */
static void check_seen(const op_probe *probe, const ab_tensor *tensor) {
    int64_t n = ab_tensor_count(tensor);
    if (probe->count[tensor->id] != n)
        fail_msg("tensor %d: %lld of %lld values seen", tensor->id, (long long)probe->count[tensor->id],
                 (long long)n);
    double *seen = calloc((size_t)n, sizeof *seen), *stored = calloc((size_t)n, sizeof *stored);
    assert_true(seen && stored);
    for (int64_t i = 0; i < n; i++) {
        seen[i] = oracle_round(tensor->format, (double)probe->seen[tensor->id][i]);
        stored[i] = oracle_get(tensor, i);
    }
    qsort(seen, (size_t)n, sizeof *seen, compare_numbers);
    qsort(stored, (size_t)n, sizeof *stored, compare_numbers);
    for (int64_t i = 0; i < n; i++) assert_true(seen[i] == stored[i]);
    free(seen);
    free(stored);
}

static void observe(const op_case *k, const ab_format *format, bool accumulate_half) {
    op_attrs attrs = attrs_of(k);
    op_run plain, probed;
    op_probe probe = op_probe_open();
    run(&plain, k, &attrs, format, accumulate_half, NULL);
    run(&probed, k, &attrs, format, accumulate_half, &probe.base);
    assert_false(probe.invalid);
    op_run_same_results(&plain, &probed);
    check_seen(&probe, &probed.out);
    if (probed.io.din[0]) check_seen(&probe, &probed.din[0]);
    for (int i = 0; i < probed.params; i++) check_seen(&probe, &probed.dparam[i]);
    op_probe_close(&probe);
    op_run_close(&plain);
    op_run_close(&probed);
}

static void every_half_value_is_seen_once(void **state) {
    (void)state;
    const ab_format *halves[] = {&ab_format_fp16, &ab_format_bf16};
    for (int threads = 3; threads >= 1; threads -= 2) {
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
            for (size_t f = 0; f < AB_COUNT_OF(halves); f++) {
                observe(&cases[k], halves[f], false);
                if (cases[k].op == &ab_op_lstm || cases[k].op == &ab_op_scaled_dot_product_attention)
                    observe(&cases[k], halves[f], true);
            }
    }
}

static void fp32_results_are_not_shown(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++) {
        op_attrs attrs = attrs_of(&cases[k]);
        op_probe probe = op_probe_open();
        op_run r;
        run(&r, &cases[k], &attrs, &ab_format_fp32, false, &probe.base);
        for (int id = 0; id < OP_PROBE_IDS; id++) assert_int_equal(probe.count[id], 0);
        op_probe_close(&probe);
        op_run_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_half_value_is_seen_once),
        cmocka_unit_test(fp32_results_are_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
