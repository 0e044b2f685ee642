// positional_embedding on CUDA: sums in batch order.
#include "kernels/cuda/cuda_fold.cuh"

namespace {

struct positions {
    int64_t batch, tokens, dim, extra, rows; // tokens of the input; extra: 1 with a class token
};

static positions positions_of(const ab_op_io *io) {
    const ab_shape *in = &io->in[0]->shape;
    positions p = {in->dim[0], in->dim[1], in->dim[2], ab_cuda_bool(io, "class_token", false) ? 1 : 0, 0};
    p.rows = io->param[0]->shape.dim[0];
    return p;
}

struct added {
    positions p;
    ab_span in, table, token;
    __device__ float operator()(int64_t i) const {
        int64_t c, position, image = ab_divide(ab_divide(i, p.dim, &c), p.tokens + p.extra, &position);
        float x = position < p.extra ? ab_span_at(token, c)
                                     : ab_span_at(in, (image * p.tokens + position - p.extra) * p.dim + c);
        return x + ab_span_at(table, position * p.dim + c);
    }
};

struct token_gradient {
    positions p;
    ab_span dout;
    __device__ float operator()(int64_t i) const {
        int64_t c, position, image = ab_divide(ab_divide(i, p.dim, &c), p.tokens, &position);
        return ab_span_at(dout, (image * (p.tokens + p.extra) + position + p.extra) * p.dim + c);
    }
};

// Sums each row over the images; unused rows get 0.
struct table_gradient {
    positions p;
    ab_span dout;
    __device__ float operator()(int64_t i) const {
        int64_t used = (p.tokens + p.extra) * p.dim;
        float sum = 0.0f;
        for (int64_t image = 0; i < used && image < p.batch; image++)
            sum += ab_span_at(dout, image * used + i);
        return sum;
    }
};

static ab_status position_forward(const ab_exec *exec, ab_op_io *io) {
    added f = {positions_of(io), ab_cuda_span(io->in[0]), ab_cuda_span(io->param[0]),
               ab_cuda_optional(io->param[1])};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "positions"); });
}

static ab_status position_backward(const ab_exec *exec, ab_op_io *io) {
    positions p = positions_of(io);
    ab_span dout = ab_cuda_span(io->dout);
    table_gradient sums = {p, dout}; // the first row is the class token's gradient
    token_gradient pass = {p, dout};
    for (int i = 0; i < 2; i++) {
        if (!io->dparam[i]) continue;
        int64_t n = ab_cuda_count(io->dparam[i]);
        AB_TRY(ab_cuda_emit(exec, io->dparam[i],
                            [=](ab_span out) { return ab_launch_each(sums, out, n, "positions_table"); }));
    }
    if (!io->din[0]) return AB_OK;
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(pass, din, n, "positions_backward"); });
}

} // namespace

const ab_op ab_cuda_positional_embedding =
    ab_cuda_op("positional_embedding", ab_cuda_prepare_plain, position_forward, position_backward);
