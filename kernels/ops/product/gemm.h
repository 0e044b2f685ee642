/* One fp32 matrix product on the calling thread, for ops with many small products (attention, recurrences).
 *
 * Internal to kernels/. Row-major with row strides. Small products are our own vector code; larger ones use
 * oneDNN if built in, else portable loops. The path "reference" and half accumulation always use the loops.
 */
#ifndef AB_KERNELS_OPS_PRODUCT_GEMM_H
#define AB_KERNELS_OPS_PRODUCT_GEMM_H

#include "kernels/ops/op.h"
#include "kernels/vec/vec_gemm.h"

AB_BEGIN_DECLS

/* c [rows, columns] = alpha a [rows, inner] b [inner, columns] + beta c. A transposed operand is stored
 * transposed. */
typedef struct ab_gemm {
    bool transpose_a, transpose_b;
    int64_t rows, columns, inner;
    float alpha, beta;
    const float *a;
    int64_t lda; /* row stride in elements */
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    ab_triangle triangle; /* vec_gemm.h; only our own vector code leaves anything out */
    int64_t diagonal;
} ab_gemm;

/* `half`: format to which every product and partial sum is rounded, or NULL (op.h, accumulate_half). */
void ab_gemm_run(const ab_gemm *gemm, ab_cpu_path path, const ab_format *half);

/* Who computes it, a constant text: "own:avx512", "oneDNN sgemm", "reference", "reference, half
 * accumulation"; each after "convert+" if operands or result are converted. Reads only the sizes of the
 * product. */
const char *ab_gemm_text(const ab_gemm *gemm, ab_cpu_path path, const ab_format *half, bool converts);

AB_END_DECLS

#endif
