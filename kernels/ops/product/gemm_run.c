/* Selects and, without the library, computes a matrix product; see gemm.h. */
#include "kernels/ops/product/gemm.h"

#include "kernels/format/convert.h"
#include "kernels/ops/blocks.h"
#include "kernels/ops/product/dnnl_shim.h"
#include "kernels/ops/product/nonfinite.h"
#include "kernels/vec/isa.h"

AB_BY_ISA(ab_vec_gemm, ab_vec_gemm)

enum { PART_ROWS = 16, PART_COLUMNS = 128 };
enum { TILE = 256 }; /* columns per tile: large enough for vectorised rounding, small enough for the stack */

static float element(const float *m, bool transposed, int64_t step, int64_t row, int64_t column) {
    return transposed ? m[column * step + row] : m[row * step + column];
}

static void round_to(const ab_format *half, float *values, int64_t n) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    if (half) ab_round_array(values, half, &nearest, n);
}

/* term[j] = x * b[k, first + j] */
static void scale_row(const ab_gemm *g, float x, int64_t k, int64_t first, int64_t n, float *term) {
    const float *b = g->transpose_b ? g->b + first * g->ldb + k : g->b + k * g->ldb + first;
    const int64_t step = g->transpose_b ? g->ldb : 1;
    for (int64_t j = 0; j < n; j++) term[j] = x * b[j * step];
}

/* n columns of a row; each sum runs over k in order, rounding each product and partial sum. */
static void run_tile(const ab_gemm *g, const ab_format *half, int64_t row, int64_t first, int64_t n) {
    float sum[TILE] = {0}, term[TILE], *c = &g->c[row * g->ldc + first];
    for (int64_t k = 0; k < g->inner; k++) {
        scale_row(g, element(g->a, g->transpose_a, g->lda, row, k), k, first, n, term);
        round_to(half, term, n);
        for (int64_t j = 0; j < n; j++) sum[j] += term[j];
        round_to(half, sum, n);
    }
    for (int64_t j = 0; j < n; j++) sum[j] *= g->alpha;
    round_to(half, sum, n);
    if (g->beta != 0.0f) {
        for (int64_t j = 0; j < n; j++) sum[j] += g->beta * c[j];
        round_to(half, sum, n);
    }
    for (int64_t j = 0; j < n; j++) c[j] = sum[j];
}

static void run_portable(const ab_gemm *g, const ab_format *half) {
    for (int64_t row = 0; row < g->rows; row++)
        for (int64_t first = 0; first < g->columns; first += TILE) {
            const int64_t left = g->columns - first;
            run_tile(g, half, row, first, left < TILE ? left : TILE);
        }
}

/* ---- the library's product ------------------------------------------------------------------- */

static bool matrix_finite(const float *m, int64_t rows, int64_t columns, int64_t step) {
    if (step == columns) return ab_values_finite(m, &ab_format_fp32, rows * columns);
    for (int64_t row = 0; row < rows; row++)
        if (!ab_values_finite(m + row * step, &ab_format_fp32, columns)) return false;
    return true;
}

static bool operands_finite(const ab_gemm *g) {
    const bool ta = g->transpose_a, tb = g->transpose_b;
    return matrix_finite(g->a, ta ? g->inner : g->rows, ta ? g->rows : g->inner, g->lda) &&
           matrix_finite(g->b, tb ? g->columns : g->inner, tb ? g->inner : g->columns, g->ldb) &&
           (g->beta == 0.0f || matrix_finite(g->c, g->rows, g->columns, g->ldc));
}

/* The sub-product that gives c[row..][column..], without the previous value of c. */
static ab_gemm part_of(const ab_gemm *g, int64_t row, int64_t column, float *c) {
    ab_gemm part = *g;
    part.rows = ab_min64(PART_ROWS, g->rows - row);
    part.columns = ab_min64(PART_COLUMNS, g->columns - column);
    part.a += g->transpose_a ? row : row * g->lda;
    part.b += g->transpose_b ? column * g->ldb : column;
    part.beta = 0.0f;
    part.c = c;
    part.ldc = PART_COLUMNS;
    return part;
}

/* Checks in tiles before adding to the previous value of c. */
static bool add_checked(const ab_gemm *g) {
    float sum[PART_ROWS * PART_COLUMNS];
    for (int64_t row = 0; row < g->rows; row += PART_ROWS)
        for (int64_t column = 0; column < g->columns; column += PART_COLUMNS) {
            const ab_gemm part = part_of(g, row, column, sum);
            if (!ab_dnnl_gemm(&part)) return false;
            ab_repair_gemm(&part);
            for (int64_t i = 0; i < part.rows; i++)
                for (int64_t j = 0; j < part.columns; j++) {
                    float *c = &g->c[(row + i) * g->ldc + column + j];
                    *c = sum[i * PART_COLUMNS + j] + g->beta * *c;
                }
        }
    return true;
}

/* Returns false, and writes nothing, if the library does not support the product. */
static bool run_library(const ab_gemm *g) {
    if (!ab_dnnl_usable()) return false;
    const bool finite = operands_finite(g);
    if (!finite && g->beta != 0.0f) return add_checked(g);
    if (!ab_dnnl_gemm(g)) return false;
    if (!finite) ab_repair_gemm(g);
    return true;
}

/* ---- our own, of operands that lie in cache --------------------------------------------------- */

/* Operands of which the library's packing and the search for infinities in them take longer than they save.
 */
static bool is_small(const ab_gemm *g) {
    enum { SIDE = 256, ROWS = 1024 };
    return g->columns <= SIDE && g->inner <= SIDE && g->rows <= ROWS;
}

static void run_own(const ab_gemm *g) {
    const ab_vec_product product = {.a = g->a,
                                    .b = g->b,
                                    .c = g->c,
                                    .a_row = g->transpose_a ? 1 : g->lda,
                                    .a_inner = g->transpose_a ? g->lda : 1,
                                    .b_inner = g->transpose_b ? 1 : g->ldb,
                                    .b_column = g->transpose_b ? g->ldb : 1,
                                    .c_row = g->ldc,
                                    .rows = g->rows,
                                    .columns = g->columns,
                                    .inner = g->inner,
                                    .alpha = g->alpha,
                                    .beta = g->beta,
                                    .triangle = g->triangle,
                                    .diagonal = g->diagonal};
    ab_vec_gemm_get()->multiply(&product);
}

/* ---- choice ---------------------------------------------------------------------------------- */

void ab_gemm_run(const ab_gemm *gemm, ab_cpu_path path, const ab_format *half) {
    if (half || path == AB_PATH_REFERENCE)
        run_portable(gemm, half);
    else if (is_small(gemm))
        run_own(gemm);
    else if (!run_library(gemm))
        run_portable(gemm, NULL);
}

const char *ab_gemm_text(const ab_gemm *gemm, ab_cpu_path path, const ab_format *half, bool converts) {
    static const char *const loops[] = {"reference", "convert+reference"},
                             *const rounded[] = {"reference, half accumulation",
                                                 "convert+reference, half accumulation"},
                             *const library[] = {"oneDNN sgemm", "convert+oneDNN sgemm"},
                             *const own[][2] = {{"own:plain", "convert+own:plain"},
                                                {"own:avx2", "convert+own:avx2"},
                                                {"own:avx512", "convert+own:avx512"}};
    if (half) return rounded[converts];
    if (path == AB_PATH_REFERENCE) return loops[converts];
    if (is_small(gemm)) return own[ab_isa_get() < AB_ISA_AVX512 ? ab_isa_get() : AB_ISA_AVX512][converts];
    return ab_dnnl_usable() ? library[converts] : loops[converts];
}
