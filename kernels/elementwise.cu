// relu, add and flatten on CUDA: element-wise kernels over the formulas of formulas.h.
#include "kernels/cuda_ops.cuh"

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = *state_bytes = 0;
    AB_TRY(ab_cuda_only(io));
    return ab_cuda_check_types(io);
}

static ab_span nothing() { return ab_cuda_span_of(nullptr, AB_ELEMENT_F32); }

// ---- relu ----------------------------------------------------------------------------------------------------

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
        return ab_launch_map(relu_value(), out, in, nothing(), n, "relu");
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

// ---- add -----------------------------------------------------------------------------------------------------

struct add_values {
    __device__ float operator()(float a, float b) const { return a + b; }
};

static ab_status add_forward(const ab_exec *exec, ab_op_io *io) {
    ab_span a = ab_cuda_span(io->in[0]), b = ab_cuda_span(io->in[1]);
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out,
                        [=](ab_span out) { return ab_launch_map(add_values(), out, a, b, n, "add"); });
}

static ab_status add_backward(const ab_exec *exec, ab_op_io *io) {
    ab_span dout = ab_cuda_span(io->dout);
    int64_t n = ab_cuda_count(io->dout);
    for (int i = 0; i < 2; i++)
        if (io->din[i])
            AB_TRY(ab_cuda_emit(exec, io->din[i], [=](ab_span din) {
                return ab_launch_map(ab_identity(), din, dout, nothing(), n, "add_backward");
            }));
    return AB_OK;
}

// Both operands of one shape, the gradients too: what broadcasts is not done here.
static ab_status add_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                             size_t *state_bytes) {
    for (int i = 0; i < 2; i++)
        if (!io->in[i] || ab_cuda_count(io->in[i]) != ab_cuda_count(io->out))
            return ab_fail(AB_UNAVAILABLE, "add: no CUDA kernel for operands of different shapes");
    return prepare(exec, io, workspace_bytes, state_bytes);
}

// ---- flatten -------------------------------------------------------------------------------------------------

// out[i] = in[source of i]: {N, rows, columns} to {N, columns, rows}.
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

// ---- descriptors ---------------------------------------------------------------------------------------------

const ab_op ab_cuda_relu = ab_cuda_op("relu", prepare, relu_forward, relu_backward);
const ab_op ab_cuda_add = ab_cuda_op("add", add_prepare, add_forward, add_backward);
const ab_op ab_cuda_flatten = ab_cuda_op("flatten", prepare, flatten_forward, flatten_backward);
