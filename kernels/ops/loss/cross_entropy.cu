// cross_entropy on CUDA: one block per row. Maximum, then the sum of exponentials in double, as a fixed
// reduction tree; one block adds the row losses in order. A target id out of range (an error on the CPU)
// makes the loss NaN.
#include "kernels/core/elementary64.h"
#include "kernels/cuda/cuda_fold.cuh"

namespace {

enum { ROW_THREADS = 128 };

struct loss_rows {
    ab_span logits;
    const int32_t *target;
    const float *weight; // per class; null: 1
    int64_t rows, classes, ignore;
    ab_span share;          // probabilities, instead of `target`
    double kept, smoothing; // 1 - e, and e / classes, for label smoothing e
    bool summed;            // not divided by the weights

    __device__ bool counts(int64_t row) const { return !target || target[row] != ignore; }
    __device__ double weight_of(int64_t c) const { return weight ? static_cast<double>(weight[c]) : 1.0; }
    // Weight times share of class c: the factor of its negative log-likelihood.
    __device__ double factor(int64_t row, int64_t c) const {
        double part = share.data ? static_cast<double>(ab_span_at(share, row * classes + c))
                                 : static_cast<double>(c == target[row]);
        return weight_of(c) * (kept * part + smoothing);
    }
};

// Per-row values for the sums and the gradient.
struct row_result {
    double loss, weight, sum, factors; // factors: sum over the classes
    float shift, unused;
};

__device__ static double block_sum(double x) { return ab_block_fold<ROW_THREADS>(ab_plus(), x); }

// Ignores NaN, as the CPU's scan does after the first value.
struct larger_number {
    __device__ double operator()(double a, double b) const { return b > a ? b : a; }
};

// As the CPU's scan: starts with the first value; a NaN there propagates.
__device__ static float row_maximum(const loss_rows &l, int64_t at) {
    float best = ab_span_at(l.logits, at);
    for (int64_t c = threadIdx.x; c < l.classes; c += ROW_THREADS) {
        float x = ab_span_at(l.logits, at + c);
        if (x > best) best = x;
    }
    return static_cast<float>(ab_block_fold<ROW_THREADS>(larger_number(), static_cast<double>(best)));
}

__global__ static void row_losses(loss_rows l, row_result *result) {
    for (int64_t row = blockIdx.x; row < l.rows; row += gridDim.x) {
        int64_t at = row * l.classes;
        float shift = row_maximum(l, at);
        double sum = 0.0, loss = 0.0, factors = 0.0;
        for (int64_t c = threadIdx.x; c < l.classes; c += ROW_THREADS)
            sum += static_cast<double>(ab_expf(ab_span_at(l.logits, at + c) - shift));
        sum = block_sum(sum);
        const double log_sum = ab_log(sum);
        for (int64_t c = threadIdx.x; l.counts(row) && c < l.classes; c += ROW_THREADS) {
            double factor = l.factor(row, c);
            factors += factor;
            if (factor != 0.0)
                loss += factor * (log_sum - static_cast<double>(ab_span_at(l.logits, at + c) - shift));
        }
        loss = block_sum(loss);
        factors = block_sum(factors);
        if (threadIdx.x != 0) continue;
        row_result r = {loss, 0.0, sum, factors, shift, 0.0f};
        bool inside = !l.target || (l.target[row] >= 0 && l.target[row] < l.classes);
        if (l.counts(row)) r.weight = l.share.data ? 1.0 : inside ? l.weight_of(l.target[row]) : 1.0;
        if (l.counts(row) && !inside) r.loss = r.weight = static_cast<double>(ab_float_of(0x7fc00000u));
        result[row] = r;
    }
}

// totals[0] = sum of losses, totals[1] = its divisor: the sum of weights, or 1.
__global__ static void total_loss(const row_result *result, int64_t rows, bool summed, double *totals,
                                  ab_span out) {
    double loss = 0.0, weight = 0.0;
    for (int64_t row = threadIdx.x; row < rows; row += ROW_THREADS) {
        loss += result[row].loss;
        weight += result[row].weight;
    }
    loss = block_sum(loss);
    weight = block_sum(weight);
    if (summed) weight = 1.0;
    if (threadIdx.x != 0) return;
    totals[0] = loss;
    totals[1] = weight;
    if (out.data) ab_store(out.data, out.type, 0, static_cast<float>(loss / weight));
}

struct loss_gradient {
    loss_rows l;
    const row_result *result;
    const double *totals;
    ab_span dout;
    __device__ float operator()(int64_t i) const {
        int64_t c, row = ab_divide(i, l.classes, &c);
        const row_result &r = result[row];
        if (!l.counts(row)) return 0.0f;
        double scale = static_cast<double>(ab_span_at(dout, 0)) / totals[1];
        double softmax = static_cast<double>(ab_expf(ab_span_at(l.logits, i) - r.shift)) / r.sum;
        return static_cast<float>(scale * (softmax * r.factors - l.factor(row, c)));
    }
};

// ---- passes -------------------------------------------------------------------------------------

// State: the class weights. Workspace: one row_result per row, two totals.
static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    const ab_shape *logits = &io->in[0]->shape;
    AB_TRY(ab_cuda_check_attributes(io));
    bool numbers = ab_cuda_count(io->in[1]) == ab_cuda_count(io->in[0]);
    if (numbers != (io->in[1]->format != nullptr) || io->din[1])
        return ab_fail(AB_UNAVAILABLE, "cross_entropy: no CUDA kernel for these targets");
    int64_t rows = ab_cuda_count(io->in[0]) / logits->dim[logits->ndim - 1];
    *workspace_bytes = static_cast<size_t>(rows) * sizeof(row_result) + 2 * sizeof(double);
    *state_bytes = static_cast<size_t>(ab_cuda_floats(io, "weight").count) * sizeof(float);
    return ab_cuda_check_types(io);
}

// bind cannot fail: CUDA errors of this kind persist, so the next call's status reports a failed copy.
static void bind(ab_op_io *io, void *state_memory) {
    ab_floats weight = ab_cuda_floats(io, "weight");
    io->state = weight.value ? state_memory : nullptr;
    if (!io->state) return;
    ab_cuda *cuda = ab_cuda_context();
    ab_status status = ab_cuda_check(cudaMemcpyAsync(state_memory, weight.value,
                                                     static_cast<size_t>(weight.count) * sizeof(float),
                                                     cudaMemcpyHostToDevice, cuda->stream),
                                     "class weights");
    if (status == AB_OK) status = ab_cuda_check(cudaStreamSynchronize(cuda->stream), "class weights");
    if (status != AB_OK) io->state = nullptr;
}

static loss_rows rows_of(const ab_op_io *io) {
    const ab_shape *logits = &io->in[0]->shape;
    int64_t classes = logits->dim[logits->ndim - 1];
    const ab_tensor *targets = io->in[1];
    double smoothing = ab_cuda_float(io, "label_smoothing", 0.0);
    loss_rows l = {};
    l.logits = ab_cuda_span(io->in[0]);
    l.target = targets->format ? nullptr : static_cast<const int32_t *>(targets->data);
    l.share = targets->format ? ab_cuda_span(targets) : ab_cuda_empty_span();
    l.weight = static_cast<const float *>(io->state);
    l.rows = ab_cuda_count(io->in[0]) / classes;
    l.classes = classes;
    l.ignore = ab_cuda_int(io, "ignore_index", -100);
    l.kept = 1.0 - smoothing;
    l.smoothing = smoothing / static_cast<double>(classes);
    l.summed = ab_cuda_int(io, "reduction", 0) != 0;
    return l;
}

static double *totals_in(const ab_exec *exec, const loss_rows &l) {
    return reinterpret_cast<double *>(static_cast<row_result *>(exec->workspace) + l.rows);
}

// Row losses, then their total.
static ab_status losses(const ab_exec *exec, const ab_op_io *io, const loss_rows &l, ab_span out) {
    cudaStream_t stream = ab_cuda_context()->stream;
    row_result *result = static_cast<row_result *>(exec->workspace);
    if (ab_cuda_floats(io, "weight").value && !io->state)
        return ab_fail(AB_DEVICE, "cross_entropy: the class weights did not reach the GPU");
    unsigned blocks = static_cast<unsigned>(l.rows < 65535 ? l.rows : 65535);
    AB_CUDA_LAUNCH(row_losses, blocks, ROW_THREADS, 0, stream, l, result);
    AB_TRY(ab_cuda_launched("cross_entropy_rows"));
    AB_CUDA_LAUNCH(total_loss, 1, ROW_THREADS, 0, stream, result, l.rows, l.summed, totals_in(exec, l), out);
    return ab_cuda_launched("cross_entropy_total");
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    return losses(exec, io, rows_of(io), ab_cuda_span(io->out));
}

// The workspace may have been reused since the forward pass, so row statistics are recomputed.
static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    loss_rows l = rows_of(io);
    AB_TRY(losses(exec, io, l, ab_cuda_span_of(nullptr, AB_ELEMENT_F32)));
    loss_gradient f = {l, static_cast<const row_result *>(exec->workspace), totals_in(exec, l),
                       ab_cuda_span(io->dout)};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "cross_entropy_backward"); });
}

static ab_op descriptor() {
    ab_op op = ab_cuda_op("cross_entropy", prepare, forward, backward);
    op.bind = bind;
    return op;
}

} // namespace

const ab_op ab_cuda_cross_entropy = descriptor();
