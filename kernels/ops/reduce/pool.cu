// max_pool2d, avg_pool2d and global_avg_pool on CUDA: one thread per element, forward and backward, so sums
// have a fixed order.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = *state_bytes = 0;
    AB_TRY(ab_cuda_check_attributes(io));
    if (io->in[0]->shape.ndim != 4) return ab_fail(AB_UNAVAILABLE, "pooling: no CUDA kernel for this shape");
    return ab_cuda_check_types(io);
}

// ---- max ----------------------------------------------------------------------------------------

struct max_value {
    ab_window window;
    ab_span in;
    __device__ float operator()(int64_t i) const { return ab_f_max_pool(&window, in, i); }
};

struct max_gradient {
    ab_window window;
    ab_span in, dout;
    __device__ float operator()(int64_t i) const { return ab_f_max_pool_backward(&window, in, dout, i); }
};

static ab_status max_forward(const ab_exec *exec, ab_op_io *io) {
    max_value f = {ab_cuda_window(io, &io->in[0]->shape, &io->out->shape), ab_cuda_span(io->in[0])};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "max_pool"); });
}

static ab_status max_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    max_gradient f = {ab_cuda_window(io, &io->in[0]->shape, &io->dout->shape), ab_cuda_span(io->in[0]),
                      ab_cuda_span(io->dout)};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "max_pool_backward"); });
}

// ---- average ------------------------------------------------------------------------------------

struct average_value {
    ab_window window;
    bool count_pad;
    ab_span in;
    __device__ float operator()(int64_t i) const { return ab_f_avg_pool(&window, count_pad, in, i); }
};

struct average_gradient {
    ab_window window;
    bool count_pad;
    ab_span dout;
    __device__ float operator()(int64_t i) const {
        return ab_f_avg_pool_backward(&window, count_pad, dout, i);
    }
};

static ab_status average(const ab_exec *exec, ab_op_io *io, const ab_window &window, bool count_pad) {
    average_value f = {window, count_pad, ab_cuda_span(io->in[0])};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "avg_pool"); });
}

static ab_status spread(const ab_exec *exec, ab_op_io *io, const ab_window &window, bool count_pad) {
    average_gradient f = {window, count_pad, ab_cuda_span(io->dout)};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "avg_pool_backward"); });
}

static ab_status average_forward(const ab_exec *exec, ab_op_io *io) {
    return average(exec, io, ab_cuda_window(io, &io->in[0]->shape, &io->out->shape),
                   ab_cuda_bool(io, "count_include_pad", true));
}

static ab_status average_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    return spread(exec, io, ab_cuda_window(io, &io->din[0]->shape, &io->dout->shape),
                  ab_cuda_bool(io, "count_include_pad", true));
}

// One window as large as the image.
static ab_window whole_image(const ab_shape *in) {
    ab_window w;
    for (int i = 0; i < 2; i++) {
        w.in[i] = w.kernel[i] = in->dim[i + 1];
        w.out[i] = w.stride[i] = w.dilation[i] = 1;
        w.padding[i] = 0;
    }
    w.channels = in->dim[3];
    return w;
}

static ab_status global_forward(const ab_exec *exec, ab_op_io *io) {
    return average(exec, io, whole_image(&io->in[0]->shape), true);
}

static ab_status global_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    return spread(exec, io, whole_image(&io->din[0]->shape), true);
}

} // namespace

const ab_op ab_cuda_max_pool2d = ab_cuda_op("max_pool2d", prepare, max_forward, max_backward);
const ab_op ab_cuda_avg_pool2d = ab_cuda_op("avg_pool2d", prepare, average_forward, average_backward);
const ab_op ab_cuda_global_avg_pool = ab_cuda_op("global_avg_pool", prepare, global_forward, global_backward);
