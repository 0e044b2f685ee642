// Row-wise kernels on CUDA: one block per row, sums in double in a fixed tree. Internal to the plugin.
#ifndef AB_KERNELS_CUDA_CUDA_ROWS_CUH
#define AB_KERNELS_CUDA_CUDA_ROWS_CUH

#include "kernels/cuda/cuda_fold.cuh"

enum { AB_CUDA_ROW_THREADS = 128 };

// The sum of x over the threads of a block, in double, as a fixed tree.
__device__ static inline double ab_cuda_row_sum(double x) {
    return ab_block_fold<AB_CUDA_ROW_THREADS>(ab_plus(), x);
}

// A tensor as rows of n elements, the last dimension.
struct ab_cuda_rows {
    int64_t rows, n;
};

// The rows of a shape.
static inline ab_cuda_rows ab_cuda_rows_of(const ab_shape *shape) {
    ab_cuda_rows s = {1, shape->dim[shape->ndim - 1]};
    for (int i = 0; i < shape->ndim - 1; i++) s.rows *= shape->dim[i];
    return s;
}

// Blocks to launch: one per row, as many as a grid takes.
static inline unsigned ab_cuda_row_blocks(const ab_cuda_rows &s) {
    return static_cast<unsigned>(s.rows < 65535 ? s.rows : 65535);
}

#endif
