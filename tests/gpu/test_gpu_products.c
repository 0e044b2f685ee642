/* Products of a library: TF32 where it is asked for, and a relu computed with a product only where it changes
 * no bit. A second run of this test has AMPBENCH_EMULATED=relu=drops_nan: a library whose relu makes NaN 0
 * must not be used for it. */
#define _GNU_SOURCE
#include "gpu/gpu_testing.h"

#include "bench/train/cell/cell.h"
#include "kernels/core/text.h"
#include "probes/set.h"
#include "tests/unit/probe_testing.h"

/* ---- TF32 ------------------------------------------------------------------------------------ */

/* Ten bits after the leading one, to nearest even. */
static float rounded_to_tf32(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

static void round_all(const ab_tensor *tensor) {
    float *value = tensor ? tensor->data : NULL;
    for (int64_t i = 0; value && i < ab_tensor_count(tensor); i++) value[i] = rounded_to_tf32(value[i]);
}

static const op_formats *fp32_formats(void) {
    int count;
    const op_formats *all = op_all_formats(&count);
    for (int i = 0; i < count; i++)
        if (all[i].activation == &ab_format_fp32) return &all[i];
    fail_msg("no fp32 among the formats");
    return NULL;
}

/* The op's results on the GPU: out, din[0] and dparam[0]; free them. */
typedef struct results {
    ab_tensor of[3];
    char text[3][80]; /* what computed them */
} results;

static results run_op(op_run *r, bool tf32) {
    static const char *const passes[] = {"forward", "backward_data", "backward_weights"};
    gpu_run g;
    results found = {0};
    r->exec.tf32 = tf32;
    if (!gpu_run_open(&g, r)) fail_msg("the GPU has no %s: %s", r->op->name, ab_error_message());
    gpu_run_both(&g);
    const ab_tensor *device[] = {g.io.out, g.io.din[0], g.io.dparam[0]};
    for (int i = 0; i < 3; i++) {
        const char *text = g.op->describe(&g.io, passes[i]);
        ab_text_show(found.text[i], sizeof found.text[i], "%s", text ? text : "");
        if (device[i]) found.of[i] = gpu_result(device[i]);
    }
    gpu_run_close(&g);
    return found;
}

static void free_results(results *r) {
    for (int i = 0; i < 3; i++) free(r->of[i].data);
}

/* Largest difference, relative to the largest value. */
static double difference(const ab_tensor *a, const ab_tensor *b) {
    double most = 0, size = 0;
    for (int64_t i = 0; i < ab_tensor_count(a); i++) {
        most = fmax(most, fabs(oracle_get(a, i) - oracle_get(b, i)));
        size = fmax(size, fabs(oracle_get(a, i)));
    }
    return most / size;
}

/* A TF32 product is the IEEE product of operands that were rounded to TF32; how a GPU rounds them is its own
 * affair, so there it is only near. A library may choose an IEEE algorithm where TF32 is allowed; the text
 * says so. */
static void check_tf32(const char *name, const ab_shape *in, int inputs, const char *attr, double value) {
    const ab_op *op;
    op_run r;
    assert_int_equal(ab_op_find(name, &op, NULL), AB_OK);
    op_attrs attrs = op_attrs_default(op);
    if (attr) op_attrs_set(op, &attrs, attr, value, 0);
    if (strcmp(name, "conv2d") == 0) op_attrs_set(op, &attrs, "kernel_size", 3, 3);
    const ab_exec exec = {.training = true};
    op_run_open(&r, op, attrs.bytes, in, inputs, *fp32_formats(), &exec);
    op_run_fill_all(&r, 3);
    results tf32 = run_op(&r, true), ieee = run_op(&r, false);
    for (int i = 0; i < inputs; i++) round_all(&r.in[i]);
    round_all(&r.param[0]);
    round_all(&r.dout);
    results rounded = run_op(&r, false);
    for (int i = 0; i < 3; i++) {
        if (!tf32.of[i].data) continue;
        const bool says = strstr(tf32.text[i], "tf32") != NULL;
        if (strstr(ieee.text[i], "tf32")) fail_msg("%s %d without TF32 runs as %s", name, i, ieee.text[i]);
        if (!says && gpu_is_emulated()) fail_msg("%s %d runs as %s", name, i, tf32.text[i]);
        const double near = difference(&tf32.of[i], &rounded.of[i]),
                     far = difference(&tf32.of[i], &ieee.of[i]);
        if (says ? near > (gpu_is_emulated() ? 0 : 0x1p-9) || far < 0x1p-20 : far > 0x1p-20)
            fail_msg("%s %d, %s: %g from the product of rounded operands, %g from the IEEE product", name, i,
                     tf32.text[i], near, far);
    }
    free_results(&tf32), free_results(&ieee), free_results(&rounded);
    op_run_close(&r);
}

static void tf32_rounds_the_operands_of_products(void **state) {
    (void)state;
    check_tf32("linear", (ab_shape[]){{2, {16, 64}}}, 1, "out_features", 32);
    check_tf32("conv2d", (ab_shape[]){{4, {2, 8, 8, 16}}}, 1, "out_channels", 16);
    check_tf32("matmul", (ab_shape[]){{3, {3, 16, 32}}, {3, {3, 32, 16}}}, 2, NULL, 0);
}

/* ---- relu ------------------------------------------------------------------------------------ */

static const char ops[] = "{\"name\": \"flat\", \"op\": \"flatten\"}, "
                          "{\"name\": \"fc1\", \"op\": \"linear\", \"out_features\": 24}, "
                          "{\"name\": \"act1\", \"op\": \"relu\"}, "
                          "{\"name\": \"fc2\", \"op\": \"linear\", \"out_features\": 16, \"bias\": false}, "
                          "{\"name\": \"act2\", \"op\": \"relu\"}, "
                          "{\"name\": \"fc3\", \"op\": \"linear\", \"out_features\": 16}, "
                          "{\"name\": \"gelu\", \"op\": \"gelu\"}, "
                          "{\"name\": \"fc4\", \"op\": \"linear\", \"out_features\": 3}, "
                          "{\"name\": \"loss\", \"op\": \"cross_entropy\"}";

enum { STEPS = 6 };

static const char *described(const ab_cell *cell, const char *name) {
    const ab_plan *plan = ab_cell_plan(cell);
    for (int n = 0; n < plan->nodes; n++) {
        const ab_net_op *op = ab_plan_node_op(plan, &plan->node[n]);
        if (op && strcmp(op->name, name) == 0) return ab_cell_describe(cell, n, "forward");
    }
    fail_msg("no op %s", name);
    return NULL;
}

static void see_nothing(ab_observer *self, int id, int thread, const float *values, int64_t n) {
    (void)self, (void)id, (void)thread, (void)values, (void)n;
}

static bool drops_nan(void) {
    const char *library = getenv("AMPBENCH_EMULATED");
    return library && strstr(library, "relu=drops_nan");
}

/* Losses of a few steps; observed ones run op by op. A GPU's library decides by itself what it can. */
static void train(const char *level, const ab_format *half, bool observed, float loss[STEPS]) {
    ab_net *net = pt_net(ops);
    ab_cell_config config = pt_config(net, level, half, "momentum", NULL);
    ab_observer observer = {.see = see_nothing};
    config.device = gpu;
    config.no_graph = true;
    ab_cell *cell = pt_cell(&config);
    const bool fuses = strstr(described(cell, "fc1"), ",relu") != NULL;
    assert_int_equal(strcmp(described(cell, "act1"), "fused") == 0, fuses);
    if (gpu_is_emulated()) assert_int_equal(fuses, !drops_nan());
    if (gpu_is_emulated()) assert_int_equal(strstr(described(cell, "fc2"), ",relu") != NULL, !drops_nan());
    assert_null(strstr(described(cell, "fc3"), "elu")); /* no rounding commutes with gelu */
    assert_null(strstr(described(cell, "fc4"), "relu"));
    for (int i = 0; i < STEPS; i++) {
        ab_step_result result;
        assert_int_equal(ab_cell_step(cell, observed ? &observer : NULL, &result), AB_OK);
        loss[i] = result.loss;
    }
    ab_cell_destroy(cell);
    ab_net_free(net);
}

static void a_relu_is_computed_with_its_product_where_no_bit_changes(void **state) {
    (void)state;
    float plain[STEPS], fused[STEPS];
    for (size_t l = 0; l < AB_COUNT_OF(pt_levels); l++)
        for (int bf16 = 0; bf16 < 2; bf16++) {
            const ab_format *half = bf16 ? &ab_format_bf16 : &ab_format_fp16;
            train(pt_levels[l], half, true, plain);
            train(pt_levels[l], half, false, fused);
            assert_memory_equal(plain, fused, sizeof plain);
        }
}

int main(void) {
    gpu_or_skip();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tf32_rounds_the_operands_of_products),
        cmocka_unit_test(a_relu_is_computed_with_its_product_where_no_bit_changes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
