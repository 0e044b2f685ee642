/* Choosing and, without the library, doing a matrix product; see gemm.h. */
#include "kernels/ops/product/gemm.h"

#include "kernels/format/convert.h"
#include "kernels/ops/product/dnnl_shim.h"

enum { TILE = 256 }; /* columns at once: rounding wants many values, the stack is small */

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

/* n columns of a row; every sum runs over k in turn, each product and each partial sum rounded. */
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

void ab_gemm_run(const ab_gemm *gemm, ab_cpu_path path, const ab_format *half) {
    if (half || path == AB_PATH_REFERENCE || !ab_dnnl_gemm(gemm)) run_portable(gemm, half);
}

const char *ab_gemm_text(ab_cpu_path path, const ab_format *half) {
    if (half) return "reference, half accumulation";
    return path == AB_PATH_REFERENCE || !ab_dnnl_version() ? "reference" : "oneDNN sgemm";
}
