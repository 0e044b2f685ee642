/* Choosing and, without the library, doing a matrix product; see gemm.h. */
#include "kernels/gemm.h"

#include "kernels/convert.h"
#include "kernels/dnnl_shim.h"

static float element(const float *m, bool transposed, int64_t step, int64_t row, int64_t column) {
    return transposed ? m[column * step + row] : m[row * step + column];
}

static float rounded(const ab_format *half, float x) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    if (half) ab_round_array(&x, half, &nearest, 1);
    return x;
}

static float dot(const ab_gemm *g, const ab_format *half, int64_t row, int64_t column) {
    float sum = 0.0f;
    for (int64_t k = 0; k < g->inner; k++) {
        float term =
            element(g->a, g->transpose_a, g->lda, row, k) * element(g->b, g->transpose_b, g->ldb, k, column);
        sum = half ? rounded(half, sum + rounded(half, term)) : sum + term;
    }
    return rounded(half, g->alpha * sum);
}

static void run_portable(const ab_gemm *g, const ab_format *half) {
    for (int64_t row = 0; row < g->rows; row++)
        for (int64_t column = 0; column < g->columns; column++) {
            float *c = &g->c[row * g->ldc + column], value = dot(g, half, row, column);
            *c = g->beta == 0.0f ? value : rounded(half, value + g->beta * *c);
        }
}

void ab_gemm_run(const ab_gemm *gemm, ab_cpu_path path, const ab_format *half) {
    if (half || path == AB_PATH_REFERENCE || !ab_dnnl_gemm(gemm)) run_portable(gemm, half);
}

const char *ab_gemm_text(ab_cpu_path path, const ab_format *half) {
    if (half) return "reference, half accumulation";
    return path == AB_PATH_REFERENCE || !ab_dnnl_version() ? "reference" : "oneDNN sgemm";
}
