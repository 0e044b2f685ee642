/* apex's fused norms against their formulas in double: every rounding that apex's kernels make, the weights
 * that backward takes as eps, and backward from the stored output (memory_efficient). */
#include "oracle/jacobian.h"

typedef struct norm_case {
    const ab_op *op;
    ab_shape shape;
    bool affine, from_output;
    double eps, offset;
} norm_case;

static const norm_case cases[] = {
    {&ab_op_fused_layer_norm, {2, {3, 7}}, true, false, 1e-5, 0.0},
    {&ab_op_fused_layer_norm, {3, {2, 3, 33}}, true, true, 1e-3, 0.5},
    {&ab_op_fused_layer_norm, {2, {70, 3}}, false, true, 1e-5, 0.0},
    {&ab_op_fused_layer_norm, {2, {2, 50}}, false, false, 1e-5, -1.0},
    {&ab_op_fused_rms_norm, {2, {3, 7}}, true, false, 1e-5, 0.0},
    {&ab_op_fused_rms_norm, {3, {2, 2, 35}}, true, true, 1e-2, 1.0},
    {&ab_op_fused_rms_norm, {2, {70, 3}}, false, true, 1e-6, 0.0},
    {&ab_op_mixed_fused_layer_norm, {3, {2, 3, 33}}, true, false, 1e-5, 2.0},
    {&ab_op_mixed_fused_layer_norm, {2, {40, 20}}, true, true, 1e-5, 0.0},
    {&ab_op_mixed_fused_rms_norm, {2, {40, 20}}, true, false, 1e-5, 0.0},
    {&ab_op_mixed_fused_rms_norm, {2, {5, 130}}, true, true, 1e-5, 0.0},
};

static bool is_mixed(const norm_case *k) {
    return k->op == &ab_op_mixed_fused_layer_norm || k->op == &ab_op_mixed_fused_rms_norm;
}

static bool is_centred(const norm_case *k) {
    return k->op == &ab_op_fused_layer_norm || k->op == &ab_op_mixed_fused_layer_norm;
}

static op_attrs attrs_of(const norm_case *k) {
    op_attrs attrs = op_attrs_default(k->op);
    op_attrs_set(k->op, &attrs, "eps", k->eps, 0);
    op_attrs_set(k->op, &attrs, "memory_efficient", k->from_output, 0);
    if (!is_mixed(k)) op_attrs_set(k->op, &attrs, "elementwise_affine", k->affine, 0);
    return attrs;
}

/* Weights below eps, on both sides of 0, and 0 itself; no other one is small, for backward divides by them.
 */
static void fill_weight(const ab_tensor *weight) {
    static const double small[] = {3e-6, 0.0, -2e-6};
    for (int64_t i = 0; i < ab_tensor_count(weight); i++) {
        const double w = oracle_get(weight, i);
        oracle_put(weight, i, i < 3 ? small[i] : copysign(0.25 + fabs(w), w));
    }
}

/* A mixed norm has parameters, and so an output, of the other kind than its input. */
static void open_case(op_run *r, const void *self, op_formats formats) {
    const norm_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    attrs = attrs_of(k);
    if (is_mixed(k))
        formats.param = formats.activation == &ab_format_fp32 ? &ab_format_fp16 : &ab_format_fp32;
    op_run_open(r, k->op, &attrs, &k->shape, 1, formats, &exec);
    if (is_mixed(k)) {
        r->out = op_run_tensor(r, k->shape, formats.param, 10);
        r->dout = op_run_tensor(r, k->shape, formats.param, 110);
    }
    op_run_fill_all(r, (uint64_t)k->shape.dim[0] + 3);
    for (int64_t i = 0; i < ab_tensor_count(&r->in[0]); i++)
        oracle_put(&r->in[0], i, k->offset + oracle_random(9, i));
    if (k->affine) fill_weight(&r->param[0]);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

/* ---- the formulas ---------------------------------------------------------------------------- */

typedef struct row {
    double *x, *y, *dy; /* y: as stored */
    double mean, rstd;
} row;

typedef struct formula {
    const norm_case *k;
    const ab_format *stored;
    int64_t n, rows;
    double *x, *y, *dy, *w, *b; /* w and b: 1 and 0 if there are none */
} formula;

static double *param_values(const op_run *r, int i, int64_t n, double otherwise) {
    if (i < r->params) return oracle_values(&r->param[i]);
    double *values = oracle_doubles(n);
    for (int64_t c = 0; c < n; c++) values[c] = otherwise;
    return values;
}

static formula formula_of(const op_run *r, const norm_case *k) {
    formula f = {.k = k, .stored = r->out.format, .n = k->shape.dim[k->shape.ndim - 1]};
    f.rows = ab_shape_count(&k->shape) / f.n;
    f.x = oracle_values(&r->in[0]);
    f.y = oracle_values(&r->out);
    f.dy = oracle_values(&r->dout);
    f.w = param_values(r, 0, f.n, 1.0);
    f.b = param_values(r, 1, f.n, 0.0);
    return f;
}

static void formula_close(formula *f) {
    double *all[] = {f->x, f->y, f->dy, f->w, f->b};
    for (size_t i = 0; i < AB_COUNT_OF(all); i++) free(all[i]);
}

static row row_of(const formula *f, int64_t number) {
    row at = {f->x + number * f->n, f->y + number * f->n, f->dy + number * f->n, 0.0, 0.0};
    double squares = 0.0;
    for (int64_t c = 0; is_centred(f->k) && c < f->n; c++) at.mean += at.x[c] / (double)f->n;
    for (int64_t c = 0; c < f->n; c++) squares += (at.x[c] - at.mean) * (at.x[c] - at.mean) / (double)f->n;
    at.rstd = 1.0 / sqrt(squares + f->k->eps);
    return at;
}

static double pull_of(const formula *f, const ab_tensor *weight, int64_t c) {
    const double least = f->k->affine ? oracle_round(weight->format, f->k->eps) : 0.0;
    if (fabs(f->w[c]) >= least) return f->w[c];
    return f->w[c] >= 0.0 ? least : -least;
}

/* The output as apex rounds it, and as it would be rounded once. */
static double staged(const formula *f, const row *at, int64_t c, double *once) {
    const double xhat = (at->x[c] - at->mean) * at->rstd;
    *once = oracle_round(f->stored, xhat * f->w[c] + f->b[c]);
    if (!f->k->affine) return *once;
    const double scaled = oracle_round(f->stored, xhat) * f->w[c];
    if (!is_centred(f->k)) return oracle_round(f->stored, scaled);
    return oracle_round(f->stored, oracle_round(f->stored, scaled) + f->b[c]);
}

/* ---- checks ---------------------------------------------------------------------------------- */

typedef struct tally {
    int64_t staged, once, all; /* elements that are not what one formula says */
} tally;

/* fp32 statistics move a value over a rounding boundary now and then; then it is a few ulps off. */
static void check_out(const op_run *r, const formula *f, tally *wrong) {
    for (int64_t i = 0; i < f->rows * f->n; i++) {
        const row at = row_of(f, i / f->n);
        double once, exact = staged(f, &at, i % f->n, &once);
        const double terms = fabs(at.x[i % f->n] - at.mean) * at.rstd + fabs(f->b[i % f->n]) + fabs(at.mean);
        op_run_near(r, "out", &r->out, i, exact,
                    12.0 * ORACLE_U32 * terms * (1.0 + at.rstd) + 3.0 * oracle_half_ulp(f->stored, terms));
        wrong->staged += f->y[i] != exact;
        wrong->once += f->y[i] != once;
        wrong->all++;
    }
}

/* xhat as backward has it, and by how much fp32 may miss it in units of u. */
static double xhat_of(const formula *f, const op_run *r, const row *at, int64_t c, double *loose) {
    if (!f->k->from_output) {
        *loose = (fabs(at->x[c]) + fabs(at->mean)) * at->rstd;
        return (at->x[c] - at->mean) * at->rstd;
    }
    const double pull = pull_of(f, &r->param[0], c);
    *loose = (fabs(at->y[c]) + fabs(f->b[c])) / fabs(pull);
    return (at->y[c] - f->b[c]) / pull;
}

static void check_row(const op_run *r, const formula *f, int64_t number, oracle_sums dw, oracle_sums db) {
    const row at = row_of(f, number);
    double sum = 0.0, product = 0.0, terms = 0.0, loose;
    for (int64_t c = 0; c < f->n; c++) {
        const double xhat = xhat_of(f, r, &at, c, &loose);
        const double term = f->k->from_output ? at.dy[c] * (at.y[c] - f->b[c]) : at.dy[c] * f->w[c] * xhat;
        sum += is_centred(f->k) ? at.dy[c] * f->w[c] : 0.0;
        product += term;
        terms += fabs(at.dy[c]) * (fabs(f->w[c]) * (1.0 + loose) + fabs(at.y[c]) + fabs(f->b[c]));
        oracle_add(dw, c, at.dy[c] * xhat);
        dw.magnitude[c] += fabs(at.dy[c]) * loose;
        oracle_add(db, c, at.dy[c]);
    }
    for (int64_t c = 0; c < f->n; c++) {
        const double xhat = xhat_of(f, r, &at, c, &loose), pull = pull_of(f, &r->param[0], c);
        const double mean = terms / (double)f->n;
        op_run_near(r, "din", &r->din[0], number * f->n + c,
                    at.rstd * (at.dy[c] * pull - sum / (double)f->n - xhat * product / (double)f->n),
                    40.0 * ORACLE_U32 * at.rstd * (1.0 + at.rstd) *
                        (fabs(at.dy[c] * pull) + mean * (1.0 + loose)));
    }
}

static tally wrong;

static void check_case(const op_run *r, const void *self) {
    formula f = formula_of(r, self);
    oracle_sums dw = oracle_sums_open(f.n), db = oracle_sums_open(f.n);
    check_out(r, &f, &wrong);
    for (int64_t number = 0; number < f.rows; number++) check_row(r, &f, number, dw, db);
    if (r->params > 0) oracle_sums_check(r, "dweight", &r->dparam[0], dw, 60);
    if (r->params > 1) oracle_sums_check(r, "dbias", &r->dparam[1], db, 60);
    oracle_sums_close(&dw);
    oracle_sums_close(&db);
    formula_close(&f);
}

static void fused_norms_match_apexs_formulas(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        oracle_run_all((oracle_run){.open = open_case, .check = check_case, .self = &cases[k]});
}

/* Where the output is half, the stored values are those of apex's roundings and not of a single one. */
static void a_half_output_has_every_rounding_of_apexs_kernels(void **state) {
    (void)state;
    static const norm_case norms[] = {{&ab_op_fused_layer_norm, {2, {40, 50}}, true, false, 1e-5, 0.0},
                                      {&ab_op_fused_rms_norm, {2, {40, 50}}, true, false, 1e-5, 0.0}};
    static const ab_format *const halves[] = {&ab_format_fp16, &ab_format_bf16};
    for (size_t i = 0; i < AB_COUNT_OF(norms) * AB_COUNT_OF(halves); i++) {
        const ab_format *half = halves[i % 2];
        op_run r;
        wrong = (tally){0, 0, 0};
        open_case(&r, &norms[i / 2], (op_formats){half, half, NULL});
        op_run_both(&r);
        check_case(&r, &norms[i / 2]);
        op_run_close(&r);
        if (wrong.staged * 100 > wrong.all || wrong.once * 10 < wrong.all)
            fail_msg("%s in %s: %lld of %lld values differ from apex's roundings, %lld from one rounding",
                     norms[i / 2].op->name, half->name, (long long)wrong.staged, (long long)wrong.all,
                     (long long)wrong.once);
    }
}

/* ---- what is kept ---------------------------------------------------------------------------- */

static void memory_efficient_keeps_the_output_and_one_statistic(void **state) {
    (void)state;
    const ab_op *const ops[] = {&ab_op_fused_layer_norm, &ab_op_mixed_fused_layer_norm, &ab_op_fused_rms_norm,
                                &ab_op_mixed_fused_rms_norm};
    const ab_shape in = {.ndim = 3, .dim = {2, 3, 5}};
    for (size_t i = 0; i < AB_COUNT_OF(ops); i++) {
        op_attrs attrs = op_attrs_default(ops[i]);
        ab_shape shape[AB_MAX_SAVED];
        const ab_format *format[AB_MAX_SAVED];
        assert_int_equal(ab_op_needs(ops[i], &attrs, 1, 1), 1);
        assert_int_equal(ops[i]->saved(&attrs, &in, &in, shape, format), i < 2 ? 2 : 1);
        op_attrs_set(ops[i], &attrs, "memory_efficient", 1, 0);
        assert_int_equal(ab_op_needs(ops[i], &attrs, 1, 1), AB_NEEDS_OUT);
        assert_int_equal(ops[i]->saved(&attrs, &in, &in, shape, format), 1);
        assert_ptr_equal(format[0], &ab_format_fp32);
        assert_int_equal(ab_shape_count(&shape[0]), 6);
    }
}

static void parameters_and_errors_are_apexs(void **state) {
    (void)state;
    const ab_shape in = {.ndim = 2, .dim = {2, 5}};
    ab_shape out;
    ab_param_spec spec[AB_MAX_PARAMS];
    op_attrs attrs = op_attrs_default(&ab_op_fused_layer_norm);
    double eps;
    memcpy(&eps, attrs.bytes + ab_op_fused_layer_norm.attrs[1].offset, sizeof eps);
    assert_true(eps == 1e-5);
    assert_int_equal(ab_op_fused_layer_norm.params(&attrs, &in, spec), 2);
    assert_int_equal(ab_op_fused_rms_norm.params(&attrs, &in, spec), 1);
    assert_int_equal(spec[0].init, AB_INIT_ONES);
    op_attrs_set(&ab_op_fused_layer_norm, &attrs, "elementwise_affine", 0, 0);
    assert_int_equal(ab_op_fused_layer_norm.params(&attrs, &in, spec), 0);
    attrs = op_attrs_default(&ab_op_mixed_fused_layer_norm);
    assert_int_equal(ab_op_mixed_fused_layer_norm.params(&attrs, &in, spec), 2);
    op_attrs_set(&ab_op_mixed_fused_layer_norm, &attrs, "normalized_shape", 6, 0);
    assert_int_equal(ab_op_mixed_fused_layer_norm.infer(&attrs, &in, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[2, 5]"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_norms_match_apexs_formulas),
        cmocka_unit_test(a_half_output_has_every_rounding_of_apexs_kernels),
        cmocka_unit_test(memory_efficient_keeps_the_output_and_one_statistic),
        cmocka_unit_test(parameters_and_errors_are_apexs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
