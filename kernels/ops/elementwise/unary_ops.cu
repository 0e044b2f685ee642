// Ops of the unary functions in unary.def on CUDA: formulas of elementwise.h, eight elements per thread.
#include "kernels/ops/elementwise/elementwise.h"

#include "kernels/cuda/cuda_ops.cuh"

namespace {

template <typename F> struct value_of {
    ab_scalars s;
    __device__ float operator()(float x, float) const { return F::value(x, s); }
};

template <typename F> struct gradient_of {
    ab_scalars s;
    __device__ float operator()(float v, float dout) const { return dout * F::slope(v, s); }
};

// clamp has "min" and "max", scale has "factor", others have none.
static ab_scalars scalars_of(const ab_op_io *io) {
    ab_scalars s = {static_cast<float>(ab_cuda_float(io, "min", ab_cuda_float(io, "factor", 0.0))),
                    static_cast<float>(ab_cuda_float(io, "max", 0.0))};
    return s;
}

template <typename F> static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    value_of<F> f = {scalars_of(io)};
    ab_span in = ab_cuda_span(io->in[0]);
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) {
        return ab_launch_map(f, out, in, ab_cuda_empty_span(), n, "unary");
    });
}

// `of`: what the derivative reads, or any tensor of that size if it reads nothing.
template <typename F> static ab_status backward(const ab_exec *exec, ab_op_io *io, const ab_tensor *of) {
    if (!io->din[0]) return AB_OK;
    gradient_of<F> f = {scalars_of(io)};
    ab_span v = ab_cuda_span(of), dout = ab_cuda_span(io->dout);
    int64_t n = ab_cuda_count(io->dout);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_map(f, din, v, dout, n, "unary_backward"); });
}

#define READS_none(io) (io)->dout
#define READS_in(io) (io)->in[0]
#define READS_out(io) (io)->out

} // namespace

#define AB_UNARY(id, reads, attributes)                                                                      \
    namespace {                                                                                              \
    struct id##_formulas {                                                                                   \
        static __device__ float value(float x, ab_scalars s) { return ab_##id##_value(x, s); }               \
        static __device__ float slope(float v, ab_scalars s) { return ab_##id##_slope(v, s); }               \
    };                                                                                                       \
    }                                                                                                        \
    static ab_status id##_backward(const ab_exec *exec, ab_op_io *io) {                                      \
        return backward<id##_formulas>(exec, io, READS_##reads(io));                                         \
    }                                                                                                        \
    const ab_op ab_cuda_##id = ab_cuda_op(#id, ab_cuda_prepare_plain, forward<id##_formulas>, id##_backward);
#include "kernels/ops/elementwise/unary.def"
#undef AB_UNARY
