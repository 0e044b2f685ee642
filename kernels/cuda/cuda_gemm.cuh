// Matrix products on CUDA for every op: through cuBLASLt where it has one, else by our own tiles, which do
// every shape, format and kind of broadcasting. fp32 sums, one rounding. Internal to the plugin.
#ifndef AB_KERNELS_CUDA_CUDA_GEMM_CUH
#define AB_KERNELS_CUDA_CUDA_GEMM_CUH

#include "kernels/cuda/cuda_ops.cuh"

// c [rows, columns] = alpha op(a) op(b) + beta c for `batch` items, row-major; a transposed operand is stored
// as its transpose. Steps are elements from one item to the next. Operands have one type, the result one of
// its own.
struct ab_cuda_gemm {
    bool transpose_a, transpose_b;
    int64_t rows, columns, inner, lda, ldb, ldc;
    int64_t batch, step_a, step_b, step_c;
    int type, type_c; // ab_element_type
    bool tf32, bias;  // bias: one number a column, of the result's type, added before the rounding
};

// Dense operands, one item.
ab_cuda_gemm ab_cuda_gemm_of(int64_t rows, int64_t columns, int64_t inner, int type);

// What the library chose for a shape. Algorithms are asked for once a shape and process.
struct ab_cuda_gemm_plan {
    ab_cuda_gemm shape;
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    char text[80];
};

// *plan stays null if the library has nothing for the shape.
ab_status ab_cuda_gemm_make(const ab_cuda_gemm *shape, ab_cuda_gemm_plan **plan);
void ab_cuda_gemm_destroy(ab_cuda_gemm_plan *plan); // null is a no-op
ab_status ab_cuda_gemm_run(ab_cuda_gemm_plan *plan, const void *a, const void *b, void *c, float alpha,
                           float beta, const void *bias, void *workspace);

// By our own tiles. Item i of the result is the sum over j of products: where the operands lie is said by
// views of i and of j, in elements. Any element types.
struct ab_cuda_tiles {
    ab_span a, b, c;
    int64_t rows, columns, inner;
    int64_t a_row, a_inner, b_inner, b_column, c_row; // steps
    int64_t items, sums;
    ab_strided a_item, b_item, c_item, a_sum, b_sum;
    float alpha, beta;
};

// c = alpha op(a) op(b) + beta c by our own tiles: set up, then run on the plugin's stream.
ab_cuda_tiles ab_cuda_tiles_of(const ab_cuda_gemm *shape, ab_span a, ab_span b, ab_span c, float alpha,
                               float beta);
ab_status ab_cuda_tiles_run(const ab_cuda_tiles *tiles);

// By the library if there is a plan, else by tiles.
ab_status ab_cuda_multiply(ab_cuda_gemm_plan *plan, const ab_cuda_gemm *shape, void *a, void *b, void *c,
                           float alpha, float beta, void *workspace);

#endif
