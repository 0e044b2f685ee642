/* Activations of halves, whose values and slopes are looked up: for all 65,536 codes they are what the fp32
 * loops of every CPU level give, rounded once, for gradients of any format; the same where an observer looks
 * and where subnormals are flushed. */
#include "kernels/core/subnormals.h"
#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_math.h"
#include "oracle/op_run.h"

enum { CODES = 1 << 16 };

typedef struct activation {
    const ab_op *op;
    double approximate; /* of gelu */
} activation;

static const activation all[] = {{&ab_op_gelu, 0}, {&ab_op_gelu, 1}, {&ab_op_silu, 0}};

static ab_map value_of(const activation *a) {
    const ab_vec_math *vec = ab_vec_math_get();
    if (a->op == &ab_op_silu) return vec->silu;
    return a->approximate > 0 ? vec->gelu_tanh : vec->gelu;
}

static ab_map slope_of(const activation *a) {
    const ab_vec_math *vec = ab_vec_math_get();
    if (a->op == &ab_op_silu) return vec->silu_backward;
    return a->approximate > 0 ? vec->gelu_tanh_backward : vec->gelu_backward;
}

typedef struct setting {
    const activation *a;
    op_formats formats;
    bool flushed;
} setting;

static void expect_tensor(const setting *s, const char *what, const ab_tensor *tensor,
                          const float *expected) {
    float *stored = malloc(CODES * sizeof *stored), *rounded = malloc(CODES * sizeof *rounded);
    void *codes = malloc(CODES * sizeof(float));
    assert_true(stored && rounded && codes);
    ab_narrow(codes, tensor->format, expected, CODES);
    ab_widen(rounded, codes, tensor->format, CODES);
    ab_widen(stored, tensor->data, tensor->format, CODES);
    for (int i = 0; i < CODES; i++)
        if (memcmp(&stored[i], &rounded[i], sizeof *stored) != 0 && !(isnan(stored[i]) && isnan(rounded[i])))
            fail_msg("%s %s of %s to %s, code %04x: %.9g, expected %.9g", s->a->op->name, what,
                     s->formats.activation->name, tensor->format->name, i, (double)stored[i],
                     (double)rounded[i]);
    free(stored);
    free(rounded);
    free(codes);
}

/* All codes; gradients of every size, a few not finite. */
static void fill(op_run *r) {
    uint16_t *code = r->in[0].data;
    op_run_fill_all(r, 9);
    for (int i = 0; i < CODES; i++) {
        code[i] = (uint16_t)i;
        oracle_put(&r->dout, i, ldexp(i % 7 - 3.0, i % 61 - 40));
    }
    oracle_put(&r->dout, 5, (double)INFINITY);
    oracle_put(&r->dout, 6, (double)NAN);
}

static void check(const op_run *r, const setting *s) {
    float *x = malloc(CODES * sizeof *x), *dout = malloc(CODES * sizeof *dout),
          *y = malloc(CODES * sizeof *y);
    assert_true(x && dout && y);
    ab_widen(x, r->in[0].data, r->in[0].format, CODES);
    ab_widen(dout, r->dout.data, r->dout.format, CODES);
    value_of(s->a)(y, x, NULL, CODES);
    expect_tensor(s, "value", &r->out, y);
    slope_of(s->a)(y, x, dout, CODES);
    expect_tensor(s, "slope", &r->din[0], y);
    free(x);
    free(dout);
    free(y);
}

static void run(const setting *s, ab_observer *observer) {
    const ab_shape shape = {.ndim = 2, .dim = {2, CODES / 2}};
    ab_exec exec = {.training = true, .observer = observer};
    op_attrs attrs = op_attrs_default(s->a->op);
    op_run r;
    if (s->a->op == &ab_op_gelu) op_attrs_set(s->a->op, &attrs, "approximate", s->a->approximate, 0);
    op_run_open(&r, s->a->op, &attrs, &shape, 1, s->formats, &exec);
    fill(&r);
    assert_int_equal(op_run_prepare(&r), AB_OK);
    const ab_subnormals before = ab_subnormals_set(s->flushed ? AB_SUBNORMALS_FLUSHED : AB_SUBNORMALS_KEPT);
    op_run_both(&r);
    check(&r, s);
    (void)ab_subnormals_set(before);
    op_run_close(&r);
}

static void run_both_ways(const void *argument) {
    op_probe probe = op_probe_open();
    run(argument, NULL);
    run(argument, &probe.base);
    assert_false(probe.invalid);
    op_probe_close(&probe);
}

static void all_codes_give_the_rounded_results_of_the_fp32_loops(void **state) {
    static const op_formats formats[] = {{&ab_format_fp16, NULL, NULL},
                                         {&ab_format_bf16, NULL, NULL},
                                         {&ab_format_fp16, NULL, &ab_format_fp32},
                                         {&ab_format_bf16, NULL, &ab_format_fp16}};
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(all); k++)
        for (size_t f = 0; f < AB_COUNT_OF(formats); f++)
            for (int flushed = 0; flushed < (ab_subnormals_can_flush() ? 2 : 1); flushed++) {
                const setting s = {&all[k], formats[f], flushed != 0};
                op_each_machine(run_both_ways, &s);
            }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_codes_give_the_rounded_results_of_the_fp32_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
