/* group_norm and upsample against their definitions in double, with derivatives by differences. */
#include "oracle/op_run.h"

#include "oracle/jacobian.h"

typedef struct image_case {
    int64_t n, h, w, c, groups, up_h, up_w;
    bool affine;
    double eps, offset;
} image_case;

static const image_case cases[] = {
    {2, 3, 2, 6, 3, 2, 2, true, 1e-5, 0.0},
    {1, 3, 1, 4, 2, 1, 3, true, 1e-5, 0.0},
    {2, 2, 3, 4, 1, 3, 1, false, 1e-3, 2.0},
    {1, 4, 4, 5, 5, 2, 3, true, 1e-5, -1.0},
};

static void normalise_group(const image_case *k, double *const *x, double *out, int64_t n, int64_t g) {
    int64_t width = k->c / k->groups, pixels = k->h * k->w;
    double mean = 0.0, var = 0.0, count = (double)(width * pixels);
    for (int pass = 0; pass < 3; pass++)
        for (int64_t p = 0; p < pixels; p++)
            for (int64_t c = g * width; c < (g + 1) * width; c++) {
                int64_t at = (n * pixels + p) * k->c + c;
                if (pass == 0) mean += x[0][at] / count;
                if (pass == 1) var += (x[0][at] - mean) * (x[0][at] - mean) / count;
                if (pass == 2) out[at] = (x[0][at] - mean) / sqrt(var + k->eps);
                if (pass == 2 && k->affine) out[at] = out[at] * x[1][c] + x[2][c];
            }
}

static void normalise(const void *self, double *const *x, double *out) {
    const image_case *k = self;
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t g = 0; g < k->groups; g++) normalise_group(k, x, out, n, g);
}

static void open_norm(op_run *r, const void *self, op_formats formats) {
    const image_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    ab_shape in = {.ndim = 4, .dim = {k->n, k->h, k->w, k->c}};
    attrs = op_attrs_default(&ab_op_group_norm);
    op_attrs_set(&ab_op_group_norm, &attrs, "num_groups", (double)k->groups, 0);
    op_attrs_set(&ab_op_group_norm, &attrs, "affine", k->affine, 0);
    op_attrs_set(&ab_op_group_norm, &attrs, "eps", k->eps, 0);
    op_run_open(r, &ab_op_group_norm, &attrs, &in, 1, formats, &exec);
    op_run_fill_all(r, 51);
    for (int64_t i = 0; i < ab_tensor_count(&r->in[0]); i++)
        oracle_put(&r->in[0], i, k->offset + oracle_random(7, i));
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void check_norm(const op_run *r, const void *self) {
    oracle_jacobian o = oracle_jacobian_open(r, normalise, self);
    oracle_jacobian_check_out(r, &o, 20.0);
    oracle_jacobian_check_gradients(r, &o, 60.0);
    oracle_jacobian_close(&o);
}

static void groups_are_normalised_and_differentiated(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        oracle_run_all((oracle_run){.open = open_norm, .check = check_norm, .self = &cases[k]});
}

/* Several blocks of pixels with a mean that moves from block to block. */
static void check_large(const op_run *r, const void *self) {
    const image_case *k = self;
    double *x[] = {oracle_values(&r->in[0]), oracle_values(&r->param[0]), oracle_values(&r->param[1])};
    double *y = oracle_doubles(ab_tensor_count(&r->out)), *plain = oracle_doubles(ab_tensor_count(&r->out));
    oracle_sums dweight = oracle_sums_open(k->c), dbias = oracle_sums_open(k->c);
    image_case bare = *k;
    bare.affine = false;
    normalise(k, x, y);
    normalise(&bare, x, plain);
    for (int64_t i = 0; i < ab_tensor_count(&r->out); i++) {
        double dy = oracle_get(&r->dout, i);
        op_run_near(r, "out", &r->out, i, y[i], 200.0 * ORACLE_U32 * (1.0 + fabs(y[i])));
        oracle_add(dweight, i % k->c, dy * plain[i]);
        oracle_add(dbias, i % k->c, dy);
    }
    oracle_sums_check(r, "dweight", &r->dparam[0], dweight, 400);
    oracle_sums_check(r, "dbias", &r->dparam[1], dbias, 400);
    for (int i = 0; i < 3; i++) free(x[i]);
    free(y);
    free(plain);
    oracle_sums_close(&dweight);
    oracle_sums_close(&dbias);
}

static void open_large(op_run *r, const void *self, op_formats formats) {
    open_norm(r, self, formats);
    int64_t count = ab_tensor_count(&r->in[0]);
    for (int64_t i = 0; i < count; i++)
        oracle_put(&r->in[0], i, oracle_random(7, i) + 9.0 * (double)i / (double)count);
}

static void blocks_of_a_large_image_are_joined_exactly(void **state) {
    (void)state;
    static const image_case large = {3, 20, 21, 24, 4, 1, 1, true, 1e-5, 0.0};
    oracle_run_all((oracle_run){.open = open_large, .check = check_large, .self = &large});
}

/* ---- upsample -------------------------------------------------------------------------------- */

static void open_upsample(op_run *r, const void *self, op_formats formats) {
    const image_case *k = self;
    static op_attrs attrs;
    ab_exec exec = {.training = true};
    ab_shape in = {.ndim = 4, .dim = {k->n, k->h, k->w, k->c}};
    attrs = op_attrs_default(&ab_op_upsample);
    op_attrs_set(&ab_op_upsample, &attrs, "scale_factor", (double)k->up_h, (double)k->up_w);
    op_run_open(r, &ab_op_upsample, &attrs, &in, 1, formats, &exec);
    op_run_fill_all(r, 52);
    assert_int_equal(op_run_prepare(r), AB_OK);
}

static void check_upsample(const op_run *r, const void *self) {
    const image_case *k = self;
    oracle_sums din = oracle_sums_open(ab_tensor_count(&r->in[0]));
    int64_t at = 0;
    for (int64_t n = 0; n < k->n; n++)
        for (int64_t y = 0; y < k->h * k->up_h; y++)
            for (int64_t x = 0; x < k->w * k->up_w; x++)
                for (int64_t c = 0; c < k->c; c++, at++) {
                    int64_t from = ((n * k->h + y / k->up_h) * k->w + x / k->up_w) * k->c + c;
                    assert_true(oracle_get(&r->out, at) == oracle_get(&r->in[0], from));
                    oracle_add(din, from, oracle_get(&r->dout, at));
                }
    oracle_sums_check(r, "din", &r->din[0], din, k->up_h * k->up_w);
    assert_int_equal(at, ab_tensor_count(&r->out));
    oracle_sums_close(&din);
}

static void pixels_are_repeated_and_their_gradients_summed(void **state) {
    (void)state;
    for (size_t k = 0; k < AB_COUNT_OF(cases); k++)
        oracle_run_all((oracle_run){.open = open_upsample, .check = check_upsample, .self = &cases[k]});
}

static void shapes_are_checked_with_a_message(void **state) {
    (void)state;
    ab_shape image = {4, {1, 2, 2, 5}}, flat = {2, {3, 4}}, out;
    op_attrs attrs = op_attrs_default(&ab_op_group_norm);
    op_attrs_set(&ab_op_group_norm, &attrs, "num_groups", 2, 0);
    assert_int_equal(ab_op_group_norm.infer(&attrs, &image, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[1, 2, 2, 5]"));
    attrs = op_attrs_default(&ab_op_upsample);
    assert_int_equal(ab_op_upsample.infer(&attrs, &flat, 1, &out), AB_CONFIG);
    assert_non_null(strstr(ab_error_message(), "[3, 4]"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_are_normalised_and_differentiated),
        cmocka_unit_test(blocks_of_a_large_image_are_joined_exactly),
        cmocka_unit_test(pixels_are_repeated_and_their_gradients_summed),
        cmocka_unit_test(shapes_are_checked_with_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
