/* One fp32 matrix product on the calling thread, for ops that make many small ones (attention, recurrences).
 *
 * Internal to kernels/. Row-major with row strides; no packing is kept. oneDNN's product where it is built in
 * and wanted, else portable loops; half accumulation always in the loops. */
#ifndef AB_KERNELS_OPS_PRODUCT_GEMM_H
#define AB_KERNELS_OPS_PRODUCT_GEMM_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* c [rows, columns] = alpha a [rows, inner] b [inner, columns] + beta c. A transposed operand is stored as
 * its transpose. */
typedef struct ab_gemm {
    bool transpose_a, transpose_b;
    int64_t rows, columns, inner;
    float alpha, beta;
    const float *a;
    int64_t lda; /* elements from one stored row to the next */
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
} ab_gemm;

/* `half`: the format that every product and partial sum is rounded to, or NULL (op.h, accumulate_half). */
void ab_gemm_run(const ab_gemm *gemm, ab_cpu_path path, const ab_format *half);

/* "oneDNN sgemm", "reference", "reference, half accumulation". */
const char *ab_gemm_text(ab_cpu_path path, const ab_format *half);

AB_END_DECLS

#endif
