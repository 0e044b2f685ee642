/* How many elementary functions the ops say that a pass computes, against closed forms by hand. */
#include "kernels/ops/op.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Attributes by name: defaults, one of them replaced (NULL: none). */
static void fill_attrs(const ab_op *op, const char *name, int64_t value, unsigned char attrs[256]) {
    memset(attrs, 0, 256);
    for (const ab_attr *a = op->attrs; a && a->name; a++) {
        const int64_t number = name && strcmp(a->name, name) == 0 ? value : (int64_t)a->fallback;
        const bool truth = number != 0;
        if (a->kind == AB_ATTR_BOOL)
            memcpy(attrs + a->offset, &truth, sizeof truth);
        else if (a->kind == AB_ATTR_INT || a->kind == AB_ATTR_CHOICE)
            memcpy(attrs + a->offset, &number, sizeof number);
    }
}

typedef struct example {
    const ab_op *op;
    const char *attr;
    int64_t value;
    ab_shape in, out;
    double forward[AB_ELEMENTARY_COUNT], backward[AB_ELEMENTARY_COUNT]; /* exp, tanh, erf */
} example;

static void expect(const example *e) {
    _Alignas(16) unsigned char attrs[256];
    double forward[AB_ELEMENTARY_COUNT] = {0}, backward[AB_ELEMENTARY_COUNT] = {0};
    fill_attrs(e->op, e->attr, e->value, attrs);
    e->op->elementary(attrs, &e->in, &e->out, false, forward);
    e->op->elementary(attrs, &e->in, &e->out, true, backward);
    for (int i = 0; i < AB_ELEMENTARY_COUNT; i++) {
        if (forward[i] != e->forward[i] || backward[i] != e->backward[i])
            fail_msg("%s, function %d: %g forward, %g backward", e->op->name, i, forward[i], backward[i]);
    }
}

#define SHAPE(...)                                                                                           \
    {                                                                                                        \
        .ndim = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dim = { __VA_ARGS__ }                   \
    }

static void counts_follow_the_shapes(void **state) {
    (void)state;
    const ab_shape values = SHAPE(2, 3, 5);
    const example examples[] = {
        {&ab_op_silu, NULL, 0, values, values, {30, 0, 0}, {30, 0, 0}},
        {&ab_op_sigmoid, NULL, 0, values, values, {30, 0, 0}, {0, 0, 0}}, /* backward reads the output */
        {&ab_op_tanh, NULL, 0, values, values, {0, 30, 0}, {0, 0, 0}},
        {&ab_op_gelu, NULL, 0, values, values, {0, 0, 30}, {30, 0, 30}},
        {&ab_op_gelu, "approximate", 1, values, values, {0, 30, 0}, {0, 30, 0}},
        {&ab_op_softmax, NULL, 0, values, values, {30, 0, 0}, {0, 0, 0}},
        {&ab_op_log_softmax, NULL, 0, values, values, {30, 0, 0}, {30, 0, 0}},
        {&ab_op_cross_entropy, NULL, 0, SHAPE(4, 7), SHAPE(1), {28, 0, 0}, {28, 0, 0}},
    };
    for (size_t i = 0; i < AB_COUNT_OF(examples); i++) expect(&examples[i]);
}

/* batch 2, 4 heads side by side, 6 queries and keys: 2 * 4 * 6 * 6 scores. */
static void attention_counts_its_scores(void **state) {
    (void)state;
    const ab_shape packed = SHAPE(2, 6, 24), out = SHAPE(2, 6, 8), four = SHAPE(2, 4, 6, 2);
    const ab_op *op = &ab_op_scaled_dot_product_attention;
    expect(&(example){op, "num_heads", 4, packed, out, {288, 0, 0}, {288, 0, 0}});
    expect(&(example){op, NULL, 0, four, four, {288, 0, 0}, {288, 0, 0}});
    expect(&(example){op, "is_causal", 1, four, four, {168, 0, 0}, {168, 0, 0}}); /* 2 4 (1 + 2 + ... + 6) */
}

/* Visible pairs of queries and keys, counted one by one. */
static double count_pairs(int64_t heads, int64_t tokens, bool causal) {
    double pairs = 0;
    for (int64_t h = 0; h < heads; h++)
        for (int64_t i = 0; i < tokens; i++)
            for (int64_t j = 0; j < tokens; j++) pairs += !causal || j <= i;
    return pairs;
}

/* The products of attention.c: scores and P v; backward the scores again, dout v^T and three with a factor
 * that exists in fp32 only. */
static void attention_counts_products_by_format(void **state) {
    (void)state;
    const ab_op *op = &ab_op_scaled_dot_product_attention;
    const ab_shape shapes[] = {SHAPE(2, 4, 6, 3), SHAPE(3, 2, 64, 32), SHAPE(1, 1, 1, 5)};
    for (size_t i = 0; i < AB_COUNT_OF(shapes); i++)
        for (int causal = 0; causal < 2; causal++) {
            _Alignas(16) unsigned char attrs[256];
            const ab_shape *s = &shapes[i];
            const double one = 2 * (double)s->dim[3] * count_pairs(s->dim[0] * s->dim[1], s->dim[2], causal);
            double exps[AB_ELEMENTARY_COUNT] = {0};
            fill_attrs(op, "is_causal", causal, attrs);
            op->elementary(attrs, s, s, true, exps);
            assert_true(op->flops(attrs, s, s) == 2 * one);
            assert_true(op->flops(attrs, s, s) * op->backward_ratio == 5 * one);
            assert_true(op->wide_flops(attrs, s, s, false) == one);
            assert_true(op->wide_flops(attrs, s, s, true) == 3 * one);
            assert_true(exps[AB_ELEMENTARY_EXP] == count_pairs(s->dim[0] * s->dim[1], s->dim[2], causal));
        }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_follow_the_shapes),
        cmocka_unit_test(attention_counts_its_scores),
        cmocka_unit_test(attention_counts_products_by_format),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
