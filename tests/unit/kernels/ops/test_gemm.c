/* Our own small matrix products against sums in double, at every CPU level: shapes that leave parts of tiles,
 * strips and blocks, transposed operands, strides, sums that are added to, infinities and NaNs. */
#include "oracle/op_run.h"

#include "kernels/ops/product/gemm.h"
#include "kernels/vec/isa.h"

enum { SIDE = 256, ROOM = 260, VALUES = ROOM * ROOM };

static float values_a[VALUES], values_b[VALUES], before[VALUES], made[VALUES], same[VALUES];

/* rows, columns, inner */
static const int64_t sizes[][3] = {
    {1, 1, 1},     {6, 64, 128},  {7, 65, 129}, {64, 64, 32}, {65, 65, 64},  {64, 32, 64},      {5, 17, 3},
    {13, 15, 256}, {3, 256, 200}, {256, 33, 7}, {12, 8, 130}, {66, 130, 65}, {SIDE, SIDE, SIDE}};

static void fill_operands(void) {
    for (int64_t i = 0; i < VALUES; i++) {
        values_a[i] = (float)oracle_random(1, i);
        values_b[i] = (float)oracle_random(2, i);
        before[i] = (float)oracle_random(3, i);
    }
}

/* variant: bits for transposed operands and for beta */
static ab_gemm product_of(const int64_t size[3], int variant) {
    return (ab_gemm){.transpose_a = variant & 1,
                     .transpose_b = variant & 2,
                     .rows = size[0],
                     .columns = size[1],
                     .inner = size[2],
                     .alpha = 0.75f,
                     .beta = variant & 4 ? 1.0f : 0.0f,
                     .a = values_a,
                     .lda = ROOM,
                     .b = values_b,
                     .ldb = ROOM,
                     .c = made,
                     .ldc = ROOM};
}

static double exact(const ab_gemm *g, int64_t row, int64_t column) {
    double sum = 0.0;
    for (int64_t k = 0; k < g->inner; k++)
        sum += (double)g->a[g->transpose_a ? k * ROOM + row : row * ROOM + k] *
               (double)g->b[g->transpose_b ? column * ROOM + k : k * ROOM + column];
    return (double)g->alpha * sum +
           (g->beta != 0.0f ? (double)g->beta * (double)before[row * ROOM + column] : 0.0);
}

static void run_at(const ab_gemm *g, ab_isa isa) {
    assert_int_equal(ab_isa_force(isa), AB_OK);
    memcpy(g->c, before, sizeof before);
    ab_gemm_run(g, AB_PATH_AUTO, NULL);
    assert_int_equal(ab_isa_force(ab_isa_best()), AB_OK);
}

static void check(const ab_gemm *g) {
    for (int64_t row = 0; row < ROOM; row++)
        for (int64_t column = 0; column < ROOM; column++) {
            const float *c = &g->c[row * ROOM + column];
            if (row >= g->rows || column >= g->columns) { /* nothing is written beside the product */
                assert_true(*c == before[row * ROOM + column]);
                continue;
            }
            const double wanted = exact(g, row, column);
            if (isfinite(wanted) ? fabs((double)*c - wanted) > 2e-5
                                 : isfinite(*c) || isnan(*c) != isnan(wanted))
                fail_msg("c[%lld, %lld] is %g, expected %g", (long long)row, (long long)column, (double)*c,
                         wanted);
        }
}

static void products_of_all_shapes_are_right_at_every_level(void **state) {
    (void)state;
    fill_operands();
    for (size_t k = 0; k < AB_COUNT_OF(sizes); k++)
        for (int variant = 0; variant < 8; variant++) {
            const ab_gemm g = product_of(sizes[k], variant);
            assert_non_null(strstr(ab_gemm_text(&g, AB_PATH_AUTO, NULL, false), "own:"));
            for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best() && isa <= AB_ISA_AVX512; isa++) {
                run_at(&g, (ab_isa)isa);
                if (k + 1 < AB_COUNT_OF(sizes) || variant == 7) check(&g); /* the large one takes long */
            }
        }
}

static void vector_width_and_shape_do_not_change_bits(void **state) {
    (void)state;
    if (ab_isa_best() < AB_ISA_AVX512) skip();
    fill_operands();
    for (int variant = 0; variant < 8; variant++) {
        ab_gemm g = product_of((const int64_t[]){66, 130, 200}, variant);
        run_at(&g, AB_ISA_AVX512);
        g.c = same;
        run_at(&g, AB_ISA_AVX2);
        assert_memory_equal(made, same, sizeof made);
        g.rows = 5; /* the first rows and columns alone */
        g.columns = 19;
        run_at(&g, AB_ISA_AVX512);
        for (int64_t row = 0; row < g.rows; row++)
            assert_memory_equal(&made[row * ROOM], &same[row * ROOM], (size_t)g.columns * sizeof *same);
    }
}

/* a with zeros where the triangle says so, which need not be added, or c of which a part is wanted. */
static void a_triangle_leaves_out_what_is_zero_or_not_wanted(void **state) {
    (void)state;
    static const int64_t diagonals[] = {0, 5, 40}, shapes[][3] = {{7, 65, 129}, {65, 65, 64}, {13, 15, 256}};
    static const ab_triangle triangles[] = {AB_TRIANGLE_C, AB_TRIANGLE_A_BELOW, AB_TRIANGLE_A_ABOVE};
    for (size_t k = 0; k < AB_COUNT_OF(shapes); k++)
        for (int variant = 0; variant < 8; variant++)
            for (size_t t = 0; t < AB_COUNT_OF(triangles) * AB_COUNT_OF(diagonals); t++) {
                ab_gemm g = product_of(shapes[k], variant);
                g.triangle = triangles[t % AB_COUNT_OF(triangles)];
                g.diagonal = diagonals[t / AB_COUNT_OF(triangles)];
                fill_operands();
                for (int64_t i = 0; i < g.rows; i++)
                    for (int64_t j = 0; j < g.inner; j++)
                        if ((g.triangle == AB_TRIANGLE_A_BELOW && j > i + g.diagonal) ||
                            (g.triangle == AB_TRIANGLE_A_ABOVE && i > j + g.diagonal))
                            values_a[g.transpose_a ? j * ROOM + i : i * ROOM + j] = 0.0f;
                for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best() && isa <= AB_ISA_AVX512; isa++) {
                    run_at(&g, (ab_isa)isa);
                    for (int64_t i = 0; i < g.rows && g.triangle == AB_TRIANGLE_C; i++)
                        for (int64_t j = i + g.diagonal + 1; j < g.columns; j++)
                            made[i * ROOM + j] = (float)exact(&g, i, j); /* unwanted */
                    check(&g);
                }
            }
}

/* Products that a triangle leaves out are added nowhere, whatever the tile: an infinity times zero is none.
 */
static void a_triangle_leaves_out_the_same_products_at_every_level(void **state) {
    (void)state;
    static const int64_t size[] = {45, 40, 45};
    for (int above = 0; above < 2; above++)
        for (int variant = 0; variant < 4; variant++)
            for (int isa = AB_ISA_PLAIN; isa <= AB_ISA_AVX512; isa++) {
                ab_gemm g = product_of(size, variant);
                if (ab_isa_force((ab_isa)isa) != AB_OK) continue;
                fill_operands();
                g.triangle = above ? AB_TRIANGLE_A_ABOVE : AB_TRIANGLE_A_BELOW;
                g.diagonal = 3;
                for (int64_t i = 0; i < g.rows; i++)
                    for (int64_t k = 0; k < g.inner; k++)
                        if (above ? i > k + g.diagonal : k > i + g.diagonal)
                            values_a[g.transpose_a ? k * ROOM + i : i * ROOM + k] = 0.0f;
                const int64_t k = 20;
                for (int64_t j = 0; j < g.columns; j++)
                    values_b[g.transpose_b ? j * ROOM + k : k * ROOM + j] = INFINITY;
                run_at(&g, (ab_isa)isa);
                for (int64_t i = 0; i < g.rows; i++)
                    for (int64_t j = 0; j < g.columns; j++)
                        assert_int_equal(!isfinite(made[i * ROOM + j]),
                                         above ? i <= k + g.diagonal : k <= i + g.diagonal);
            }
    fill_operands();
}

static void infinities_and_nans_go_where_arithmetic_puts_them(void **state) {
    (void)state;
    for (int k = 0; k < 16; k++) {
        fill_operands();
        values_a[(k & 8 ? 3 : 2) * ROOM + 3] = k & 8 ? NAN : -INFINITY;
        values_b[4 * ROOM + 5] = k & 8 ? INFINITY : 0.0f;
        before[6 * ROOM + 7] = INFINITY;
        values_b[3 * ROOM + 9] = 0.0f; /* times infinity */
        const ab_gemm g = product_of((const int64_t[]){37, 70, 40}, k & 7);
        for (int isa = AB_ISA_PLAIN; isa <= (int)ab_isa_best() && isa <= AB_ISA_AVX512; isa++) {
            run_at(&g, (ab_isa)isa);
            check(&g);
        }
    }
}

static void an_old_result_that_is_not_added_is_not_read(void **state) {
    (void)state;
    fill_operands();
    for (int64_t i = 0; i < VALUES; i++) before[i] = NAN;
    const ab_gemm g = product_of((const int64_t[]){9, 40, 140}, 0);
    run_at(&g, ab_isa_best());
    for (int64_t row = 0; row < g.rows; row++)
        for (int64_t column = 0; column < g.columns; column++)
            assert_true(isfinite(made[row * ROOM + column]));
}

static void large_products_name_the_library(void **state) {
    (void)state;
    const ab_gemm g = product_of((const int64_t[]){8, SIDE + 1, 8}, 0);
    const char *text = ab_gemm_text(&g, AB_PATH_AUTO, NULL, true);
    assert_true(strcmp(text, "convert+oneDNN sgemm") == 0 || strcmp(text, "convert+reference") == 0);
    assert_string_equal(ab_gemm_text(&g, AB_PATH_REFERENCE, NULL, false), "reference");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_all_shapes_are_right_at_every_level),
        cmocka_unit_test(vector_width_and_shape_do_not_change_bits),
        cmocka_unit_test(a_triangle_leaves_out_what_is_zero_or_not_wanted),
        cmocka_unit_test(a_triangle_leaves_out_the_same_products_at_every_level),
        cmocka_unit_test(infinities_and_nans_go_where_arithmetic_puts_them),
        cmocka_unit_test(an_old_result_that_is_not_added_is_not_read),
        cmocka_unit_test(large_products_name_the_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
