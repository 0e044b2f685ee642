// permute and transpose on CUDA: one thread per element of the result, read through a strided view.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

struct viewed {
    ab_span from;
    ab_strided view;
    __device__ float operator()(int64_t i) const { return ab_span_at(from, ab_strided_offset(&view, i)); }
};

// dst's dimension i is src's dimension order[i].
static ab_status move(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src, const int64_t *order) {
    viewed f = {ab_cuda_span(src), ab_strided_permute(&src->shape, order)};
    int64_t n = ab_cuda_count(dst);
    return ab_cuda_emit(exec, dst, [=](ab_span out) { return ab_launch_each(f, out, n, "permute"); });
}

static void invert(const int64_t *order, int ndim, int64_t *back) {
    for (int i = 0; i < ndim; i++) back[order[i]] = i;
}

static void permute_order(const ab_op_io *io, int ndim, int64_t *order) {
    ab_ints dims = ab_cuda_ints(io, "dims");
    for (int i = 0; i < ndim; i++) order[i] = dims.value[i] < 0 ? dims.value[i] + ndim : dims.value[i];
}

static ab_status permute_forward(const ab_exec *exec, ab_op_io *io) {
    int64_t order[AB_MAX_DIMS];
    permute_order(io, io->out->shape.ndim, order);
    return move(exec, io->out, io->in[0], order);
}

static ab_status permute_backward(const ab_exec *exec, ab_op_io *io) {
    int64_t order[AB_MAX_DIMS], back[AB_MAX_DIMS];
    if (!io->din[0]) return AB_OK;
    permute_order(io, io->dout->shape.ndim, order);
    invert(order, io->dout->shape.ndim, back);
    return move(exec, io->din[0], io->dout, back);
}

static void transpose_order(const ab_op_io *io, int ndim, int64_t *order) {
    int64_t a = ab_cuda_int(io, "dim0", 0), b = ab_cuda_int(io, "dim1", 1);
    for (int i = 0; i < ndim; i++) order[i] = i;
    if (a < 0) a += ndim;
    if (b < 0) b += ndim;
    order[a] = b;
    order[b] = a;
}

static ab_status transpose_forward(const ab_exec *exec, ab_op_io *io) {
    int64_t order[AB_MAX_DIMS];
    transpose_order(io, io->out->shape.ndim, order);
    return move(exec, io->out, io->in[0], order);
}

static ab_status transpose_backward(const ab_exec *exec, ab_op_io *io) {
    int64_t order[AB_MAX_DIMS];
    if (!io->din[0]) return AB_OK;
    transpose_order(io, io->dout->shape.ndim, order);
    return move(exec, io->din[0], io->dout, order);
}

} // namespace

const ab_op ab_cuda_permute = ab_cuda_op("permute", ab_cuda_prepare_plain, permute_forward, permute_backward);
const ab_op ab_cuda_transpose =
    ab_cuda_op("transpose", ab_cuda_prepare_plain, transpose_forward, transpose_backward);
