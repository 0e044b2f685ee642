// Reductions (sum, max) on CUDA in a fixed order: tree reduction within a block, over any dimensions of a
// function of linear indices. Accumulates in double; the split of work depends only on the shape. Internal to
// the plugin.
#ifndef AB_KERNELS_CUDA_CUDA_FOLD_CUH
#define AB_KERNELS_CUDA_CUDA_FOLD_CUH

#include "kernels/cuda/cuda_ops.cuh"

#include <cmath>

struct ab_plus {
    static __host__ __device__ double start() { return 0.0; }
    __host__ __device__ double operator()(double a, double b) const { return a + b; }
};

// Maximum; NaN if any operand is NaN.
struct ab_larger {
    static __host__ __device__ double start() { return -HUGE_VAL; }
    __host__ __device__ double operator()(double a, double b) const { return a != a || a >= b ? a : b; }
};

// Reduces x over a block of THREADS (a multiple of 32) threads; every thread gets the result. All threads
// must call it.
template <int THREADS, typename O> __device__ double ab_block_fold(O op, double x) {
    __shared__ double held[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) x = op(x, __shfl_xor_sync(0xffffffffu, x, step));
    if (threadIdx.x % 32 == 0) held[threadIdx.x / 32] = x;
    __syncthreads();
    x = held[0];
    for (int warp = 1; warp < THREADS / 32; warp++) x = op(x, held[warp]);
    __syncthreads();
    return x;
}

// ---- over dimensions ----------------------------------------------------------------------------

enum { AB_FOLD_THREADS = 128, AB_FOLD_COLUMNS = 32, AB_FOLD_LANES = 8, AB_FOLD_SHORT = 32 };

enum ab_fold_method {
    AB_FOLD_ROWS,
    AB_FOLD_TILES,
    AB_FOLD_SINGLE
}; // per block: one result; 32 results; per thread: one result

struct ab_fold {
    int64_t kept, reduced, pieces; // number of results; terms per result; parts per result
    ab_strided stay, go;           // offset of result k; offset of its term j from there
    int way;
};

// x clamped to 1..most.
static inline int64_t ab_fold_clamp(int64_t x, int64_t most) { return x < 1 ? 1 : x < most ? x : most; }

// A reduction over the dimensions in `axes` (bit mask) of a shape.
static inline ab_fold ab_fold_of(const ab_shape *shape, unsigned axes) {
    ab_fold f = {};
    ab_strided whole = ab_strided_repeated(shape, shape);
    f.kept = f.reduced = f.pieces = 1;
    for (int i = 0; i < shape->ndim; i++) (axes >> i & 1u ? f.reduced : f.kept) *= shape->dim[i];
    f.stay = ab_strided_part(&whole, axes, false);
    f.go = ab_strided_part(&whole, axes, true);
    bool neighbours = f.kept > 1 && f.stay.stride[f.stay.ndim - 1] == 1;
    f.way = f.reduced <= AB_FOLD_SHORT ? AB_FOLD_SINGLE : neighbours ? AB_FOLD_TILES : AB_FOLD_ROWS;
    if (f.way == AB_FOLD_ROWS) f.pieces = ab_fold_clamp(f.reduced / 2048, ab_fold_clamp(1024 / f.kept, 1024));
    if (f.way == AB_FOLD_TILES)
        f.pieces = ab_fold_clamp(f.reduced / 128, ab_fold_clamp(1024 * AB_FOLD_COLUMNS / f.kept, 1024));
    return f;
}

// Bytes of workspace for the partial results of a fold.
static inline size_t ab_fold_bytes(const ab_fold *f) {
    return ab_cuda_aligned(static_cast<size_t>(f->kept * f->pieces) * sizeof(double));
}

// partial[piece * kept + k]
template <typename O, typename F> __global__ void ab_fold_rows(O op, F f, ab_fold g, double *partial) {
    for (int64_t b = blockIdx.x; b < g.kept * g.pieces; b += gridDim.x) {
        int64_t k = b % g.kept, piece = b / g.kept, from = ab_strided_offset(&g.stay, k);
        int64_t first = g.reduced * piece / g.pieces, end = g.reduced * (piece + 1) / g.pieces;
        double total = O::start();
        for (int64_t j = first + threadIdx.x; j < end; j += AB_FOLD_THREADS)
            total = op(total, static_cast<double>(f(from + ab_strided_offset(&g.go, j))));
        total = ab_block_fold<AB_FOLD_THREADS>(op, total);
        if (threadIdx.x == 0) partial[b] = total;
    }
}

template <typename O, typename F> __global__ void ab_fold_tiles(O op, F f, ab_fold g, double *partial) {
    __shared__ double held[AB_FOLD_LANES][AB_FOLD_COLUMNS];
    int64_t k = static_cast<int64_t>(blockIdx.x) * AB_FOLD_COLUMNS + threadIdx.x, piece = blockIdx.y;
    int64_t first = g.reduced * piece / g.pieces, end = g.reduced * (piece + 1) / g.pieces;
    double total = O::start();
    int64_t from = k < g.kept ? ab_strided_offset(&g.stay, k) : 0;
    for (int64_t j = first + threadIdx.y; k < g.kept && j < end; j += AB_FOLD_LANES)
        total = op(total, static_cast<double>(f(from + ab_strided_offset(&g.go, j))));
    held[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y != 0 || k >= g.kept) return;
    for (int lane = 1; lane < AB_FOLD_LANES; lane++) total = op(total, held[lane][threadIdx.x]);
    partial[piece * g.kept + k] = total;
}

template <typename O, typename F> __global__ void ab_fold_single(O op, F f, ab_fold g, double *partial) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < g.kept; k += step) {
        int64_t from = ab_strided_offset(&g.stay, k);
        double total = O::start();
        for (int64_t j = 0; j < g.reduced; j++)
            total = op(total, static_cast<double>(f(from + ab_strided_offset(&g.go, j))));
        partial[k] = total;
    }
}

// Results; the reader combines their pieces in order.
template <typename O> struct ab_folded {
    O op;
    const double *partial;
    int64_t kept, pieces;
    __device__ double operator()(int64_t k) const {
        double total = partial[k];
        for (int64_t p = 1; p < pieces; p++) total = op(total, partial[p * kept + k]);
        return total;
    }
};

// Writes the partial results to `partial` (ab_fold_bytes). f(i): the value at linear index i of the shape.
template <typename O, typename F>
ab_status ab_fold_start(O op, F f, const ab_fold &g, void *partial, ab_folded<O> *folded) {
    cudaStream_t stream = ab_cuda_context()->stream;
    double *to = static_cast<double *>(partial);
    int64_t blocks = g.kept * g.pieces, most = 1 << 20;
    folded->op = op;
    folded->partial = to;
    folded->kept = g.kept;
    folded->pieces = g.pieces;
    if (g.way == AB_FOLD_ROWS) {
        AB_CUDA_LAUNCH(ab_fold_rows, static_cast<unsigned>(blocks < most ? blocks : most), AB_FOLD_THREADS, 0,
                       stream, op, f, g, to);
    } else if (g.way == AB_FOLD_TILES) {
        dim3 grid(static_cast<unsigned>((g.kept + AB_FOLD_COLUMNS - 1) / AB_FOLD_COLUMNS),
                  static_cast<unsigned>(g.pieces));
        AB_CUDA_LAUNCH(ab_fold_tiles, grid, dim3(AB_FOLD_COLUMNS, AB_FOLD_LANES), 0, stream, op, f, g, to);
    } else {
        AB_CUDA_LAUNCH(ab_fold_single, ab_cuda_blocks(g.kept, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, stream,
                       op, f, g, to);
    }
    return ab_cuda_launched("fold");
}

template <typename O> struct ab_fold_result {
    ab_folded<O> folded;
    double scale;
    __device__ float operator()(int64_t k) const { return static_cast<float>(folded(k) * scale); }
};

// result[k] = scale * reduction of f, rounded once.
template <typename O, typename F>
ab_status ab_fold_into(O op, F f, const ab_fold &g, double scale, void *partial, ab_span result) {
    ab_fold_result<O> r;
    AB_TRY(ab_fold_start(op, f, g, partial, &r.folded));
    r.scale = scale;
    return ab_launch_each(r, result, g.kept, "fold_join");
}

// The same into a tensor; passes the values to the observer if it is observed.
template <typename O, typename F>
ab_status ab_fold_emit(const ab_exec *exec, ab_tensor *dst, O op, F f, const ab_fold &g, double scale) {
    void *partial = exec->workspace;
    return ab_cuda_emit(exec, dst, [=](ab_span out) { return ab_fold_into(op, f, g, scale, partial, out); });
}

#endif
