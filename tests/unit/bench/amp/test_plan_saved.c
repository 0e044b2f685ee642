/* What ops keep for the backward pass is never more than what PyTorch keeps: the bytes of its column were
 * counted by scripts/golden_saved.py with PyTorch 2.11. The plan frees everything else at the end of the
 * forward pass. */
#include "oracle/op_run.h"

enum { BATCH = 6 };

typedef struct setting {
    const char *name;
    double value;
    const char *second;
    double second_value;
} setting;

typedef struct row {
    const char *op;
    int64_t torch; /* bytes, fp32 */
    int inputs;
    ab_shape in[3];
    setting number; /* attributes */
} row;

static const row rows[] = {
    {.op = "conv2d",
     .torch = 27648,
     .inputs = 1,
     .in = {{4, {BATCH, 12, 12, 8}}},
     .number = {"out_channels", 5, "kernel_size", 3}},
    {.op = "linear",
     .torch = 768,
     .inputs = 1,
     .in = {{2, {BATCH, 32}}},
     .number = {"out_features", 7, NULL, 0}},
    {.op = "relu", .torch = 27648, .inputs = 1, .in = {{4, {BATCH, 12, 12, 8}}}},
    {.op = "max_pool2d",
     .torch = 41472,
     .inputs = 1,
     .in = {{4, {BATCH, 12, 12, 8}}},
     .number = {"kernel_size", 2, NULL, 0}},
    {.op = "avg_pool2d",
     .torch = 27648,
     .inputs = 1,
     .in = {{4, {BATCH, 12, 12, 8}}},
     .number = {"kernel_size", 2, NULL, 0}},
    {.op = "batch_norm2d", .torch = 27712, .inputs = 1, .in = {{4, {BATCH, 12, 12, 8}}}},
    {.op = "add", .torch = 0, .inputs = 2, .in = {{2, {BATCH, 32}}, {2, {BATCH, 32}}}},
    {.op = "sub", .torch = 0, .inputs = 2, .in = {{2, {BATCH, 32}}, {2, {BATCH, 32}}}},
    {.op = "mul", .torch = 1536, .inputs = 2, .in = {{2, {BATCH, 32}}, {2, {BATCH, 32}}}},
    {.op = "div", .torch = 1536, .inputs = 2, .in = {{2, {BATCH, 32}}, {2, {BATCH, 32}}}},
    {.op = "neg", .torch = 0, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "exp", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "log", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "sqrt", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "rsqrt", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "square", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "abs", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "clamp", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "scale", .torch = 0, .inputs = 1, .in = {{2, {BATCH, 32}}}, .number = {"factor", 3, NULL, 0}},
    {.op = "sum", .torch = 0, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "mean", .torch = 0, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "max", .torch = 772, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "reshape", .torch = 0, .inputs = 1, .in = {{3, {BATCH, 10, 32}}}},
    {.op = "permute", .torch = 0, .inputs = 1, .in = {{3, {BATCH, 10, 32}}}},
    {.op = "concat", .torch = 0, .inputs = 2, .in = {{2, {BATCH, 32}}, {2, {BATCH, 32}}}},
    {.op = "gelu", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "silu", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "tanh", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "sigmoid", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "softmax", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "log_softmax", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}},
    {.op = "layer_norm", .torch = 8160, .inputs = 1, .in = {{3, {BATCH, 10, 32}}}},
    {.op = "group_norm",
     .torch = 27840,
     .inputs = 1,
     .in = {{4, {BATCH, 12, 12, 8}}},
     .number = {"num_groups", 4, NULL, 0}},
    {.op = "dropout", .torch = 768, .inputs = 1, .in = {{2, {BATCH, 32}}}, .number = {"p", 0.5, NULL, 0}},
    {.op = "matmul", .torch = 7680, .inputs = 2, .in = {{3, {BATCH, 9, 16}}, {3, {BATCH, 16, 11}}}},
    {.op = "cross_entropy", .torch = 820, .inputs = 2, .in = {{2, {BATCH, 32}}, {1, {BATCH}}}},
    {.op = "mse", .torch = 1536, .inputs = 2, .in = {{2, {BATCH, 32}}, {2, {BATCH, 32}}}},
    {.op = "bce_with_logits", .torch = 1536, .inputs = 2, .in = {{2, {BATCH, 32}}, {2, {BATCH, 32}}}},
    {.op = "masked_fill", .torch = 192, .inputs = 2, .in = {{2, {BATCH, 32}}, {2, {BATCH, 32}}}},
    {.op = "scaled_dot_product_attention",
     .torch = 31200,
     .inputs = 3,
     .in = {{4, {BATCH, 2, 10, 16}}, {4, {BATCH, 2, 10, 16}}, {4, {BATCH, 2, 10, 16}}}},
};

static op_attrs attrs_of(const row *k, const ab_op *op) {
    op_attrs a = op_attrs_default(op);
    if (k->number.name) op_attrs_set(op, &a, k->number.name, k->number.value, k->number.value);
    if (k->number.second)
        op_attrs_set(op, &a, k->number.second, k->number.second_value, k->number.second_value);
    const ab_ints shape = {{0, -1}, 2}, order = {{0, 2, 1}, 3};
    if (op == &ab_op_reshape) memcpy(a.bytes + op->attrs[0].offset, &shape, sizeof shape);
    if (op == &ab_op_permute) memcpy(a.bytes + op->attrs[0].offset, &order, sizeof order);
    if (op->finish_attrs) assert_int_equal(op->finish_attrs(&a), AB_OK);
    return a;
}

static int64_t bytes_kept(const row *k, const ab_op *op) {
    op_attrs a = attrs_of(k, op);
    ab_shape out, saved_shape[AB_MAX_SAVED];
    const ab_format *saved_format[AB_MAX_SAVED];
    const unsigned ids = op->integer_inputs | op->maybe_integer;
    const unsigned needs = ab_op_needs(op, &a, k->inputs, ((1u << k->inputs) - 1u) & ~ids);
    if (op->infer(&a, k->in, k->inputs, &out) != AB_OK) fail_msg("%s: %s", k->op, ab_error_message());
    int64_t bytes = needs & AB_NEEDS_OUT ? 4 * ab_shape_count(&out) : 0;
    for (int i = 0; i < k->inputs; i++) /* a mask of ours has four bytes a place, torch's one */
        if (needs >> i & 1u) bytes += (op == &ab_op_masked_fill ? 1 : 4) * ab_shape_count(&k->in[i]);
    int saved = op->saved ? op->saved(&a, k->in, &out, saved_shape, saved_format) : 0;
    for (int i = 0; i < saved; i++) {
        int64_t count = ab_shape_count(&saved_shape[i]);
        bytes += saved_format[i] ? (int64_t)ab_format_bytes(saved_format[i], count) : 4 * count;
    }
    return bytes;
}

static void ops_keep_no_more_than_torchs(void **state) {
    (void)state;
    int equal = 0;
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        const ab_op *op = NULL;
        assert_int_equal(ab_op_find(rows[i].op, &op, NULL), AB_OK);
        int64_t kept = bytes_kept(&rows[i], op);
        if (kept > rows[i].torch)
            fail_msg("%s keeps %lld bytes, PyTorch %lld", rows[i].op, (long long)kept,
                     (long long)rows[i].torch);
        equal += kept == rows[i].torch;
    }
    assert_true(equal > 20); /* the shapes and settings are those of the script */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ops_keep_no_more_than_torchs)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
