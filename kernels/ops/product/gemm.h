/* One fp32 matrix product on the calling thread, for ops with many small products (attention, recurrences).
 *
 * Internal to kernels/. Row-major with row strides; nothing is packed. Uses oneDNN if built in and allowed by
 * the path, else portable loops; half accumulation always uses the loops. */
#ifndef AB_KERNELS_OPS_PRODUCT_GEMM_H
#define AB_KERNELS_OPS_PRODUCT_GEMM_H

#include "kernels/ops/op.h"

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
} ab_gemm;

/* `half`: format to which every product and partial sum is rounded, or NULL (op.h, accumulate_half). */
void ab_gemm_run(const ab_gemm *gemm, ab_cpu_path path, const ab_format *half);

/* "oneDNN sgemm", "reference", "reference, half accumulation". */
const char *ab_gemm_text(ab_cpu_path path, const ab_format *half);

AB_END_DECLS

#endif
