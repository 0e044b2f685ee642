// cross_entropy on CUDA, for class ids and no label smoothing: one block a row. Maximum, then the sum of exponentials in double, in a fixed tree; row losses are added
// in order by one block. A target outside the classes (the CPU refuses it) makes the loss NaN.
#include "kernels/cuda_ops.cuh"

enum { ROW_THREADS = 128 };

struct loss_rows {
    ab_span logits;
    const int32_t *target;
    const float *weight; // a class; null: 1
    int64_t rows, classes, ignore;
};

// What a row leaves for the sums and the gradient.
struct row_result {
    double loss, weight, sum;
    float shift, unused;
};

// In a fixed order of pairs; every thread gets the result. combine(a, b) of what the threads hold.
__device__ static float block_maximum(float x) {
    __shared__ float held[ROW_THREADS];
    held[threadIdx.x] = x;
    __syncthreads();
    for (int half = ROW_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && held[threadIdx.x + half] > held[threadIdx.x])
            held[threadIdx.x] = held[threadIdx.x + half];
        __syncthreads();
    }
    float result = held[0];
    __syncthreads();
    return result;
}

__device__ static double block_sum(double x) {
    __shared__ double held[ROW_THREADS];
    held[threadIdx.x] = x;
    __syncthreads();
    for (int half = ROW_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) held[threadIdx.x] += held[threadIdx.x + half];
        __syncthreads();
    }
    double result = held[0];
    __syncthreads();
    return result;
}

// As the CPU's scan: starts with the first value, and a NaN there stays.
__device__ static float row_maximum(const loss_rows &l, int64_t at) {
    float best = ab_span_at(l.logits, at);
    for (int64_t c = threadIdx.x; c < l.classes; c += ROW_THREADS) {
        float x = ab_span_at(l.logits, at + c);
        if (x > best) best = x;
    }
    return block_maximum(best);
}

__global__ static void row_losses(loss_rows l, row_result *result) {
    for (int64_t row = blockIdx.x; row < l.rows; row += gridDim.x) {
        int64_t at = row * l.classes, target = l.target[row];
        float shift = row_maximum(l, at);
        double sum = 0.0;
        for (int64_t c = threadIdx.x; c < l.classes; c += ROW_THREADS)
            sum += static_cast<double>(expf(ab_span_at(l.logits, at + c) - shift));
        sum = block_sum(sum);
        if (threadIdx.x != 0) continue;
        row_result r = {0.0, 0.0, sum, shift, 0.0f};
        bool counts = target != l.ignore, inside = target >= 0 && target < l.classes;
        if (counts && inside) {
            r.weight = l.weight ? static_cast<double>(l.weight[target]) : 1.0;
            r.loss = r.weight * (log(sum) - static_cast<double>(ab_span_at(l.logits, at + target) - shift));
        } else if (counts) {
            r.loss = r.weight = static_cast<double>(ab_float_of(0x7fc00000u));
        }
        result[row] = r;
    }
}

// totals[0] = sum of losses, totals[1] = sum of weights.
__global__ static void total_loss(const row_result *result, int64_t rows, double *totals, ab_span out) {
    double loss = 0.0, weight = 0.0;
    for (int64_t row = threadIdx.x; row < rows; row += ROW_THREADS) {
        loss += result[row].loss;
        weight += result[row].weight;
    }
    loss = block_sum(loss);
    weight = block_sum(weight);
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
        int64_t row = i / l.classes, c = i % l.classes;
        const row_result &r = result[row];
        if (l.target[row] == l.ignore) return 0.0f;
        double factor = static_cast<double>(ab_span_at(dout, 0)) * r.weight / totals[1];
        double softmax = static_cast<double>(expf(ab_span_at(l.logits, i) - r.shift)) / r.sum;
        return static_cast<float>(factor * (softmax - (c == l.target[row] ? 1.0 : 0.0)));
    }
};

// ---- passes --------------------------------------------------------------------------------------------------

// State: the class weights. Workspace: a result a row, two totals.
static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    const ab_shape *logits = &io->in[0]->shape;
    AB_TRY(ab_cuda_only(io));
    if (io->in[1]->format || ab_cuda_float(io, "label_smoothing", 0.0) != 0.0)
        return ab_fail(AB_UNAVAILABLE, "cross_entropy: no CUDA kernel for these arguments");
    int64_t rows = ab_cuda_count(io->in[0]) / logits->dim[logits->ndim - 1];
    *workspace_bytes = static_cast<size_t>(rows) * sizeof(row_result) + 2 * sizeof(double);
    *state_bytes = static_cast<size_t>(ab_cuda_floats(io, "weight").count) * sizeof(float);
    return ab_cuda_check_types(io);
}

// bind cannot fail: what does not arrive shows in the next call's status, because CUDA errors of this kind stay.
static void bind(ab_op_io *io, void *state_memory) {
    ab_floats weight = ab_cuda_floats(io, "weight");
    io->state = weight.value ? state_memory : nullptr;
    if (!io->state) return;
    ab_cuda *cuda = ab_cuda_get();
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
    loss_rows l = {ab_cuda_span(io->in[0]),
                   static_cast<const int32_t *>(io->in[1]->data),
                   static_cast<const float *>(io->state),
                   ab_cuda_count(io->in[0]) / classes,
                   classes,
                   ab_cuda_int(io, "ignore_index", -100)};
    return l;
}

static double *totals_in(const ab_exec *exec, const loss_rows &l) {
    return reinterpret_cast<double *>(static_cast<row_result *>(exec->workspace) + l.rows);
}

// Rows, then their total.
static ab_status losses(const ab_exec *exec, const ab_op_io *io, const loss_rows &l, ab_span out) {
    cudaStream_t stream = ab_cuda_get()->stream;
    row_result *result = static_cast<row_result *>(exec->workspace);
    if (ab_cuda_floats(io, "weight").value && !io->state)
        return ab_fail(AB_DEVICE, "cross_entropy: the class weights did not reach the GPU");
    unsigned blocks = static_cast<unsigned>(l.rows < 65535 ? l.rows : 65535);
    row_losses<<<blocks, ROW_THREADS, 0, stream>>>(l, result);
    AB_TRY(ab_cuda_launched("cross_entropy_rows"));
    total_loss<<<1, ROW_THREADS, 0, stream>>>(result, l.rows, totals_in(exec, l), out);
    return ab_cuda_launched("cross_entropy_total");
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    return losses(exec, io, rows_of(io), ab_cuda_span(io->out));
}

// The workspace may have been used since the forward pass: rows are measured again.
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

const ab_op ab_cuda_cross_entropy = descriptor();
