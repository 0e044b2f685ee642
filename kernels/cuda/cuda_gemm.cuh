// Matrix products on CUDA for all ops: cuBLASLt where supported, else our own tiled kernel, which supports
// every shape, format and broadcast. fp32 accumulation, one rounding. Internal to the plugin.
#ifndef AB_KERNELS_CUDA_CUDA_GEMM_CUH
#define AB_KERNELS_CUDA_CUDA_GEMM_CUH

#include "kernels/cuda/cuda_ops.cuh"

enum { AB_CUDA_GEMM_CHOICES = 4 }; // algorithms asked of the library for a shape, at most

// c [rows, columns] = alpha op(a) op(b) + beta c for `batch` items, row-major; a transposed operand is stored
// as its transpose. Steps are strides between items, in elements. Both operands have the same type; the
// result type may differ.
struct ab_cuda_gemm {
    bool transpose_a, transpose_b;
    int64_t rows, columns, inner, lda, ldb, ldc;
    int64_t batch, step_a, step_b, step_c;
    int type, type_c; // ab_element_type
    bool tf32, bias;  // bias: one value per column, in the result's type, added before rounding
    bool relu;        // of the result, before rounding
    int choice;       // which of the library's algorithms for the shape: 0 is its first
};

// A product of dense operands, one item.
ab_cuda_gemm ab_cuda_gemm_of(int64_t rows, int64_t columns, int64_t inner, int type);

// The library's algorithm for a shape. The heuristic is queried once per shape and process.
struct ab_cuda_gemm_plan {
    ab_cuda_gemm shape;
    cublasLtMatmulDesc_t matmul;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace_bytes;
    bool tf32; // the algorithm rounds operands to TF32
    char text[80];
};

// *plan stays null if the library does not support the shape, or has fewer algorithms than `choice` asks.
ab_status ab_cuda_gemm_make(const ab_cuda_gemm *shape, ab_cuda_gemm_plan **plan);
// The same product by the same algorithm, with relu; *plan stays null if the library does not support it.
ab_status ab_cuda_gemm_with_relu(const ab_cuda_gemm_plan *plain, ab_cuda_gemm_plan **plan);
void ab_cuda_gemm_destroy(ab_cuda_gemm_plan *plan); // null is a no-op
ab_status ab_cuda_gemm_run(ab_cuda_gemm_plan *plan, const void *a, const void *b, void *c, float alpha,
                           float beta, const void *bias, void *workspace);

// Name of own kernels around products by `plan` (null: own products), for the record.
static inline const char *ab_cuda_own_with(const ab_cuda_gemm_plan *plan) {
    return !plan ? "cuda:own" : plan->tf32 ? "cuda:own+cublaslt,tf32" : "cuda:own+cublaslt";
}

// Our own tiled kernel. Item i of the result is a sum of products over j; the views of i and j give the
// offsets of the operands, in elements. Any element types.
struct ab_cuda_tiles {
    ab_span a, b, c;
    int64_t rows, columns, inner;
    int64_t a_row, a_inner, b_inner, b_column, c_row; // steps
    int64_t items, sums;
    ab_strided a_item, b_item, c_item, a_sum, b_sum;
    float alpha, beta;
};

// c = alpha op(a) op(b) + beta c by the tiled kernel: setup, and run on the plugin's stream.
ab_cuda_tiles ab_cuda_tiles_of(const ab_cuda_gemm *shape, ab_span a, ab_span b, ab_span c, float alpha,
                               float beta);
ab_status ab_cuda_tiles_run(const ab_cuda_tiles *tiles);

// By the library if `plan` is not null, else by the tiled kernel.
ab_status ab_cuda_multiply(ab_cuda_gemm_plan *plan, const ab_cuda_gemm *shape, void *a, void *b, void *c,
                           float alpha, float beta, void *workspace);

#endif
