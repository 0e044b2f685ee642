// relu on CUDA: the formula of formulas.h.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

struct relu_value {
    __device__ float operator()(float x, float) const { return ab_f_relu(x); }
};

struct relu_gradient {
    __device__ float operator()(float out, float dout) const { return ab_f_relu_backward(out, dout); }
};

static ab_status relu_forward(const ab_exec *exec, ab_op_io *io) {
    ab_span in = ab_cuda_span(io->in[0]);
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) {
        return ab_launch_map(relu_value(), out, in, ab_cuda_empty_span(), n, "relu");
    });
}

static ab_status relu_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    ab_span out = ab_cuda_span(io->out), dout = ab_cuda_span(io->dout);
    int64_t n = ab_cuda_count(io->dout);
    return ab_cuda_emit(exec, io->din[0], [=](ab_span din) {
        return ab_launch_map(relu_gradient(), din, out, dout, n, "relu_backward");
    });
}

} // namespace

const ab_op ab_cuda_relu = ab_cuda_op("relu", ab_cuda_prepare_plain, relu_forward, relu_backward);
