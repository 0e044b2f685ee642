// softmax and log_softmax on CUDA: one block per row.
#include "kernels/core/elementary64.h"
#include "kernels/cuda/cuda_rows.cuh"

namespace {

struct softmax_row {
    float shift, factor; // log_softmax: the log of the sum instead of its inverse
};

__global__ static void softmax_sums(ab_cuda_rows s, ab_span x, bool logarithm, softmax_row *result) {
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        double best = ab_larger::start(), sum = 0.0;
        for (int64_t c = threadIdx.x; c < s.n; c += AB_CUDA_ROW_THREADS)
            best = ab_larger()(best, static_cast<double>(ab_span_at(x, row * s.n + c)));
        float shift = static_cast<float>(ab_block_fold<AB_CUDA_ROW_THREADS>(ab_larger(), best));
        for (int64_t c = threadIdx.x; c < s.n; c += AB_CUDA_ROW_THREADS)
            sum += static_cast<double>(ab_expf(ab_span_at(x, row * s.n + c) - shift));
        sum = ab_cuda_row_sum(sum);
        if (threadIdx.x != 0) continue;
        result[row].shift = shift;
        result[row].factor = static_cast<float>(logarithm ? ab_log(sum) : 1.0 / sum);
    }
}

struct softmax_value {
    ab_span x;
    int64_t n;
    const softmax_row *row;
    bool logarithm;
    __device__ float operator()(int64_t i) const {
        int64_t c;
        const softmax_row &r = row[ab_divide(i, n, &c)];
        float d = ab_span_at(x, i) - r.shift;
        return logarithm ? d - r.factor : ab_expf(d) * r.factor;
    }
};

// Row sum for the gradient: of y dy, or of dy for log_softmax.
__global__ static void softmax_dots(ab_cuda_rows s, ab_span y, ab_span dy, bool logarithm, float *dot) {
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        double sum = 0.0;
        for (int64_t c = threadIdx.x; c < s.n; c += AB_CUDA_ROW_THREADS) {
            double d = static_cast<double>(ab_span_at(dy, row * s.n + c));
            sum += logarithm ? d : d * static_cast<double>(ab_span_at(y, row * s.n + c));
        }
        sum = ab_cuda_row_sum(sum);
        if (threadIdx.x == 0) dot[row] = static_cast<float>(sum);
    }
}

struct softmax_gradient {
    ab_span y, dy;
    int64_t n;
    const float *dot;
    bool logarithm;
    __device__ float operator()(int64_t i) const {
        int64_t c, row = ab_divide(i, n, &c);
        float out = ab_span_at(y, i), d = ab_span_at(dy, i);
        return logarithm ? d - ab_expf(out) * dot[row] : out * (d - dot[row]);
    }
};

static ab_status prepare_softmax(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                                 size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    *workspace_bytes = static_cast<size_t>(ab_cuda_rows_of(&io->in[0]->shape).rows) * sizeof(softmax_row);
    return AB_OK;
}

template <bool LOGARITHM> static ab_status softmax_forward(const ab_exec *exec, ab_op_io *io) {
    ab_cuda_rows s = ab_cuda_rows_of(&io->in[0]->shape);
    softmax_row *row = static_cast<softmax_row *>(exec->workspace);
    ab_span x = ab_cuda_span(io->in[0]);
    AB_CUDA_LAUNCH(softmax_sums, ab_cuda_row_blocks(s), AB_CUDA_ROW_THREADS, 0, ab_cuda_context()->stream, s,
                   x, LOGARITHM, row);
    AB_TRY(ab_cuda_launched("softmax_sums"));
    softmax_value f = {x, s.n, row, LOGARITHM};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "softmax"); });
}

template <bool LOGARITHM> static ab_status softmax_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    ab_cuda_rows s = ab_cuda_rows_of(&io->out->shape);
    float *dot = static_cast<float *>(exec->workspace);
    ab_span y = ab_cuda_span(io->out), dy = ab_cuda_span(io->dout);
    AB_CUDA_LAUNCH(softmax_dots, ab_cuda_row_blocks(s), AB_CUDA_ROW_THREADS, 0, ab_cuda_context()->stream, s,
                   y, dy, LOGARITHM, dot);
    AB_TRY(ab_cuda_launched("softmax_dots"));
    softmax_gradient f = {y, dy, s.n, dot, LOGARITHM};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "softmax_backward"); });
}

} // namespace

const ab_op ab_cuda_softmax =
    ab_cuda_op("softmax", prepare_softmax, softmax_forward<false>, softmax_backward<false>);
const ab_op ab_cuda_log_softmax =
    ab_cuda_op("log_softmax", prepare_softmax, softmax_forward<true>, softmax_backward<true>);
