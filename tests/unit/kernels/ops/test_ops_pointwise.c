/* mse, bce and bce_with_logits: torch 2.11's values recorded in double, definitions and finite differences,
 * half inputs, and where probabilities saturate. */
#include "oracle/doubles.h"
#include "oracle/gradient.h"
#include "oracle/op_run.h"

typedef double (*definition)(double x, double t);

static double d_mse(double x, double t) { return (x - t) * (x - t); }
static double d_bce(double x, double t) { return -t * log(x) - (1 - t) * log(1 - x); }
static double d_logits(double x, double t) {
    return -t * log(1 / (1 + exp(-x))) - (1 - t) * log(1 / (1 + exp(x)));
}

typedef struct loss {
    const ab_op *op;
    definition f;
    double low, high; /* of x */
} loss;

static const loss losses[] = {
    {&ab_op_mse, d_mse, -3, 3}, {&ab_op_bce, d_bce, 0.02, 0.98}, {&ab_op_bce_with_logits, d_logits, -6, 6}};

typedef struct run_spec {
    const loss *k;
    op_formats formats;
    double sum, weight;
} run_spec;

static void run_loss(const void *argument) {
    const run_spec *s = argument;
    static const ab_shape shapes[] = {{1, {1}}, {2, {33, 71}}, {4, {3, 40, 41, 23}}};
    for (size_t i = 0; i < AB_COUNT_OF(shapes); i++) {
        ab_shape in[] = {shapes[i], shapes[i]};
        op_attrs attrs = op_attrs_default(s->k->op);
        op_attrs_set(s->k->op, &attrs, "reduction", s->sum, 0);
        op_attrs_set(s->k->op, &attrs, "weight", s->weight, 0);
        ab_exec exec = {.training = true};
        op_run r;
        op_run_open(&r, s->k->op, &attrs, in, 2, s->formats, &exec);
        const int64_t n = ab_shape_count(&in[0]);
        const double scale = 1024, share = s->weight * (s->sum > 0 ? 1 : 1 / (double)n);
        for (int64_t k = 0; k < n; k++) {
            oracle_put(&r.in[0], k, s->k->low + (s->k->high - s->k->low) * (oracle_random(1, k) + 1) / 2);
            oracle_put(&r.in[1], k, (oracle_random(2, k) + 1) / 2);
        }
        oracle_put(&r.dout, 0, scale);
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        double total = 0;
        for (int64_t k = 0; k < n; k++) {
            double x = oracle_get(&r.in[0], k), t = oracle_get(&r.in[1], k), h = 1e-5;
            double by_x = (s->k->f(x + h, t) - s->k->f(x - h, t)) / (2 * h);
            double by_t = (s->k->f(x, t + h) - s->k->f(x, t - h)) / (2 * h);
            total += share * s->k->f(x, t);
            op_run_near(&r, "dx", &r.din[0], k, scale * share * by_x,
                        scale * share * (1e-5 + 1e-6 * fabs(by_x)));
            op_run_near(&r, "dt", &r.din[1], k, scale * share * by_t,
                        scale * share * (1e-5 + 1e-6 * fabs(by_t)));
        }
        op_run_near(&r, "loss", &r.out, 0, total, 3e-7 * (1 + fabs(total)));
        op_run_close(&r);
    }
}

static void losses_and_gradients_match_their_definitions(void **state) {
    (void)state;
    int formats;
    const op_formats *format = op_all_formats(&formats);
    for (size_t i = 0; i < AB_COUNT_OF(losses); i++)
        for (int f = 0; f < formats; f++)
            for (int sum = 0; sum < 2; sum++) {
                op_formats wide = format[f];
                wide.result = &ab_format_fp32;
                run_spec s = {&losses[i], sum ? format[f] : wide, sum, sum ? 0.25 : 1};
                op_each_lane_count(run_loss, &s);
            }
}

/* x, t, loss and gradient by torch 2.11 (CPU, float32): where exponentials and logarithms end. */
static void extremes_are_torchs(void **state) {
    (void)state;
    const struct {
        const ab_op *op;
        double x, t, loss, gradient;
    } rows[] = {
        {&ab_op_bce, 1, 0, 100, 1e12},
        {&ab_op_bce, 0, 1, 100, -1e12},
        {&ab_op_bce, 1, 1, 0, 0},
        {&ab_op_bce_with_logits, 1e4, 0, 1e4, 1},
        {&ab_op_bce_with_logits, -1e4, 0, 0, 0},
        {&ab_op_bce_with_logits, -1e4, 1, 1e4, -1},
        {&ab_op_bce_with_logits, 0, 0.5, 0.69314718055994529, 0},
        {&ab_op_mse, 1e20, 0, (double)INFINITY, 2e20},
    };
    for (size_t i = 0; i < AB_COUNT_OF(rows); i++) {
        ab_shape in[] = {{1, {1}}, {1, {1}}};
        op_attrs attrs = op_attrs_default(rows[i].op);
        ab_exec exec = {.training = true};
        op_run r;
        op_run_open(&r, rows[i].op, &attrs, in, 2, (op_formats){&ab_format_fp32, &ab_format_fp32, NULL},
                    &exec);
        oracle_put(&r.in[0], 0, rows[i].x);
        oracle_put(&r.in[1], 0, rows[i].t);
        oracle_put(&r.dout, 0, 1);
        assert_int_equal(op_run_prepare(&r), AB_OK);
        op_run_both(&r);
        op_run_near(&r, "loss", &r.out, 0, rows[i].loss, isinf(rows[i].loss) ? 1 : 1e-6 * fabs(rows[i].loss));
        op_run_near(&r, "dx", &r.din[0], 0, rows[i].gradient, 1e-6 * fabs(rows[i].gradient));
        op_run_close(&r);
    }
}

static void bits_do_not_depend_on_the_lanes(void **state) {
    (void)state;
    ab_shape in[] = {{2, {300, 1001}}, {2, {300, 1001}}};
    op_attrs attrs = op_attrs_default(&ab_op_mse);
    ab_exec exec = {.training = true};
    op_run r[3];
    for (int threads = 3; threads >= 1; threads--) {
        assert_int_equal(ab_parallel_start(threads), AB_OK);
        op_run_open(&r[threads - 1], &ab_op_mse, &attrs, in, 2,
                    (op_formats){&ab_format_fp32, &ab_format_fp32, NULL}, &exec);
        op_run_fill_all(&r[threads - 1], 3);
        assert_int_equal(op_run_prepare(&r[threads - 1]), AB_OK);
        op_run_both(&r[threads - 1]);
    }
    for (int k = 1; k < 3; k++) op_run_same_results(&r[0], &r[k]);
    for (int k = 0; k < 3; k++) op_run_close(&r[k]);
}

static void shapes_must_agree(void **state) {
    (void)state;
    ab_shape in[] = {{2, {3, 4}}, {2, {3, 1}}}, out;
    op_attrs attrs = op_attrs_default(&ab_op_mse);
    assert_int_equal(ab_op_mse.infer(&attrs, in, 2, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(),
                           "mse expects an input and a target of one shape, found [3, 4] and [3, 1]"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_gradients_match_their_definitions),
        cmocka_unit_test(extremes_are_torchs),
        cmocka_unit_test(bits_do_not_depend_on_the_lanes),
        cmocka_unit_test(shapes_must_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
