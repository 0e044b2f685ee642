/* nll_loss against torch. cross_entropy against its definition in double: mean over samples, class weights,
 * ignored targets, the loss scale in backward, and what infinities and wrong class ids do. */
#include "oracle/op_run.h"

#include "oracle/doubles.h"
#include "oracle/gradient.h"

typedef struct loss_case {
    int64_t rows, classes;
    double spread; /* logits are in [-spread, spread) */
    bool weighted;
    int64_t ignore_every; /* 0: never */
    double scale;
    bool summed;
} loss_case;

static const loss_case cases[] = {
    {1, 2, 1.0, false, 0, 1.0, false},        {64, 10, 4.0, false, 0, 1.0, false},
    {7, 3, 30.0, true, 0, 128.0, false},      {33, 10, 8.0, true, 4, 1024.0, false},
    {5, 1000, 2.0, false, 2, 65536.0, false}, {2500, 40, 3.0, true, 0, 1.0, false},
    {33, 10, 8.0, true, 4, 2.0, true},
};

enum { MAX_CLASSES = 1000, IGNORED = -100 };
static float class_weights[MAX_CLASSES];

typedef struct oracle_loss {
    const loss_case *k;
    double *logits, *gradient;
    const int32_t *target;
    double loss;
} oracle_loss;

static double weight_of(const oracle_loss *o, int64_t row) {
    if (o->target[row] == IGNORED) return 0.0;
    return o->k->weighted ? (double)class_weights[o->target[row]] : 1.0;
}

static void solve(oracle_loss *o) {
    double weights = 0.0, total = 0.0;
    int64_t classes = o->k->classes;
    for (int64_t row = 0; row < o->k->rows; row++) weights += weight_of(o, row);
    if (o->k->summed) weights = 1.0;
    for (int64_t row = 0; row < o->k->rows; row++) {
        const double *x = o->logits + row * classes;
        double largest = x[0], sum = 0.0, w = weight_of(o, row);
        for (int64_t c = 0; c < classes; c++) largest = fmax(largest, x[c]);
        for (int64_t c = 0; c < classes; c++) sum += exp(x[c] - largest);
        if (w != 0.0) total += w * (log(sum) + largest - x[o->target[row]]);
        for (int64_t c = 0; o->gradient && c < classes; c++)
            o->gradient[row * classes + c] =
                w / weights * (exp(x[c] - largest) / sum - (c == o->target[row] ? 1.0 : 0.0));
    }
    o->loss = total / weights;
}

/* The op's attrs begin with the weights; a network file sets them by name. */
static op_attrs attrs_of(const loss_case *k) {
    op_attrs attrs = op_attrs_default(&ab_op_cross_entropy);
    ab_floats weights = {class_weights, k->classes};
    op_attrs_set(&ab_op_cross_entropy, &attrs, "reduction", k->summed, 0);
    for (const ab_attr *a = ab_op_cross_entropy.attrs; k->weighted && a->name; a++)
        if (strcmp(a->name, "weight") == 0) memcpy(attrs.bytes + a->offset, &weights, sizeof weights);
    return attrs;
}

static void open_case(op_run *r, const loss_case *k, const op_attrs *attrs, const ab_format *format) {
    ab_shape in[] = {{.ndim = 2, .dim = {k->rows, k->classes}}, {.ndim = 1, .dim = {k->rows}}};
    ab_exec exec = {.training = true};
    for (int c = 0; c < MAX_CLASSES; c++) class_weights[c] = (float)(1.5 + oracle_random(8, c));
    op_run_open(r, &ab_op_cross_entropy, attrs, in, 2, (op_formats){format, format, NULL}, &exec);
    for (int64_t i = 0; i < k->rows * k->classes; i++)
        oracle_put(&r->in[0], i, k->spread * oracle_random(6, i));
    int32_t *target = r->in[1].data;
    for (int64_t i = 0; i < k->rows; i++) {
        bool ignored = k->ignore_every && i % k->ignore_every == 1;
        target[i] = ignored ? IGNORED : (int32_t)((oracle_random(7, i) + 1.0) / 2.0 * (double)k->classes);
    }
    oracle_put(&r->dout, 0, k->scale);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static oracle_loss expect(const loss_case *k, const op_run *r) {
    oracle_loss o = {.k = k, .logits = oracle_values(&r->in[0]), .target = r->in[1].data};
    o.gradient = oracle_doubles(k->rows * k->classes);
    solve(&o);
    return o;
}

static void forget(oracle_loss *o) {
    free(o->logits);
    free(o->gradient);
}

/* An exponential of x - max has the relative error of the difference, u * 2 spread, and of expf, a few u. */
static void run_cases(const void *format) {
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        const loss_case *k = &cases[i];
        op_attrs attrs = attrs_of(k);
        op_run r;
        open_case(&r, k, &attrs, format);
        oracle_loss o = expect(k, &r);
        op_run_both(&r);
        double error = ORACLE_U32 * (2.0 * k->spread + 6.0), worst_weight = 0.0;
        op_run_near(&r, "loss", &r.out, 0, o.loss, error * 2.0);
        for (int64_t n = 0; n < k->rows; n++) worst_weight = fmax(worst_weight, weight_of(&o, n));
        for (int64_t n = 0; n < k->rows * k->classes; n++) {
            double exact = k->scale * o.gradient[n], bound = error * 2.0 * fabs(exact);
            if (n % k->classes == o.target[n / k->classes]) /* 1 - softmax: the error of softmax itself */
                bound += error * 2.0 * k->scale * worst_weight /
                         (double)(k->rows > 2 && !k->summed ? k->rows / 2 : 1) * 4.0;
            op_run_near(&r, "dlogits", &r.din[0], n, exact, bound + 1e-38);
        }
        forget(&o);
        op_run_close(&r);
    }
}

static void loss_and_gradient_match_the_definition(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (int f = 0; f < formats; f++) op_each_machine(run_cases, format[f].activation);
}

static double loss_only(const void *self) {
    oracle_loss o = *(const oracle_loss *)self;
    o.gradient = NULL;
    solve(&o);
    return o.loss;
}

static void the_oracle_agrees_with_finite_differences(void **state) {
    (void)state;
    for (size_t i = 0; i < AB_COUNT_OF(cases); i++) {
        if (cases[i].rows * cases[i].classes > 1000) continue;
        op_attrs attrs = attrs_of(&cases[i]);
        op_run r;
        open_case(&r, &cases[i], &attrs, &ab_format_fp32);
        oracle_loss o = expect(&cases[i], &r);
        assert_true(oracle_gradient_error(loss_only, &o, o.logits, o.gradient,
                                          cases[i].rows * cases[i].classes) < 1e-6);
        forget(&o);
        op_run_close(&r);
    }
}

/* Four equal classes: the loss of every sample is log 4, whatever their number. */
static void the_loss_is_a_mean(void **state) {
    (void)state;
    for (int64_t rows = 1; rows <= 64; rows *= 8) {
        loss_case k = {rows, 4, 0.0, false, 0, 1.0, false};
        op_attrs attrs = attrs_of(&k);
        op_run r;
        open_case(&r, &k, &attrs, &ab_format_fp32);
        op_run_both(&r);
        assert_true(fabs(oracle_get(&r.out, 0) - log(4.0)) < 1e-7);
        op_run_close(&r);
    }
}

static void large_logits_do_not_overflow(void **state) {
    (void)state;
    loss_case k = {2, 3, 0.0, false, 0, 1.0, false};
    op_attrs attrs = attrs_of(&k);
    op_run r;
    open_case(&r, &k, &attrs, &ab_format_fp32);
    const double logits[] = {1e30, 0.0, -1e30, -3e4, -3e4, -3e4};
    for (int i = 0; i < 6; i++) oracle_put(&r.in[0], i, logits[i]);
    int32_t *target = r.in[1].data;
    target[0] = 0;
    target[1] = 2;
    op_run_both(&r);
    assert_true(fabs(oracle_get(&r.out, 0) - log(3.0) / 2.0) < 1e-7);
    assert_true(oracle_get(&r.din[0], 0) == 0.0);
    op_run_close(&r);
}

static void nan_and_infinite_logits_give_nan(void **state) {
    (void)state;
    const double bad[] = {(double)NAN, (double)INFINITY};
    for (size_t b = 0; b < AB_COUNT_OF(bad); b++)
        for (int where = 0; where < 3; where++) {
            loss_case k = {2, 3, 1.0, false, 0, 1.0, false};
            op_attrs attrs = attrs_of(&k);
            op_run r;
            open_case(&r, &k, &attrs, &ab_format_fp16);
            oracle_put(&r.in[0], where, bad[b]);
            op_run_both(&r);
            assert_true(isnan(oracle_get(&r.out, 0)));
            for (int c = 0; c < 3; c++) assert_true(isfinite(oracle_get(&r.din[0], 3 + c)));
            assert_true(isnan(oracle_get(&r.din[0], where)));
            op_run_close(&r);
        }
}

static void minus_infinity_is_a_class_that_cannot_be(void **state) {
    (void)state;
    loss_case k = {1, 3, 1.0, false, 0, 1.0, false};
    op_attrs attrs = attrs_of(&k);
    op_run r;
    open_case(&r, &k, &attrs, &ab_format_fp16);
    for (int c = 0; c < 3; c++) oracle_put(&r.in[0], c, c == 1 ? (double)-INFINITY : 2.0);
    ((int32_t *)r.in[1].data)[0] = 0;
    op_run_both(&r);
    assert_true(fabs(oracle_get(&r.out, 0) - log(2.0)) < 1e-7);
    assert_true(oracle_get(&r.din[0], 1) == 0.0);
    op_run_close(&r);
}

/* torch: 0 / 0, or a sum of nothing. */
static void a_batch_of_ignored_targets_has_no_mean_but_a_sum(void **state) {
    (void)state;
    for (int summed = 0; summed < 2; summed++) {
        loss_case k = {4, 3, 1.0, false, 0, 1.0, summed != 0};
        op_attrs attrs = attrs_of(&k);
        op_run r;
        open_case(&r, &k, &attrs, &ab_format_fp32);
        for (int i = 0; i < 4; i++) ((int32_t *)r.in[1].data)[i] = IGNORED;
        op_run_both(&r);
        assert_true(summed ? oracle_get(&r.out, 0) == 0.0 : isnan(oracle_get(&r.out, 0)));
        op_run_close(&r);
    }
}

static void class_ids_outside_the_classes_are_refused(void **state) {
    (void)state;
    const int32_t bad[] = {10, -1, 1 << 30};
    for (size_t i = 0; i < AB_COUNT_OF(bad); i++) {
        op_attrs attrs = attrs_of(&cases[1]);
        op_run r;
        open_case(&r, &cases[1], &attrs, &ab_format_fp32);
        ((int32_t *)r.in[1].data)[5] = bad[i];
        assert_int_equal(r.op->forward(&r.exec, &r.io), AB_INPUT);
        assert_non_null(strstr(ab_error_message(), "sample 5"));
        assert_int_equal(r.op->backward(&r.exec, &r.io), AB_INPUT);
        op_run_close(&r);
    }
}

static void shapes_are_checked_with_a_message(void **state) {
    (void)state;
    op_attrs plain = attrs_of(&cases[1]), weighted = attrs_of(&cases[3]);
    ab_shape good[] = {{.ndim = 2, .dim = {8, 10}}, {.ndim = 1, .dim = {8}}}, out;
    assert_int_equal(ab_op_cross_entropy.infer(&weighted, good, 2, &out), AB_OK);
    assert_true(out.ndim == 1 && out.dim[0] == 1);
    ab_shape image[] = {{.ndim = 4, .dim = {8, 1, 1, 10}}, {.ndim = 1, .dim = {8}}}; /* a target a pixel */
    assert_int_equal(ab_op_cross_entropy.infer(&plain, image, 2, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[8, 1, 1, 10]"));
    ab_shape fewer[] = {{.ndim = 2, .dim = {8, 10}}, {.ndim = 1, .dim = {7}}};
    assert_int_equal(ab_op_cross_entropy.infer(&plain, fewer, 2, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[7]"));
    ab_shape narrow[] = {{.ndim = 2, .dim = {8, 9}}, {.ndim = 1, .dim = {8}}};
    assert_int_equal(ab_op_cross_entropy.infer(&weighted, narrow, 2, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "10 weights"));
}

static void bits_do_not_depend_on_the_lanes(void **state) {
    (void)state;
    op_attrs attrs = attrs_of(&cases[5]);
    op_run r[3];
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ab_parallel_start(3 - i), AB_OK);
        open_case(&r[i], &cases[5], &attrs, &ab_format_fp16);
        op_run_both(&r[i]);
        assert_true(op_run_same_bits(&r[0].out, &r[i].out));
        assert_true(op_run_same_bits(&r[0].din[0], &r[i].din[0]));
    }
    for (int i = 0; i < 3; i++) op_run_close(&r[i]);
}

/* ---- rows of classes, smoothing, probabilities: torch 2.11's own answers in double ----------- */

typedef struct torch_case {
    bool shares, weighted;
    double smoothing, loss, gradient[3]; /* of logits 0, 11 and 22 */
} torch_case;

/* x[i] = (7 i mod 11 - 5) / 4 as [2, 3, 4]; ids {0, 3, 2, 1, -100, 2}; shares p[i] = (5 i mod 8) / 16. */
static const torch_case torch_cases[] = {
    {false,
     false,
     0.1,
     2.2428838632460475,
     {-0.17550066106880705, 0.011140274031718375, -0.1731389690128711}},
    {false,
     true,
     0.1,
     2.1826292960039129,
     {-0.075943247353185944, 0.025491864302231892, -0.30220710658097799}},
    {true,
     false,
     0,
     1.2686444435753277,
     {0.0069266013039948685, -0.061147716851872008, -0.053851331571885187}},
    {true,
     true,
     0.2,
     1.2276641522941805,
     {0.0015725172709290813, -0.0069152511058368166, -0.10702957898962445}},
};

static void smoothing_probabilities_and_rows_match_torch(void **state) {
    (void)state;
    static const float weights[] = {0.5f, 1.0f, 2.0f, 0.25f};
    static const int32_t ids[] = {0, 3, 2, 1, -100, 2};
    for (size_t i = 0; i < AB_COUNT_OF(torch_cases); i++) {
        const torch_case *k = &torch_cases[i];
        op_attrs attrs = op_attrs_default(&ab_op_cross_entropy);
        const ab_floats four = {weights, 4};
        if (k->weighted) memcpy(attrs.bytes + ab_op_cross_entropy.attrs[0].offset, &four, sizeof four);
        op_attrs_set(&ab_op_cross_entropy, &attrs, "label_smoothing", k->smoothing, 0);
        ab_shape in[] = {{3, {2, 3, 4}}, {k->shares ? 3 : 2, {2, 3, 4}}};
        ab_exec exec = {.training = true};
        op_run r;
        op_run_open_floats(&r, &ab_op_cross_entropy, &attrs, in, 2,
                           (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec, k->shares ? 2u : 0u);
        for (int n = 0; n < 24; n++) oracle_put(&r.in[0], n, (n * 7 % 11 - 5) / 4.0);
        for (int n = 0; n < 24 && k->shares; n++) oracle_put(&r.in[1], n, n * 5 % 8 / 16.0);
        if (!k->shares) memcpy(r.in[1].data, ids, sizeof ids);
        r.io.din[1] = NULL;
        oracle_put(&r.dout, 0, 1.0);
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        op_run_near(&r, "loss", &r.out, 0, k->loss, 1e-6);
        for (int n = 0; n < 3; n++) op_run_near(&r, "dlogits", &r.din[0], 11 * n, k->gradient[n], 1e-7);
        op_run_close(&r);
    }
}

/* ---- nll_loss: torch 2.11's own answers in double -------------------------------------------- */

/* The same x and ids in rows; gradient of x[0], x[7] and x[21]. */
static void nll_loss_matches_torch(void **state) {
    (void)state;
    static const struct {
        bool summed, weighted;
        double loss, gradient[3];
    } rows[] = {{false, false, 0.65, {-0.2, -0.2, 0}},
                {false, true, 0.717391304347826, {-0.08695652173913043, -0.043478260869565216, 0}},
                {true, false, 3.25, {-1, -1, 0}},
                {true, true, 4.125, {-0.5, -0.25, 0}}};
    static const float weights[] = {0.5f, 1.0f, 2.0f, 0.25f};
    static const int32_t ids[] = {0, 3, 2, 1, -100, 2};
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        op_attrs attrs = op_attrs_default(&ab_op_nll_loss);
        const ab_floats four = {weights, 4};
        if (rows[i].weighted) memcpy(attrs.bytes + ab_op_nll_loss.attrs[0].offset, &four, sizeof four);
        op_attrs_set(&ab_op_nll_loss, &attrs, "reduction", rows[i].summed, 0);
        ab_shape in[] = {{3, {2, 3, 4}}, {2, {2, 3}}};
        ab_exec exec = {.training = true};
        op_run r;
        op_run_open(&r, &ab_op_nll_loss, &attrs, in, 2, (op_formats){&ab_format_fp16, &ab_format_fp32, NULL},
                    &exec);
        for (int n = 0; n < 24; n++) oracle_put(&r.in[0], n, (n * 7 % 11 - 5) / 4.0);
        memcpy(r.in[1].data, ids, sizeof ids);
        oracle_put(&r.dout, 0, 2.0);
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        op_run_near(&r, "loss", &r.out, 0, rows[i].loss, 5e-4 * rows[i].loss);
        const int at[] = {0, 7, 21};
        for (int n = 0; n < 3; n++)
            op_run_near(&r, "gradient", &r.din[0], at[n], 2 * rows[i].gradient[n], 5e-4);
        ((int32_t *)r.in[1].data)[3] = 4;
        assert_int_equal(r.op->forward(&r.exec, &r.io), AB_INPUT);
        assert_non_null(strstr(ab_error_message(), "target of sample 3 is class 4, expected 0 to 3"));
        op_run_close(&r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss_and_gradient_match_the_definition),
        cmocka_unit_test(the_oracle_agrees_with_finite_differences),
        cmocka_unit_test(the_loss_is_a_mean),
        cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(nan_and_infinite_logits_give_nan),
        cmocka_unit_test(minus_infinity_is_a_class_that_cannot_be),
        cmocka_unit_test(a_batch_of_ignored_targets_has_no_mean_but_a_sum),
        cmocka_unit_test(class_ids_outside_the_classes_are_refused),
        cmocka_unit_test(shapes_are_checked_with_a_message),
        cmocka_unit_test(bits_do_not_depend_on_the_lanes),
        cmocka_unit_test(smoothing_probabilities_and_rows_match_torch),
        cmocka_unit_test(nll_loss_matches_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
