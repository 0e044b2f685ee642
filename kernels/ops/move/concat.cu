// concat on CUDA: one thread per element of the result.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

// Of every `run` elements of the result, those from first[k] on belong to input k.
struct joined {
    ab_span from[AB_MAX_INPUTS];
    int64_t first[AB_MAX_INPUTS + 1];
    int count;
    __device__ float operator()(int64_t i) const {
        int64_t place, row = ab_divide(i, first[count], &place);
        int k = 0;
        while (place >= first[k + 1]) k++;
        return ab_span_at(from[k], row * (first[k + 1] - first[k]) + place - first[k]);
    }
};

struct part_of {
    ab_span from;
    int64_t whole, first, run;
    __device__ float operator()(int64_t i) const {
        int64_t place, row = ab_divide(i, run, &place);
        return ab_span_at(from, row * whole + first + place);
    }
};

static joined joined_of(const ab_op_io *io) {
    joined j = {};
    int ndim = io->out->shape.ndim, dim = static_cast<int>(ab_cuda_int(io, "dim", 0));
    if (dim < 0) dim += ndim;
    for (; j.count < AB_MAX_INPUTS && io->in[j.count]; j.count++) {
        const ab_shape *in = &io->in[j.count]->shape;
        int64_t run = 1;
        for (int i = dim; i < ndim; i++) run *= in->dim[i];
        j.from[j.count] = ab_cuda_span(io->in[j.count]);
        j.first[j.count + 1] = j.first[j.count] + run;
    }
    return j;
}

static ab_status concat_forward(const ab_exec *exec, ab_op_io *io) {
    joined f = joined_of(io);
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "concat"); });
}

static ab_status concat_backward(const ab_exec *exec, ab_op_io *io) {
    joined j = joined_of(io);
    for (int k = 0; k < j.count; k++) {
        if (!io->din[k]) continue;
        part_of f = {ab_cuda_span(io->dout), j.first[j.count], j.first[k], j.first[k + 1] - j.first[k]};
        int64_t n = ab_cuda_count(io->din[k]);
        AB_TRY(ab_cuda_emit(exec, io->din[k],
                            [=](ab_span din) { return ab_launch_each(f, din, n, "concat_backward"); }));
    }
    return AB_OK;
}

} // namespace

const ab_op ab_cuda_concat = ab_cuda_op("concat", ab_cuda_prepare_plain, concat_forward, concat_backward);
