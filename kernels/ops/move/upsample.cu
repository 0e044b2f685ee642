// upsample on CUDA: one thread per element of the result; the gradient sums over the copies in fp32, row by
// row.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

struct enlarged {
    ab_span from; // backward: of the large image
    int64_t height, width, channels, factor[2];
    __device__ float operator()(int64_t i) const {
        ab_pixel p = ab_pixel_at(i, height * factor[0], width * factor[1], channels);
        p.y /= factor[0];
        p.x /= factor[1];
        return ab_span_at(from, ab_pixel_index(p, height, width, channels));
    }
};

struct gathered {
    enlarged e;
    __device__ float operator()(int64_t i) const {
        ab_pixel here = ab_pixel_at(i, e.height, e.width, e.channels), p = here;
        float sum = 0.0f;
        for (p.y = here.y * e.factor[0]; p.y < (here.y + 1) * e.factor[0]; p.y++)
            for (p.x = here.x * e.factor[1]; p.x < (here.x + 1) * e.factor[1]; p.x++)
                sum += ab_span_at(
                    e.from, ab_pixel_index(p, e.height * e.factor[0], e.width * e.factor[1], e.channels));
        return sum;
    }
};

static enlarged enlarged_of(const ab_op_io *io, ab_span from) {
    const ab_shape *in = &io->in[0]->shape;
    enlarged e = {from, in->dim[1], in->dim[2], in->dim[3], {1, 1}};
    ab_cuda_pair(io, "scale_factor", 1, e.factor);
    return e;
}

static ab_status upsample_forward(const ab_exec *exec, ab_op_io *io) {
    enlarged f = enlarged_of(io, ab_cuda_span(io->in[0]));
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "upsample"); });
}

static ab_status upsample_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    gathered f = {enlarged_of(io, ab_cuda_span(io->dout))};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "upsample_backward"); });
}

} // namespace

const ab_op ab_cuda_upsample =
    ab_cuda_op("upsample", ab_cuda_prepare_plain, upsample_forward, upsample_backward);
