/* Sums of several rows at once against those of row by row, bit for bit, at every CPU level. */
#include "oracle/op_run.h"

#include "kernels/ops/norm/vec_norm_rows.h"
#include "kernels/vec/isa.h"
#include "kernels/vec/vec_math.h"

AB_BY_ISA(ab_vec_norm_rows, ab_vec_norm_rows)

enum { MOST = 2064, ROWS = AB_NORM_ROWS };

static const int64_t lengths[] = {16, 32, 128, 1024, 1040, MOST};
static float values[ROWS * MOST], other[MOST], factor[MOST];

/* special: of one row, an infinity or a NaN. */
static void fill(float special) {
    for (int64_t i = 0; i < ROWS * MOST; i++) values[i] = (float)(oracle_random(1, i) + 0.3);
    for (int64_t i = 0; i < MOST; i++) {
        other[i] = (float)oracle_random(2, i);
        factor[i] = (float)oracle_random(3, i);
    }
    if (special != 0.0f) values[7] = other[9] = special;
}

static void check_statistics(int64_t n) {
    float mean[ROWS], rstd[ROWS], one, squares;
    ab_vec_norm_rows_get()->statistics(values, n, 1e-5, mean, rstd);
    for (int r = 0; r < ROWS; r++) {
        ab_vec_math_get()->row_moments(values + r * n, n, &one, &squares);
        const float expected = (float)(1.0 / sqrt((double)squares / (double)n + 1e-5));
        if (isnan(one) && isnan(mean[r]) && isnan(expected) && isnan(rstd[r])) continue;
        assert_memory_equal(&mean[r], &one, sizeof one);
        if (!isnan(expected) || !isnan(rstd[r])) assert_memory_equal(&rstd[r], &expected, sizeof expected);
    }
}

static void check_gradient_sums(int64_t n) {
    static float of_weight[2][MOST], of_bias[2][MOST];
    const ab_row_norm norm = {0.3f, 1.7f};
    double sum[2][2];
    for (int k = 0; k < 2; k++)
        for (int64_t i = 0; i < n; i++) of_weight[k][i] = of_bias[k][i] = factor[n - 1 - i];
    ab_vec_norm_rows_get()->gradient_sums(other, values, &norm, factor, of_weight[0], of_bias[0], sum[0], n);
    ab_vec_math_get()->row_gradient_sums(other, values, &norm, factor, of_weight[1], of_bias[1], sum[1], n);
    for (int64_t i = 0; i < n; i++)
        if (!isnan(of_weight[0][i]) || !isnan(of_weight[1][i])) {
            assert_memory_equal(&of_weight[0][i], &of_weight[1][i], sizeof(float));
            assert_memory_equal(&of_bias[0][i], &of_bias[1][i], sizeof(float));
        }
    for (int i = 0; i < 2; i++)
        if (!isnan(sum[0][i]) || !isnan(sum[1][i]))
            assert_memory_equal(&sum[0][i], &sum[1][i], sizeof(double));
}

static void sums_are_those_of_row_by_row(void **state) {
    (void)state;
    const float specials[] = {0.0f, INFINITY, NAN};
    for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best() && isa <= AB_ISA_AVX512; isa++) {
        assert_int_equal(ab_isa_force((ab_isa)isa), AB_OK);
        for (size_t s = 0; s < AB_COUNT_OF(specials); s++)
            for (size_t k = 0; k < AB_COUNT_OF(lengths); k++) {
                fill(specials[s]);
                check_statistics(lengths[k]);
                check_gradient_sums(lengths[k]);
            }
    }
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sums_are_those_of_row_by_row)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
