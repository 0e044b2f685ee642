/* batch_norm2d and batch_norm1d against their definition in double: training (biased variance normalises,
 * unbiased moves the running statistics) and evaluation, forward and backward. Bounds follow from the
 * roundings of the textbook computation with up to `rows` terms in one fp32 sum. */
#include "oracle/op_run.h"

#include "oracle/doubles.h"
#include "oracle/gradient.h"

enum { GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR };

typedef struct bn_case {
    int64_t n, h, w, c;
    double scale, offset, ramp; /* of the inputs: offset + scale * random + ramp * row / rows */
    double eps, momentum;
    int rank; /* of batch_norm1d's input [n, c] or [n, w, c]; 0: batch_norm2d */
} bn_case;

static const bn_case cases[] = {
    {2, 3, 5, 7, 1.0, 0.0, 0.0, 1e-5, 0.1, 0},   {4, 8, 8, 16, 1.0, 0.0, 0.0, 1e-5, 0.1, 0},
    {1, 1, 2, 1, 1.0, 0.0, 0.0, 1e-5, 0.5, 0},   {3, 5, 7, 33, 2.0, 8.0, 0.0, 0.5, 0.1, 0},
    {9, 17, 9, 6, 1e-3, 0.0, 0.0, 1e-5, 1.0, 0}, {2, 1, 3, 70, 1.0, 100.0, 0.0, 1e-3, 0.0, 0},
    {64, 1, 1, 10, 1.0, 0.5, 0.0, 1e-5, 0.1, 2}, {3, 1, 11, 5, 1.0, 0.0, 0.0, 1e-5, 0.1, 3},
    {2, 4, 5, 8, 1.0, 0.0, 0.0, 1e-5, 0.1, 0},   {1, 3, 5, 48, 1.0, 1.0, 0.0, 1e-5, 0.1, 0},
    {3, 7, 9, 16, 1.0, 0.0, 0.0, 1e-5, 0.1, 0},  {4, 16, 16, 32, 1.0, 0.0, 0.0, 1e-5, 0.1, 0},
    {5, 3, 3, 64, 1.0, 0.5, 0.0, 1e-5, 0.1, 0},  {2, 3, 3, 283, 1.0, 0.0, 0.0, 1e-5, 0.1, 0},
};

static const ab_op *op_of(const bn_case *k) { return k->rank ? &ab_op_batch_norm1d : &ab_op_batch_norm2d; }

static ab_shape shape_of(const bn_case *k) {
    if (k->rank == 2) return (ab_shape){2, {k->n, k->c}};
    if (k->rank == 3) return (ab_shape){3, {k->n, k->w, k->c}};
    return (ab_shape){4, {k->n, k->h, k->w, k->c}};
}

/* The op in double: n pixels of c channels. */
typedef struct oracle_bn {
    int64_t rows, c;
    bool training;
    double eps, momentum;
    double *x, *gamma, *beta, *running_mean, *running_var, *dy;
    double *mean, *var;              /* what normalises */
    double *y, *dx, *dgamma, *dbeta; /* results */
    double *new_mean, *new_var;      /* running statistics afterwards */
    double *mean_abs, *dy_abs,
        *cross; /* per channel: mean |x|, mean |dy|, mean |dy| (|x - mean| + mean |x|) */
} oracle_bn;

static void statistics(oracle_bn *b, int64_t c) {
    double n = (double)b->rows, sum = 0.0, m2 = 0.0, sum_abs = 0.0;
    for (int64_t r = 0; r < b->rows; r++) {
        sum += b->x[r * b->c + c];
        sum_abs += fabs(b->x[r * b->c + c]);
    }
    for (int64_t r = 0; r < b->rows; r++) m2 += pow(b->x[r * b->c + c] - sum / n, 2.0);
    b->mean_abs[c] = sum_abs / n;
    b->mean[c] = b->training ? sum / n : b->running_mean[c];
    b->var[c] = b->training ? m2 / n : b->running_var[c];
    b->new_mean[c] = b->running_mean[c];
    b->new_var[c] = b->running_var[c];
    if (!b->training) return;
    b->new_mean[c] += b->momentum * (sum / n - b->running_mean[c]);
    b->new_var[c] += b->momentum * (m2 / (n - 1.0) - b->running_var[c]);
}

static void forward(oracle_bn *b) {
    for (int64_t c = 0; c < b->c; c++) {
        statistics(b, c);
        for (int64_t r = 0; r < b->rows; r++) {
            double normalised = (b->x[r * b->c + c] - b->mean[c]) / sqrt(b->var[c] + b->eps);
            b->y[r * b->c + c] = b->gamma[c] * normalised + b->beta[c];
        }
    }
}

/* From dL/dxhat = dy gamma, dL/dvar and dL/dmean by the chain rule. */
static void backward_channel(oracle_bn *b, int64_t c) {
    double n = (double)b->rows, std = sqrt(b->var[c] + b->eps), dvar = 0.0, dmean = 0.0, spread = 0.0;
    for (int64_t r = 0; r < b->rows; r++) {
        double d = b->dy[r * b->c + c], centred = b->x[r * b->c + c] - b->mean[c];
        b->dgamma[c] += d * centred / std;
        b->dbeta[c] += d;
        dvar += d * b->gamma[c] * centred * -0.5 / (std * std * std);
        dmean += d * b->gamma[c] * -1.0 / std;
        spread += -2.0 * centred / n;
        b->dy_abs[c] += fabs(d) / n;
        b->cross[c] += fabs(d) * (fabs(centred) + b->mean_abs[c]) / n;
    }
    dmean += dvar * spread;
    for (int64_t r = 0; r < b->rows; r++) {
        double through = b->training ? dvar * 2.0 * (b->x[r * b->c + c] - b->mean[c]) / n + dmean / n : 0.0;
        b->dx[r * b->c + c] = b->dy[r * b->c + c] * b->gamma[c] / std + through;
    }
}

static double *repeated(const ab_tensor *tensor, int64_t n, double otherwise) {
    double *v = oracle_doubles(n);
    for (int64_t i = 0; i < n; i++) v[i] = tensor && tensor->data ? oracle_get(tensor, i) : otherwise;
    return v;
}

/* Reads the tensors before they change. first: index of running_mean. */
static oracle_bn solve(const bn_case *k, const op_run *r, bool training) {
    int first = r->params - 2;
    bool affine = first > 0;
    oracle_bn b = {
        .rows = k->n * k->h * k->w, .c = k->c, .training = training, .eps = k->eps, .momentum = k->momentum};
    int64_t count = b.rows * b.c;
    b.x = oracle_values(&r->in[0]);
    b.dy = oracle_values(&r->dout);
    b.gamma = repeated(affine ? &r->param[GAMMA] : NULL, b.c, 1.0);
    b.beta = repeated(affine ? &r->param[BETA] : NULL, b.c, 0.0);
    b.running_mean = oracle_values(&r->param[first]);
    b.running_var = oracle_values(&r->param[first + 1]);
    double **wide[] = {&b.y, &b.dx};
    double **narrow[] = {&b.mean,    &b.var,      &b.dgamma, &b.dbeta, &b.new_mean,
                         &b.new_var, &b.mean_abs, &b.dy_abs, &b.cross};
    for (size_t i = 0; i < AB_COUNT_OF(wide); i++) *wide[i] = oracle_doubles(count);
    for (size_t i = 0; i < AB_COUNT_OF(narrow); i++) *narrow[i] = oracle_doubles(b.c);
    forward(&b);
    for (int64_t c = 0; c < b.c; c++) backward_channel(&b, c);
    return b;
}

static void forget(oracle_bn *b) {
    double *all[] = {b->x,        b->gamma,   b->beta,     b->running_mean, b->running_var, b->dy,
                     b->mean,     b->var,     b->y,        b->dx,           b->dgamma,      b->dbeta,
                     b->new_mean, b->new_var, b->mean_abs, b->dy_abs,       b->cross};
    for (size_t i = 0; i < AB_COUNT_OF(all); i++) free(all[i]);
}

/* ---- comparison ------------------------------------------------------------------------------ */

static void check_forward(const op_run *r, const oracle_bn *b) {
    double u = ORACLE_U32, terms = (double)b->rows;
    for (int64_t i = 0; i < b->rows * b->c; i++) {
        int64_t c = i % b->c;
        double scale = fabs(b->gamma[c]) / sqrt(b->var[c] + b->eps), centred = fabs(b->x[i] - b->mean[c]);
        double error =
            scale * ((terms + 4.0) * (b->mean_abs[c] + fabs(b->mean[c])) + (terms / 2.0 + 12.0) * centred);
        op_run_near(r, "out", &r->out, i, b->y[i],
                    u * (error + 3.0 * fabs(b->y[i]) + 2.0 * fabs(b->beta[c])));
    }
    for (int64_t c = 0; c < b->c; c++) {
        const ab_tensor *mean = &r->param[r->params - 2], *var = &r->param[r->params - 1];
        double mean_error = u * (terms + 4.0) * b->momentum * b->mean_abs[c];
        double var_error = u * (terms + 8.0) * (b->momentum * b->var[c] * 2.0 + fabs(b->new_var[c]));
        op_run_near(r, "running_mean", mean, c, b->new_mean[c], mean_error + u * fabs(b->new_mean[c]));
        op_run_near(r, "running_var", var, c, b->new_var[c], var_error);
    }
}

static void check_backward(const op_run *r, const oracle_bn *b) {
    double u = ORACLE_U32, terms = 2.0 * (double)b->rows + 20.0;
    for (int64_t i = 0; i < b->rows * b->c; i++) {
        int64_t c = i % b->c;
        double invstd = 1.0 / sqrt(b->var[c] + b->eps), centred = fabs(b->x[i] - b->mean[c]) + b->mean_abs[c];
        double size = fabs(b->dy[i]);
        if (b->training) size += b->dy_abs[c] + centred * invstd * invstd * b->cross[c];
        op_run_near(r, "din", &r->din[0], i, b->dx[i], u * terms * fabs(b->gamma[c]) * invstd * size);
    }
    for (int64_t c = 0; r->params > 2 && c < b->c; c++) {
        double invstd = 1.0 / sqrt(b->var[c] + b->eps), n = (double)b->rows;
        op_run_near(r, "dweight", &r->dparam[GAMMA], c, b->dgamma[c], u * terms * invstd * n * b->cross[c]);
        op_run_near(r, "dbias", &r->dparam[BETA], c, b->dbeta[c], u * terms * n * b->dy_abs[c]);
    }
}

static op_attrs attrs_of(const bn_case *k, bool affine) {
    op_attrs attrs = op_attrs_default(&ab_op_batch_norm2d);
    op_attrs_set(&ab_op_batch_norm2d, &attrs, "eps", k->eps, 0);
    op_attrs_set(&ab_op_batch_norm2d, &attrs, "momentum", k->momentum, 0);
    op_attrs_set(&ab_op_batch_norm2d, &attrs, "affine", affine, 0);
    return attrs;
}

static void open_case(op_run *r, const bn_case *k, const op_attrs *attrs, op_formats formats, bool training) {
    ab_shape in = shape_of(k);
    ab_exec exec = {.training = training};
    op_run_open(r, op_of(k), attrs, &in, 1, formats, &exec);
    op_run_fill_all(r, (uint64_t)k->c);
    int64_t count = ab_tensor_count(&r->in[0]);
    for (int64_t i = 0; i < count; i++)
        oracle_put(&r->in[0], i,
                   k->offset + k->scale * oracle_random(99, i) + k->ramp * (double)i / (double)count);
    const ab_tensor *var = &r->param[r->params - 1];
    for (int64_t c = 0; c < k->c; c++) oracle_put(var, c, 0.75 + 0.5 * oracle_random(98, c));
    assert_int_equal(op_run_prepare(r), AB_OK);
}

typedef struct run_spec {
    op_formats formats;
    bool training, affine;
} run_spec;

static void run_case(const run_spec *s, const bn_case *k) {
    op_attrs attrs = attrs_of(k, s->affine);
    op_run r;
    open_case(&r, k, &attrs, s->formats, s->training);
    oracle_bn b = solve(k, &r, s->training);
    op_run_both(&r);
    check_forward(&r, &b);
    check_backward(&r, &b);
    forget(&b);
    op_run_close(&r);
}

static void run_and_compare(const void *argument) {
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) run_case(argument, &cases[i]);
}

static const op_formats mixes[] = {
    {&ab_format_fp32, &ab_format_fp32, NULL}, {&ab_format_fp16, &ab_format_fp32, NULL},
    {&ab_format_bf16, &ab_format_fp32, NULL}, {&ab_format_fp16, &ab_format_fp16, NULL},
    {&ab_format_bf16, &ab_format_bf16, NULL}, {&ab_format_fp16, &ab_format_fp32, &ab_format_fp32}};

static void training_matches_the_definition_in_every_format(void **state) {
    (void)state;
    for (size_t f = 0; f < AB_COUNT_OF(mixes); f++) {
        run_spec s = {mixes[f], true, true};
        op_each_machine(run_and_compare, &s);
    }
}

static void evaluation_uses_the_running_statistics_and_leaves_them(void **state) {
    (void)state;
    for (size_t f = 0; f < AB_COUNT_OF(mixes); f++) {
        run_spec s = {mixes[f], false, true};
        op_each_machine(run_and_compare, &s);
    }
}

static void without_affine_there_is_no_weight(void **state) {
    (void)state;
    for (int training = 0; training < 2; training++) {
        run_spec s = {mixes[1], training == 1, false};
        op_each_lane_count(run_and_compare, &s);
    }
}

/* More rows than are measured at once, with a mean that moves: the parts must be joined with their distances.
 */
static void parts_of_a_large_batch_are_joined_exactly(void **state) {
    (void)state;
    static const bn_case large = {5, 14, 14, 260, 0.1, 0.0, 9.0, 1e-5, 0.1, 0};
    run_spec s = {mixes[1], true, true};
    run_case(&s, &large);
}

/* ---- the oracle itself ----------------------------------------------------------------------- */

static double weighted_output(const void *self) {
    oracle_bn b = *(const oracle_bn *)self;
    double total = 0.0;
    forward(&b);
    for (int64_t i = 0; i < b.rows * b.c; i++) total += b.y[i] * b.dy[i];
    return total;
}

static void the_oracle_agrees_with_finite_differences(void **state) {
    (void)state;
    for (int training = 0; training < 2; training++)
        for (int k = 0; k < 4; k++) {
            op_attrs attrs = attrs_of(&cases[k], true);
            op_run r;
            open_case(&r, &cases[k], &attrs, mixes[0], training == 1);
            oracle_bn b = solve(&cases[k], &r, training == 1);
            if (b.rows > 2)
                assert_true(oracle_gradient_error(weighted_output, &b, b.x, b.dx, b.rows * b.c) < 1e-5);
            assert_true(oracle_gradient_error(weighted_output, &b, b.gamma, b.dgamma, b.c) < 1e-6);
            assert_true(oracle_gradient_error(weighted_output, &b, b.beta, b.dbeta, b.c) < 1e-6);
            forget(&b);
            op_run_close(&r);
        }
}

/* ---- behaviour ------------------------------------------------------------------------------- */

static void check_bits(const bn_case *k, op_formats formats) {
    op_attrs attrs = attrs_of(k, true);
    op_run first, r;
    open_case(&first, k, &attrs, formats, true);
    op_run_both(&first);
    for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++)
        for (int threads = 3; threads >= 1; threads--) {
            if (ab_isa_force((ab_isa)isa) != AB_OK) continue;
            assert_int_equal(ab_parallel_start(threads), AB_OK);
            open_case(&r, k, &attrs, formats, true);
            op_run_both(&r);
            op_run_same_results(&first, &r);
            op_run_close(&r);
        }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
    op_run_close(&first);
}

static void bits_depend_neither_on_the_lanes_nor_on_the_cpu_level(void **state) {
    (void)state;
    for (size_t f = 0; f < AB_COUNT_OF(mixes); f++)
        for (size_t i = 0; i < AB_COUNT_OF(cases); i++) check_bits(&cases[i], mixes[f]);
}

/* A mean a million times the deviation would leave nothing of a one-pass variance in fp32. */
static void a_large_mean_does_not_cancel_the_variance(void **state) {
    (void)state;
    static const bn_case far = {4, 16, 16, 3, 1.0, 65536.0, 0.0, 1e-5, 0.1, 0};
    op_attrs attrs = attrs_of(&far, true);
    op_run r;
    open_case(&r, &far, &attrs, mixes[0], true);
    oracle_bn b = solve(&far, &r, true);
    op_run_both(&r);
    for (int64_t c = 0; c < far.c; c++)
        assert_true(fabs(oracle_get(&r.param[RUNNING_VAR], c) - b.new_var[c]) < 1e-4 * b.new_var[c]);
    forget(&b);
    op_run_close(&r);
}

static void a_nan_spoils_only_its_channel(void **state) {
    (void)state;
    op_attrs attrs = attrs_of(&cases[1], true);
    op_run r;
    open_case(&r, &cases[1], &attrs, mixes[3], true);
    oracle_put(&r.in[0], 16 * 5 + 3, (double)NAN);
    op_run_both(&r);
    for (int64_t i = 0; i < ab_tensor_count(&r.out); i++) {
        assert_int_equal(isnan(oracle_get(&r.out, i)) != 0, i % 16 == 3);
        assert_int_equal(isnan(oracle_get(&r.din[0], i)) != 0, i % 16 == 3);
    }
    op_run_close(&r);
}

/* A weight that is NaN with all its bits set, which a rounding of numbers would carry over into a zero. */
static void check_whole_nan(const void *argument) {
    const bn_case *k = argument;
    const uint32_t all = 0x7fffffff;
    for (size_t f = 0; f < AB_COUNT_OF(mixes); f++) {
        op_attrs attrs = attrs_of(k, true);
        op_run r;
        open_case(&r, k, &attrs, mixes[f], true);
        if (mixes[f].param == &ab_format_fp32)
            memcpy(r.param[GAMMA].data, &all, sizeof all);
        else
            oracle_put(&r.param[GAMMA], 0, (double)NAN);
        op_run_both(&r);
        for (int64_t i = 0; i < ab_tensor_count(&r.out); i++) {
            assert_int_equal(isnan(oracle_get(&r.out, i)) != 0, i % k->c == 0);
            assert_int_equal(isnan(oracle_get(&r.din[0], i)) != 0, i % k->c == 0);
        }
        op_run_close(&r);
    }
}

static void a_nan_of_any_bits_stays_one(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++)
        if (cases[i].n * cases[i].h * cases[i].w > 1) op_each_machine(check_whole_nan, &cases[i]);
}

static void one_value_a_channel_cannot_train(void **state) {
    (void)state;
    static const bn_case single = {1, 1, 1, 4, 1.0, 0.0, 0.0, 1e-5, 0.1, 0};
    op_attrs attrs = attrs_of(&single, true);
    op_run r;
    open_case(&r, &single, &attrs, mixes[0], true);
    assert_int_equal(r.op->forward(&r.exec, &r.io), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[1, 1, 1, 4]"));
    r.exec.training = false;
    assert_int_equal(r.op->forward(&r.exec, &r.io), AB_OK);
    op_run_close(&r);
}

static void other_shapes_are_refused(void **state) {
    (void)state;
    const ab_shape image = {4, {2, 3, 4, 5}}, rows = {2, {2, 5}};
    ab_shape out;
    assert_int_equal(ab_op_batch_norm1d.infer(NULL, &image, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "batch_norm1d expects [batch, channels]"));
    assert_int_equal(ab_op_batch_norm2d.infer(NULL, &rows, 1, &out), AB_CONFIG);
}

static void parameters_are_named_and_initialised_like_torch(void **state) {
    (void)state;
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    op_attrs attrs = op_attrs_default(&ab_op_batch_norm2d);
    ab_shape in = {.ndim = 4, .dim = {1, 2, 2, 5}};
    ab_param_spec spec[AB_MAX_PARAMS];
    assert_int_equal(ab_op_batch_norm2d.params(&attrs, &in, spec), 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(spec[i].name, names[i]);
        assert_int_equal(spec[i].kind, i < 2 ? AB_PARAM_WEIGHT : AB_PARAM_BUFFER);
        assert_int_equal(spec[i].init, i == 0 || i == 3 ? AB_INIT_ONES : AB_INIT_ZEROS);
        assert_int_equal(spec[i].shape.dim[0], 5);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_matches_the_definition_in_every_format),
        cmocka_unit_test(other_shapes_are_refused),
        cmocka_unit_test(evaluation_uses_the_running_statistics_and_leaves_them),
        cmocka_unit_test(without_affine_there_is_no_weight),
        cmocka_unit_test(parts_of_a_large_batch_are_joined_exactly),
        cmocka_unit_test(the_oracle_agrees_with_finite_differences),
        cmocka_unit_test(bits_depend_neither_on_the_lanes_nor_on_the_cpu_level),
        cmocka_unit_test(a_large_mean_does_not_cancel_the_variance),
        cmocka_unit_test(a_nan_spoils_only_its_channel),
        cmocka_unit_test(a_nan_of_any_bits_stays_one),
        cmocka_unit_test(one_value_a_channel_cannot_train),
        cmocka_unit_test(parameters_are_named_and_initialised_like_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
