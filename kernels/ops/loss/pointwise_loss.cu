// Element-wise losses of an input and a target (pointwise.def) on CUDA.
#include "kernels/ops/loss/pointwise_loss.h"

#include "kernels/cuda/cuda_fold.cuh"

namespace {

static ab_fold fold_of(const ab_op_io *io) {
    return ab_fold_of(&io->in[0]->shape, (1u << io->in[0]->shape.ndim) - 1u);
}

static double factor_of(const ab_op_io *io) {
    bool summed = ab_cuda_int(io, "reduction", 0) != 0;
    double weight = ab_cuda_float(io, "weight", 1.0);
    return summed ? weight : weight / static_cast<double>(ab_cuda_count(io->in[0]));
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    ab_fold g = fold_of(io);
    *workspace_bytes = ab_fold_bytes(&g);
    return AB_OK;
}

template <typename F> struct loss_at {
    ab_span x, t;
    __device__ float operator()(int64_t i) const { return F::value(ab_span_at(x, i), ab_span_at(t, i)); }
};

template <typename F, int BY> struct loss_gradient {
    ab_span x, t, dout;
    double factor;
    __device__ float operator()(int64_t i) const {
        float scale = static_cast<float>(static_cast<double>(ab_span_at(dout, 0)) * factor);
        float a = ab_span_at(x, i), b = ab_span_at(t, i);
        return (BY == 0 ? F::by_x(a, b) : F::by_t(a, b)) * scale;
    }
};

template <typename F> static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    loss_at<F> f = {ab_cuda_span(io->in[0]), ab_cuda_span(io->in[1])};
    return ab_fold_emit(exec, io->out, ab_plus(), f, fold_of(io), factor_of(io));
}

template <typename F, int BY> static ab_status gradient(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[BY]) return AB_OK;
    loss_gradient<F, BY> f = {ab_cuda_span(io->in[0]), ab_cuda_span(io->in[1]), ab_cuda_span(io->dout),
                              factor_of(io)};
    int64_t n = ab_cuda_count(io->in[0]);
    return ab_cuda_emit(exec, io->din[BY],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "loss_backward"); });
}

template <typename F> static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    AB_TRY((gradient<F, 0>(exec, io)));
    return gradient<F, 1>(exec, io);
}

} // namespace

#define AB_POINTWISE(id)                                                                                     \
    namespace {                                                                                              \
    struct id##_formulas {                                                                                   \
        static __device__ float value(float x, float t) { return ab_##id##_value(x, t); }                    \
        static __device__ float by_x(float x, float t) { return ab_##id##_by_x(x, t); }                      \
        static __device__ float by_t(float x, float t) { return ab_##id##_by_t(x, t); }                      \
    };                                                                                                       \
    }                                                                                                        \
    const ab_op ab_cuda_##id = ab_cuda_op(#id, prepare, forward<id##_formulas>, backward<id##_formulas>);
#include "kernels/ops/loss/pointwise.def"
#undef AB_POINTWISE
