// permute, transpose, reshape, select, concat and upsample on CUDA: elements on their way to other places, one thread an element of
// the result. Nothing is computed but upsample's gradient, a sum over copies in fp32, row by row.
#include "kernels/cuda/cuda_ops.cuh"

// ---- through a view ------------------------------------------------------------------------------------------

struct viewed {
    ab_span from;
    ab_strided view;
    __device__ float operator()(int64_t i) const { return ab_span_at(from, ab_strided_offset(&view, i)); }
};

// Dimension order[i] of src becomes dimension i of dst.
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

// ---- reshape -------------------------------------------------------------------------------------------------

// In shared memory there is nothing to copy, but a probe may want to see it.
static ab_status copy(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    ab_span from = ab_cuda_span(src);
    int64_t n = ab_cuda_count(dst);
    if (dst->data == src->data && !ab_cuda_shown(exec, dst)) return AB_OK;
    return ab_cuda_emit(exec, dst, [=](ab_span out) {
        return ab_launch_map(ab_identity(), out, from, ab_cuda_nothing(), n, "reshape");
    });
}

static ab_status reshape_forward(const ab_exec *exec, ab_op_io *io) { return copy(exec, io->out, io->in[0]); }
static ab_status reshape_backward(const ab_exec *exec, ab_op_io *io) {
    return io->din[0] ? copy(exec, io->din[0], io->dout) : AB_OK;
}

// ---- select --------------------------------------------------------------------------------------------------

// A tensor as [outer, size, inner], of which `index` is taken.
struct selected {
    ab_span from;
    int64_t size, inner, index;
    __device__ float operator()(int64_t i) const {
        int64_t rest, outer = ab_divide(i, inner, &rest);
        return ab_span_at(from, (outer * size + index) * inner + rest);
    }
};

struct spread_back {
    selected s; // from: the gradient of what was taken
    __device__ float operator()(int64_t i) const {
        int64_t rest, place, outer = ab_divide(ab_divide(i, s.inner, &rest), s.size, &place);
        return place == s.index ? ab_span_at(s.from, outer * s.inner + rest) : 0.0f;
    }
};

static selected selected_of(const ab_op_io *io, ab_span from) {
    const ab_shape *in = &io->in[0]->shape;
    int64_t dim = ab_cuda_int(io, "dim", 1), index = ab_cuda_int(io, "index", 0);
    selected s = {from, in->dim[dim], 1, index < 0 ? index + in->dim[dim] : index};
    for (int i = static_cast<int>(dim) + 1; i < in->ndim; i++) s.inner *= in->dim[i];
    return s;
}

static ab_status select_forward(const ab_exec *exec, ab_op_io *io) {
    selected f = selected_of(io, ab_cuda_span(io->in[0]));
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "select"); });
}

static ab_status select_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    spread_back f = {selected_of(io, ab_cuda_span(io->dout))};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "select_backward"); });
}

// ---- concat --------------------------------------------------------------------------------------------------

// Of every `run` elements of the result, those from first[k] on are the k-th input's.
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

// ---- upsample ------------------------------------------------------------------------------------------------

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

const ab_op ab_cuda_permute = ab_cuda_op("permute", ab_cuda_prepare_plain, permute_forward, permute_backward);
const ab_op ab_cuda_transpose =
    ab_cuda_op("transpose", ab_cuda_prepare_plain, transpose_forward, transpose_backward);
const ab_op ab_cuda_reshape = ab_cuda_op("reshape", ab_cuda_prepare_plain, reshape_forward, reshape_backward);
const ab_op ab_cuda_select = ab_cuda_op("select", ab_cuda_prepare_plain, select_forward, select_backward);
const ab_op ab_cuda_concat = ab_cuda_op("concat", ab_cuda_prepare_plain, concat_forward, concat_backward);
const ab_op ab_cuda_upsample =
    ab_cuda_op("upsample", ab_cuda_prepare_plain, upsample_forward, upsample_backward);
