// sum, mean and max over dimensions on CUDA, summed in double in a fixed order.
#include "kernels/cuda/cuda_fold.cuh"

namespace {

static unsigned axes_of(const ab_op_io *io) {
    ab_ints dim = ab_cuda_ints(io, "dim");
    int ndim = io->in[0]->shape.ndim;
    unsigned axes = 0;
    for (int i = 0; i < dim.count; i++) axes |= 1u << (dim.value[i] < 0 ? dim.value[i] + ndim : dim.value[i]);
    return dim.count ? axes : (1u << ndim) - 1u;
}

static ab_fold fold_of(const ab_op_io *io) { return ab_fold_of(&io->in[0]->shape, axes_of(io)); }

struct element_of {
    ab_span in;
    __device__ float operator()(int64_t i) const { return ab_span_at(in, i); }
};

// One float per result, after the partial results of a fold.
static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    ab_fold g = fold_of(io);
    *workspace_bytes = ab_fold_bytes(&g) + static_cast<size_t>(g.kept) * sizeof(float);
    return AB_OK;
}

// ---- forward ------------------------------------------------------------------------------------

static ab_status sum_forward(const ab_exec *exec, ab_op_io *io) {
    element_of f = {ab_cuda_span(io->in[0])};
    return ab_fold_emit(exec, io->out, ab_plus(), f, fold_of(io), 1.0);
}

static ab_status mean_forward(const ab_exec *exec, ab_op_io *io) {
    element_of f = {ab_cuda_span(io->in[0])};
    ab_fold g = fold_of(io);
    return ab_fold_emit(exec, io->out, ab_plus(), f, g, 1.0 / static_cast<double>(g.reduced));
}

static ab_status max_forward(const ab_exec *exec, ab_op_io *io) {
    element_of f = {ab_cuda_span(io->in[0])};
    return ab_fold_emit(exec, io->out, ab_larger(), f, fold_of(io), 1.0);
}

// ---- backward -----------------------------------------------------------------------------------

struct spread {
    ab_span dout;
    ab_strided view;
    float factor;
    __device__ float operator()(int64_t i) const {
        return ab_span_at(dout, ab_strided_offset(&view, i)) * factor;
    }
};

static ab_status spread_back(const ab_exec *exec, ab_op_io *io, float factor) {
    if (!io->din[0]) return AB_OK;
    spread f = {ab_cuda_span(io->dout), ab_strided_along(&io->in[0]->shape, axes_of(io)), factor};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "sum_backward"); });
}

static ab_status sum_backward(const ab_exec *exec, ab_op_io *io) { return spread_back(exec, io, 1.0f); }

static ab_status mean_backward(const ab_exec *exec, ab_op_io *io) {
    return spread_back(exec, io, static_cast<float>(1.0 / static_cast<double>(fold_of(io).reduced)));
}

// 1 where the input equals the maximum.
struct is_maximum {
    ab_span in, out;
    ab_strided view;
    __device__ float operator()(int64_t i) const {
        return ab_span_at(in, i) == ab_span_at(out, ab_strided_offset(&view, i)) ? 1.0f : 0.0f;
    }
};

struct shared_gradient {
    is_maximum h;
    ab_span dout, hits;
    __device__ float operator()(int64_t i) const {
        int64_t k = ab_strided_offset(&h.view, i);
        return h(i) > 0.0f ? ab_span_at(dout, k) / ab_span_at(hits, k) : 0.0f;
    }
};

static ab_status max_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    ab_fold g = fold_of(io);
    is_maximum h = {ab_cuda_span(io->in[0]), ab_cuda_span(io->out),
                    ab_strided_along(&io->in[0]->shape, axes_of(io))};
    ab_span hits = ab_cuda_span_of(static_cast<char *>(exec->workspace) + ab_fold_bytes(&g), AB_ELEMENT_F32);
    AB_TRY(ab_fold_into(ab_plus(), h, g, 1.0, exec->workspace, hits));
    shared_gradient f = {h, ab_cuda_span(io->dout), hits};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "max_backward"); });
}

} // namespace

const ab_op ab_cuda_sum = ab_cuda_op("sum", prepare, sum_forward, sum_backward);
const ab_op ab_cuda_mean = ab_cuda_op("mean", prepare, mean_forward, mean_backward);
const ab_op ab_cuda_max = ab_cuda_op("max", prepare, max_forward, max_backward);
