// flatten on CUDA: to torch's channels-first order.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

// out[i] = in[source index of i]: {N, rows, columns} to {N, columns, rows}.
struct transposed {
    ab_span in;
    int64_t rows, columns;
    __device__ float operator()(int64_t i) const {
        return ab_span_at(in, ab_flatten_source(i, rows, columns));
    }
};

static transposed pixels_by_channels(ab_span in, const ab_shape *images) {
    transposed t = {in, 1, images->dim[images->ndim - 1]};
    for (int i = 1; i < images->ndim - 1; i++) t.rows *= images->dim[i];
    return t;
}

static ab_status flatten_forward(const ab_exec *exec, ab_op_io *io) {
    transposed t = pixels_by_channels(ab_cuda_span(io->in[0]), &io->in[0]->shape);
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(t, out, n, "flatten"); });
}

static ab_status flatten_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    transposed there = pixels_by_channels(ab_cuda_span(io->dout), &io->din[0]->shape);
    transposed back = {there.in, there.columns, there.rows};
    int64_t n = ab_cuda_count(io->dout);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(back, din, n, "flatten_backward"); });
}

} // namespace

const ab_op ab_cuda_flatten = ab_cuda_op("flatten", ab_cuda_prepare_plain, flatten_forward, flatten_backward);
