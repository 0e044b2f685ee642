// reshape on CUDA: a copy unless memory is shared.
#include "kernels/cuda/cuda_ops.cuh"

// With shared memory nothing is copied, but an observer still sees the values.
static ab_status copy(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    ab_span from = ab_cuda_span(src);
    int64_t n = ab_cuda_count(dst);
    if (dst->data == src->data && !ab_cuda_shown(exec, dst)) return AB_OK;
    return ab_cuda_emit(exec, dst, [=](ab_span out) {
        return ab_launch_map(ab_identity(), out, from, ab_cuda_empty_span(), n, "reshape");
    });
}

static ab_status reshape_forward(const ab_exec *exec, ab_op_io *io) { return copy(exec, io->out, io->in[0]); }
static ab_status reshape_backward(const ab_exec *exec, ab_op_io *io) {
    return io->din[0] ? copy(exec, io->din[0], io->dout) : AB_OK;
}

const ab_op ab_cuda_reshape = ab_cuda_op("reshape", ab_cuda_prepare_plain, reshape_forward, reshape_backward);
