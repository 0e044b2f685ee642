// gelu, silu, tanh and sigmoid on CUDA, element-wise.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = *state_bytes = 0;
    AB_TRY(ab_cuda_check_attributes(io));
    return ab_cuda_check_types(io);
}

// out = value(a); din = slope(a) dout, where a is the input or, for tanh and sigmoid, the output.
struct gelu {
    static __device__ float value(float x) { return ab_f_gelu(x); }
    static __device__ float slope(float x) { return ab_f_gelu_slope(x); }
};
struct gelu_by_tanh {
    static __device__ float value(float x) { return ab_f_gelu_tanh(x); }
    static __device__ float slope(float x) { return ab_f_gelu_tanh_slope(x); }
};
struct silu {
    static __device__ float value(float x) { return ab_f_silu(x); }
    static __device__ float slope(float x) { return ab_f_silu_slope(x); }
};
struct hyperbolic {
    static __device__ float value(float x) { return ab_tanhf(x); }
    static __device__ float slope(float y) { return (1.0f - y) * (1.0f + y); }
};
struct logistic {
    static __device__ float value(float x) { return ab_f_sigmoid(x); }
    static __device__ float slope(float y) { return y * (1.0f - y); }
};

template <typename F> struct value_of {
    __device__ float operator()(float x, float) const { return F::value(x); }
};

template <typename F> struct gradient_of {
    __device__ float operator()(float a, float dout) const { return dout * F::slope(a); }
};

template <typename F> static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_span in = ab_cuda_span(io->in[0]), nothing = ab_cuda_span_of(nullptr, AB_ELEMENT_F32);
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) {
        return ab_launch_map(value_of<F>(), out, in, nothing, n, "activation");
    });
}

template <typename F>
static ab_status gradient(const ab_exec *exec, ab_op_io *io, const ab_tensor *argument) {
    if (!io->din[0]) return AB_OK;
    ab_span a = ab_cuda_span(argument), dout = ab_cuda_span(io->dout);
    int64_t n = ab_cuda_count(io->dout);
    return ab_cuda_emit(exec, io->din[0], [=](ab_span din) {
        return ab_launch_map(gradient_of<F>(), din, a, dout, n, "activation_backward");
    });
}

static bool by_tanh(const ab_op_io *io) { return ab_cuda_int(io, "approximate", 0) != 0; }

static ab_status gelu_forward(const ab_exec *exec, ab_op_io *io) {
    return by_tanh(io) ? forward<gelu_by_tanh>(exec, io) : forward<gelu>(exec, io);
}
static ab_status gelu_backward(const ab_exec *exec, ab_op_io *io) {
    return by_tanh(io) ? gradient<gelu_by_tanh>(exec, io, io->in[0]) : gradient<gelu>(exec, io, io->in[0]);
}
static ab_status silu_backward(const ab_exec *exec, ab_op_io *io) {
    return gradient<silu>(exec, io, io->in[0]);
}
static ab_status tanh_backward(const ab_exec *exec, ab_op_io *io) {
    return gradient<hyperbolic>(exec, io, io->out);
}
static ab_status sigmoid_backward(const ab_exec *exec, ab_op_io *io) {
    return gradient<logistic>(exec, io, io->out);
}

} // namespace

const ab_op ab_cuda_gelu = ab_cuda_op("gelu", prepare, gelu_forward, gelu_backward);
const ab_op ab_cuda_silu = ab_cuda_op("silu", prepare, forward<silu>, silu_backward);
const ab_op ab_cuda_tanh = ab_cuda_op("tanh", prepare, forward<hyperbolic>, tanh_backward);
const ab_op ab_cuda_sigmoid = ab_cuda_op("sigmoid", prepare, forward<logistic>, sigmoid_backward);
