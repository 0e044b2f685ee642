// where and masked_fill on CUDA. A mask is ids or floating values, broadcast, or the region above the
// diagonal; it has no gradient.
#include "kernels/cuda/cuda_fold.cuh"

#include <cmath>

namespace {

struct mask {
    const int32_t *ids;
    ab_span numbers; // floating mask; NULL ids and numbers: causal
    ab_strided view;
    bool compares;
    double equals;
    int64_t rows, columns;
    __device__ bool operator()(int64_t i) const {
        if (!ids && !numbers.data) {
            int64_t column, row;
            ab_divide(ab_divide(i, columns, &column), rows, &row);
            return column - row > columns - rows; // the last row sees every column
        }
        int64_t at = ab_strided_offset(&view, i);
        double x = ids ? static_cast<double>(ids[at]) : static_cast<double>(ab_span_at(numbers, at));
        return compares ? x == equals : x != 0.0;
    }
};

static mask mask_of(const ab_op_io *io, const ab_tensor *tensor, const ab_shape *shape) {
    mask m = {};
    m.equals = ab_cuda_float(io, "equals", NAN);
    m.compares = !std::isnan(m.equals);
    m.numbers = ab_cuda_empty_span();
    if (!tensor) {
        m.rows = shape->dim[shape->ndim - 2];
        m.columns = shape->dim[shape->ndim - 1];
        return m;
    }
    m.view = ab_strided_broadcast(&tensor->shape, shape);
    if (tensor->format)
        m.numbers = ab_cuda_span(tensor);
    else
        m.ids = static_cast<const int32_t *>(tensor->data);
    return m;
}

// ---- selection ----------------------------------------------------------------------------------

struct side {
    ab_span span;
    ab_strided view;
    float number;
    __device__ float at(int64_t i) const {
        return span.data ? ab_span_at(span, ab_strided_offset(&view, i)) : number;
    }
};

struct choice {
    mask hit;
    side one, other;
    __device__ float operator()(int64_t i) const { return hit(i) ? one.at(i) : other.at(i); }
};

// Gradient of the side selected where the mask equals `of`.
struct side_gradient {
    mask hit;
    ab_span dout;
    bool of;
    __device__ float operator()(int64_t i) const { return hit(i) == of ? ab_span_at(dout, i) : 0.0f; }
};

static side side_of(const ab_tensor *tensor, const ab_shape *shape) {
    side s = {ab_cuda_span(tensor), ab_strided_broadcast(&tensor->shape, shape), 0.0f};
    return s;
}

static ab_status choose(const ab_exec *exec, ab_tensor *dst, const choice &f) {
    int64_t n = ab_cuda_count(dst);
    return ab_cuda_emit(exec, dst, [=](ab_span out) { return ab_launch_each(f, out, n, "where"); });
}

static ab_status pass(const ab_exec *exec, ab_op_io *io, ab_tensor *din, const ab_tensor *of_mask, bool of) {
    if (!din) return AB_OK;
    side_gradient f = {mask_of(io, of_mask, &io->dout->shape), ab_cuda_span(io->dout), of};
    unsigned axes = ab_broadcast_axes(&din->shape, &io->dout->shape);
    int64_t n = ab_cuda_count(din);
    if (axes) return ab_fold_emit(exec, din, ab_plus(), f, ab_fold_of(&io->dout->shape, axes), 1.0);
    return ab_cuda_emit(exec, din, [=](ab_span out) { return ab_launch_each(f, out, n, "where_backward"); });
}

struct zero {
    __device__ float operator()(int64_t) const { return 0.0f; }
};

// Zero gradient for a mask computed from trained values.
static ab_status no_gradient(const ab_exec *exec, ab_tensor *din) {
    if (!din) return AB_OK;
    int64_t n = ab_cuda_count(din);
    return ab_cuda_emit(exec, din, [=](ab_span out) { return ab_launch_each(zero(), out, n, "where_mask"); });
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    for (int i = 0; i < 3; i++) {
        unsigned axes = io->din[i] ? ab_broadcast_axes(&io->din[i]->shape, &io->out->shape) : 0;
        ab_fold g = ab_fold_of(&io->out->shape, axes);
        if (axes && ab_fold_bytes(&g) > *workspace_bytes) *workspace_bytes = ab_fold_bytes(&g);
    }
    return AB_OK;
}

// ---- the ops ------------------------------------------------------------------------------------

static ab_status where_forward(const ab_exec *exec, ab_op_io *io) {
    const ab_shape *shape = &io->out->shape;
    choice f = {mask_of(io, io->in[0], shape), side_of(io->in[1], shape), side_of(io->in[2], shape)};
    return choose(exec, io->out, f);
}

static ab_status where_backward(const ab_exec *exec, ab_op_io *io) {
    for (int i = 0; i < 2; i++) AB_TRY(pass(exec, io, io->din[i + 1], io->in[0], i == 0));
    return no_gradient(exec, io->din[0]);
}

static ab_status fill_forward(const ab_exec *exec, ab_op_io *io) {
    const ab_shape *shape = &io->out->shape;
    choice f = {mask_of(io, io->in[1], shape), {}, side_of(io->in[0], shape)};
    f.one.span = ab_cuda_empty_span();
    f.one.number = static_cast<float>(ab_cuda_float(io, "value", -INFINITY));
    return choose(exec, io->out, f);
}

static ab_status fill_backward(const ab_exec *exec, ab_op_io *io) {
    AB_TRY(pass(exec, io, io->din[0], io->in[1], false));
    return no_gradient(exec, io->din[1]);
}

} // namespace

const ab_op ab_cuda_where = ab_cuda_op("where", prepare, where_forward, where_backward);
const ab_op ab_cuda_masked_fill = ab_cuda_op("masked_fill", prepare, fill_forward, fill_backward);
