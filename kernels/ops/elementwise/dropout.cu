// dropout on CUDA: a thread computes four elements from one block of random words. The mask is not stored;
// backward recomputes it.
#include "kernels/ops/elementwise/dropout_mask.cuh"

__global__ static void drop_kernel(ab_dropout_mask mask, ab_span out, ab_span in, int64_t n) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t block = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; block * 4 < n;
         block += step) {
        ab_rng_block words = mask.four(block);
        for (int k = 0; k < 4 && block * 4 + k < n; k++)
            ab_store(out.data, out.type, block * 4 + k,
                     mask.keep(words.word[k], ab_span_at(in, block * 4 + k)));
    }
}

static ab_status drop(const ab_dropout_mask &mask, ab_span out, ab_span in, int64_t n) {
    AB_CUDA_LAUNCH(drop_kernel, ab_cuda_blocks((n + 3) / 4, AB_CUDA_THREADS), AB_CUDA_THREADS, 0,
                   ab_cuda_context()->stream, mask, out, in, n);
    return ab_cuda_launched("dropout");
}

static ab_status mask(const ab_exec *exec, const ab_op_io *io, ab_tensor *dst, const ab_tensor *src) {
    if (!dst) return AB_OK;
    ab_dropout_mask mask = ab_cuda_dropout_mask(exec, io, ab_cuda_float(io, "p", 0.5));
    ab_span in = ab_cuda_span(src);
    int64_t n = ab_cuda_count(dst);
    return ab_cuda_emit(exec, dst, [=](ab_span out) {
        return mask.threshold ? drop(mask, out, in, n)
                              : ab_launch_map(ab_identity(), out, in, ab_cuda_empty_span(), n, "dropout");
    });
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) { return mask(exec, io, io->out, io->in[0]); }
static ab_status backward(const ab_exec *exec, ab_op_io *io) { return mask(exec, io, io->din[0], io->dout); }

const ab_op ab_cuda_dropout = ab_cuda_op("dropout", ab_cuda_prepare_plain, forward, backward);
