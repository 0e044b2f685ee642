// select on CUDA: one thread per element of the result.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

// A tensor as [outer, size, inner], selecting `index`.
struct selected {
    ab_span from;
    int64_t size, inner, index;
    __device__ float operator()(int64_t i) const {
        int64_t rest, outer = ab_divide(i, inner, &rest);
        return ab_span_at(from, (outer * size + index) * inner + rest);
    }
};

struct spread_back {
    selected s; // from: the gradient of the selected part
    __device__ float operator()(int64_t i) const {
        int64_t rest, place, outer = ab_divide(ab_divide(i, s.inner, &rest), s.size, &place);
        return place == s.index ? ab_span_at(s.from, outer * s.inner + rest) : 0.0f;
    }
};

static selected selected_of(const ab_op_io *io, ab_span from) {
    const ab_shape *in = &io->in[0]->shape;
    int64_t dim = ab_cuda_int(io, "dim", 1), index = ab_cuda_int(io, "index", 0);
    selected s = {from, in->dim[dim], 1, index < 0 ? index + in->dim[dim] : index};
    for (int i = static_cast<int>(dim) + 1; i < in->ndim; i++) s.inner *= in->dim[i];
    return s;
}

static ab_status select_forward(const ab_exec *exec, ab_op_io *io) {
    selected f = selected_of(io, ab_cuda_span(io->in[0]));
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "select"); });
}

static ab_status select_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    spread_back f = {selected_of(io, ab_cuda_span(io->dout))};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "select_backward"); });
}

} // namespace

const ab_op ab_cuda_select = ab_cuda_op("select", ab_cuda_prepare_plain, select_forward, select_backward);
