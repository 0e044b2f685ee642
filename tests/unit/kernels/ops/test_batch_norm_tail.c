/* batch_norm2d that computes the relu behind it, or an addition and a relu: the bits of separate ops in every
 * format, on every CPU level and with any number of threads; its gradients against finite differences of the
 * definition in double. */
#include "oracle/op_run.h"

#include "oracle/doubles.h"
#include "oracle/gradient.h"

#include <math.h>

enum { GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR, CASES = 8 };

/* Rows that are no multiple of four, channels that fill no vector; more rows than a group, than a chunk. */
static const ab_shape shapes[CASES] = {{4, {2, 3, 5, 7}},  {4, {4, 8, 8, 16}},  {4, {3, 5, 7, 33}},
                                       {4, {1, 1, 2, 1}},  {4, {2, 4, 5, 8}},   {4, {1, 3, 5, 48}},
                                       {4, {3, 7, 9, 16}}, {4, {4, 31, 31, 20}}};

typedef struct tail_case {
    ab_shape shape;
    const ab_format *format, *param;
    bool training, add, special; /* special: subnormals, infinities and NaN among the values */
} tail_case;

/* The batch norm, and what is behind it as ops of their own. */
typedef struct chain {
    op_run bn, add, relu;
    ab_tensor addend, out, dout, daddend; /* of the tail of bn */
    op_attrs attrs, none;
} chain;

static void spoil(const ab_tensor *t) {
    static const double values[] = {
        (double)INFINITY, -(double)INFINITY, (double)NAN, 0x1p-140, -0x1p-24, -0.0, 3e38};
    const int64_t n = ab_tensor_count(t), channels = t->shape.dim[3];
    for (int64_t i = 0; i < n; i++) /* every third channel, so that others stay finite */
        if (i % channels % 3 == 1 && i / channels % 5 == 0)
            oracle_put(t, i, values[(i / channels / 5) % (int64_t)AB_COUNT_OF(values)]);
}

static void open_chain(chain *c, const tail_case *k) {
    const op_formats formats = {k->format, k->param, NULL}, plain = {k->format, k->format, NULL};
    const ab_exec exec = {.training = k->training, .seed = 1};
    const ab_shape two[] = {k->shape, k->shape};
    c->attrs = op_attrs_default(&ab_op_batch_norm2d);
    c->none = op_attrs_default(&ab_op_add);
    op_run_open(&c->bn, &ab_op_batch_norm2d, &c->attrs, &k->shape, 1, formats, &exec);
    op_run_open(&c->add, &ab_op_add, &c->none, two, 2, plain, &exec);
    op_run_open(&c->relu, &ab_op_relu, NULL, &k->shape, 1, plain, &exec);
    c->addend = op_run_tensor(&c->bn, k->shape, k->format, 40);
    c->out = op_run_tensor(&c->bn, k->shape, k->format, 41);
    c->dout = op_run_tensor(&c->bn, k->shape, k->format, 42);
    c->daddend = op_run_tensor(&c->bn, k->shape, k->format, 43);
    op_run_fill_all(&c->bn, 5);
    op_run_fill(&c->addend, 31);
    op_run_fill(&c->dout, 32);
    for (int64_t i = 0; i < k->shape.dim[3]; i++)
        oracle_put(&c->bn.param[RUNNING_VAR], i, 0.5 + oracle_random(9, i) / 4);
    if (k->special) {
        spoil(&c->bn.in[0]);
        spoil(&c->addend);
        spoil(&c->dout);
    }
    c->bn.io.tail = (ab_tail){k->add ? &c->addend : NULL, &c->out, &c->dout, k->add ? &c->daddend : NULL};
    assert_int_equal(op_run_prepare(&c->bn), AB_OK);
    assert_int_equal(op_run_prepare(&c->add), AB_OK);
    assert_int_equal(op_run_prepare(&c->relu), AB_OK);
    assert_true(c->bn.io.fuses);
}

static void close_chain(chain *c) {
    op_run_check_guards(&c->bn);
    op_run_close(&c->bn);
    op_run_close(&c->add);
    op_run_close(&c->relu);
}

static void run_fused(chain *c) {
    c->bn.exec.fuse = true;
    assert_int_equal(ab_op_batch_norm2d.forward(&c->bn.exec, &c->bn.io), AB_OK);
    assert_int_equal(ab_op_batch_norm2d.backward(&c->bn.exec, &c->bn.io), AB_OK);
}

/* Op by op; results in the tensors of the tail. */
static void run_apart(chain *c, bool add) {
    ab_op_io *bn = &c->bn.io, *sum = &c->add.io, *relu = &c->relu.io;
    assert_int_equal(ab_op_batch_norm2d.forward(&c->bn.exec, bn), AB_OK);
    sum->in[0] = bn->out;
    sum->in[1] = &c->addend;
    relu->in[0] = add ? sum->out : bn->out;
    relu->out = &c->out;
    if (add) assert_int_equal(ab_op_add.forward(&c->add.exec, sum), AB_OK);
    assert_int_equal(ab_op_relu.forward(&c->relu.exec, relu), AB_OK);
    relu->dout = &c->dout;
    relu->din[0] = add ? &c->add.dout : &c->bn.dout;
    assert_int_equal(ab_op_relu.backward(&c->relu.exec, relu), AB_OK);
    sum->din[0] = &c->bn.dout;
    sum->din[1] = &c->daddend;
    if (add) assert_int_equal(ab_op_add.backward(&c->add.exec, sum), AB_OK);
    assert_int_equal(ab_op_batch_norm2d.backward(&c->bn.exec, bn), AB_OK);
}

/* Equal bits, but that a NaN is a NaN. */
static void same_values(const ab_tensor *a, const ab_tensor *b, const char *what) {
    if (op_run_same_bits(a, b)) return;
    for (int64_t i = 0; i < ab_tensor_count(a); i++) {
        const double x = oracle_get(a, i), y = oracle_get(b, i);
        if (!(isnan(x) && isnan(y)) && (x != y || signbit(x) != signbit(y)))
            fail_msg("%s[%lld] in %s is %.9g, of separate ops %.9g", what, (long long)i, a->format->name, x,
                     y);
    }
}

static void compare_with_separate_ops(const void *argument) {
    const tail_case *k = argument;
    chain fused, apart;
    open_chain(&fused, k);
    open_chain(&apart, k);
    run_fused(&fused);
    run_apart(&apart, k->add);
    same_values(&fused.out, &apart.out, "out");
    same_values(&fused.bn.din[0], &apart.bn.din[0], "din");
    if (k->add) same_values(&fused.daddend, &apart.daddend, "daddend");
    for (int i = 0; i < 4; i++) same_values(&fused.bn.param[i], &apart.bn.param[i], "param");
    for (int i = 0; i < 2; i++) same_values(&fused.bn.dparam[i], &apart.bn.dparam[i], "dparam");
    close_chain(&fused);
    close_chain(&apart);
}

static void a_fused_tail_has_the_bits_of_separate_ops(void **state) {
    (void)state;
    int count;
    const op_formats *formats = op_all_formats(&count);
    for (int f = 0; f < count; f++)
        for (int i = 0; i < 8 * CASES; i++) {
            if (i / 8 == CASES - 1 && i % 8 != 7) continue; /* it is large */
            const tail_case k = {
                shapes[i / 8], formats[f].activation, i & 1 ? &ab_format_fp32 : formats[f].param,
                (i & 2) != 0,  (i & 4) != 0,          i & 1};
            op_each_machine(compare_with_separate_ops, &k);
        }
}

/* ---- the definition in double ---------------------------------------------------------------- */

typedef struct definition {
    int64_t rows, c;
    bool training;
    double *x, *a, *gamma, *beta, *mean, *var, *dout;
} definition;

/* Sum of the results, weighted by their gradients. */
static double weighted(const void *self) {
    const definition *d = self;
    double total = 0, n = (double)d->rows;
    for (int64_t c = 0; c < d->c; c++) {
        double mean = 0, var = 0;
        for (int64_t r = 0; r < d->rows; r++) mean += d->x[r * d->c + c] / n;
        for (int64_t r = 0; r < d->rows; r++) var += pow(d->x[r * d->c + c] - mean, 2) / n;
        if (!d->training) mean = d->mean[c], var = d->var[c];
        for (int64_t r = 0; r < d->rows; r++) {
            const int64_t i = r * d->c + c;
            const double y =
                d->gamma[c] * (d->x[i] - mean) / sqrt(var + 1e-5) + d->beta[c] + (d->a ? d->a[i] : 0);
            total += d->dout[i] * fmax(y, 0);
        }
    }
    return total;
}

static void check_against_differences(definition *d, const chain *c, int64_t count) {
    struct {
        double *at;
        const ab_tensor *gradient;
        int64_t n;
    } rows[] = {{d->x, &c->bn.din[0], count},
                {d->gamma, &c->bn.dparam[GAMMA], d->c},
                {d->beta, &c->bn.dparam[BETA], d->c},
                {d->a, &c->daddend, d->a ? count : 0}};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        if (rows[i].n == 0) continue;
        double *gradient = oracle_values(rows[i].gradient);
        assert_true(oracle_gradient_error(weighted, d, rows[i].at, gradient, rows[i].n) < 1e-3);
        free(gradient);
    }
}

static void fused_gradients_agree_with_finite_differences(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++) {
        const tail_case k = {shapes[i / 4 * 2], &ab_format_fp32, &ab_format_fp32, i & 1, (i & 2) != 0, false};
        chain c;
        open_chain(&c, &k);
        definition d = {.rows = ab_shape_count(&k.shape) / k.shape.dim[3], .c = k.shape.dim[3]};
        d.training = k.training;
        d.x = oracle_values(&c.bn.in[0]);
        d.a = k.add ? oracle_values(&c.addend) : NULL;
        d.dout = oracle_values(&c.dout);
        double **params[] = {&d.gamma, &d.beta, &d.mean, &d.var};
        for (int p = 0; p < 4; p++) *params[p] = oracle_values(&c.bn.param[p]);
        run_fused(&c);
        check_against_differences(&d, &c, d.rows * d.c);
        double *all[] = {d.x, d.a, d.dout, d.gamma, d.beta, d.mean, d.var};
        for (size_t p = 0; p < AB_COUNT_OF(all); p++) free(all[p]);
        close_chain(&c);
    }
}

/* ---- behaviour ------------------------------------------------------------------------------- */

static void the_result_between_is_not_written(void **state) {
    (void)state;
    const tail_case k = {shapes[1], &ab_format_fp16, &ab_format_fp32, true, true, false};
    chain c;
    open_chain(&c, &k);
    run_fused(&c);
    const unsigned char *bytes = c.bn.out.data;
    for (size_t i = 0; i < 2 * (size_t)ab_tensor_count(&c.bn.out); i++)
        assert_int_equal(bytes[i], OP_RUN_GUARD_BYTE);
    close_chain(&c);
}

static void tensors_of_several_formats_are_left_to_separate_ops(void **state) {
    (void)state;
    const tail_case k = {shapes[1], &ab_format_fp16, &ab_format_fp32, true, false, false};
    chain c;
    open_chain(&c, &k);
    ab_tensor *const others[] = {&c.bn.in[0], &c.bn.din[0], &c.dout};
    for (size_t i = 0; i < AB_COUNT_OF(others); i++) {
        size_t workspace, bytes;
        others[i]->format = &ab_format_bf16;
        assert_int_equal(ab_op_batch_norm2d.prepare(&c.bn.exec, &c.bn.io, &workspace, &bytes), AB_OK);
        assert_false(c.bn.io.fuses);
        others[i]->format = &ab_format_fp16;
    }
    close_chain(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fused_tail_has_the_bits_of_separate_ops),
        cmocka_unit_test(fused_gradients_agree_with_finite_differences),
        cmocka_unit_test(the_result_between_is_not_written),
        cmocka_unit_test(tensors_of_several_formats_are_left_to_separate_ops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
