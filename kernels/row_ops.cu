// layer_norm and softmax on CUDA: one block a row, sums in double and in a fixed tree.
#include "kernels/cuda_ops.cuh"

enum { ROW_THREADS = 128 };

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

struct row_shape {
    int64_t rows, n;
};

static row_shape rows_of(const ab_shape *shape) {
    row_shape s = {1, shape->dim[shape->ndim - 1]};
    for (int i = 0; i < shape->ndim - 1; i++) s.rows *= shape->dim[i];
    return s;
}

static unsigned row_blocks(const row_shape &s) {
    return static_cast<unsigned>(s.rows < 65535 ? s.rows : 65535);
}

static ab_span span_or_nothing(const ab_tensor *tensor) {
    return tensor ? ab_cuda_span(tensor) : ab_cuda_span_of(nullptr, AB_ELEMENT_F32);
}

// ---- layer_norm ----------------------------------------------------------------------------------------------

struct norm_args {
    row_shape s;
    ab_span x, dy, weight, bias;
    float *mean, *rstd; // a row
    double eps;
};

__global__ static void row_statistics(norm_args a) {
    for (int64_t row = blockIdx.x; row < a.s.rows; row += gridDim.x) {
        double sum = 0.0, squares = 0.0, n = static_cast<double>(a.s.n);
        for (int64_t c = threadIdx.x; c < a.s.n; c += ROW_THREADS)
            sum += static_cast<double>(ab_span_at(a.x, row * a.s.n + c));
        double mean = block_sum(sum) / n;
        for (int64_t c = threadIdx.x; c < a.s.n; c += ROW_THREADS) {
            double d = static_cast<double>(ab_span_at(a.x, row * a.s.n + c)) - mean;
            squares += d * d;
        }
        double var = block_sum(squares) / n;
        if (threadIdx.x != 0) continue;
        a.mean[row] = static_cast<float>(mean);
        a.rstd[row] = static_cast<float>(1.0 / sqrt(var + a.eps));
    }
}

struct norm_value {
    norm_args a;
    __device__ float operator()(int64_t i) const {
        int64_t row = i / a.s.n, c = i % a.s.n;
        float weight = a.weight.data ? ab_span_at(a.weight, c) : 1.0f,
              bias = a.bias.data ? ab_span_at(a.bias, c) : 0.0f;
        return (ab_span_at(a.x, i) - a.mean[row]) * a.rstd[row] * weight + bias;
    }
};

// Sums a row's input gradient needs: of g = dy weight, and of g times the normalised input.
__global__ static void gradient_sums(norm_args a, float *g_mean, float *gx_mean) {
    for (int64_t row = blockIdx.x; row < a.s.rows; row += gridDim.x) {
        double g_sum = 0.0, gx_sum = 0.0, n = static_cast<double>(a.s.n);
        for (int64_t c = threadIdx.x; c < a.s.n; c += ROW_THREADS) {
            double g = static_cast<double>(ab_span_at(a.dy, row * a.s.n + c));
            if (a.weight.data) g *= static_cast<double>(ab_span_at(a.weight, c));
            float x = (ab_span_at(a.x, row * a.s.n + c) - a.mean[row]) * a.rstd[row];
            g_sum += g;
            gx_sum += g * static_cast<double>(x);
        }
        g_sum = block_sum(g_sum);
        gx_sum = block_sum(gx_sum);
        if (threadIdx.x != 0) continue;
        g_mean[row] = static_cast<float>(g_sum / n);
        gx_mean[row] = static_cast<float>(gx_sum / n);
    }
}

struct norm_gradient {
    norm_args a;
    const float *g_mean, *gx_mean;
    __device__ float operator()(int64_t i) const {
        int64_t row = i / a.s.n, c = i % a.s.n;
        float g = ab_span_at(a.dy, i) * (a.weight.data ? ab_span_at(a.weight, c) : 1.0f);
        float x = (ab_span_at(a.x, i) - a.mean[row]) * a.rstd[row];
        return a.rstd[row] * ((g - g_mean[row]) - x * gx_mean[row]);
    }
};

// dweight[c] = sum over rows of dy x, in double, one thread a column; rows in order.
struct weight_gradient {
    norm_args a;
    __device__ float operator()(int64_t c) const {
        double sum = 0.0;
        for (int64_t row = 0; row < a.s.rows; row++) {
            int64_t i = row * a.s.n + c;
            float x = (ab_span_at(a.x, i) - a.mean[row]) * a.rstd[row];
            sum += static_cast<double>(ab_span_at(a.dy, i)) * static_cast<double>(x);
        }
        return static_cast<float>(sum);
    }
};

// Workspace: two floats a row for the sums, two for the statistics where nobody saves them, and the parts of dbias.
static size_t float_bytes(const row_shape &s) {
    return (static_cast<size_t>(4 * s.rows) * sizeof(float) + 255) / 256 * 256;
}

static ab_status prepare_norm(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                              size_t *state_bytes) {
    (void)exec;
    row_shape s = rows_of(&io->in[0]->shape);
    AB_TRY(ab_cuda_only(io));
    *workspace_bytes = float_bytes(s) + ab_cuda_column_bytes(s.rows, s.n);
    *state_bytes = 0;
    return ab_cuda_check_types(io);
}

static norm_args norm_of(const ab_exec *exec, const ab_op_io *io) {
    norm_args a;
    float *floats = static_cast<float *>(exec->workspace);
    a.s = rows_of(&io->in[0]->shape);
    a.x = ab_cuda_span(io->in[0]);
    a.dy = span_or_nothing(io->dout);
    a.weight = span_or_nothing(io->param[0]);
    a.bias = span_or_nothing(io->param[1]);
    a.mean = io->saved[0] ? static_cast<float *>(io->saved[0]->data) : floats + 2 * a.s.rows;
    a.rstd = io->saved[1] ? static_cast<float *>(io->saved[1]->data) : floats + 3 * a.s.rows;
    a.eps = ab_cuda_float(io, "eps", 1e-5);
    return a;
}

static ab_status norm_forward(const ab_exec *exec, ab_op_io *io) {
    norm_args a = norm_of(exec, io);
    row_statistics<<<row_blocks(a.s), ROW_THREADS, 0, ab_cuda_get()->stream>>>(a);
    AB_TRY(ab_cuda_launched("layer_norm_statistics"));
    norm_value f = {a};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "layer_norm"); });
}

static ab_status norm_param_gradients(const ab_exec *exec, ab_op_io *io, const norm_args &a) {
    if (io->dparam[0]) {
        weight_gradient f = {a};
        int64_t n = a.s.n;
        AB_TRY(ab_cuda_emit(exec, io->dparam[0],
                            [=](ab_span out) { return ab_launch_each(f, out, n, "layer_norm_weight"); }));
    }
    if (!io->dparam[1]) return AB_OK;
    double *partial = reinterpret_cast<double *>(static_cast<char *>(exec->workspace) + float_bytes(a.s));
    ab_span dy = a.dy;
    row_shape s = a.s;
    return ab_cuda_emit(exec, io->dparam[1],
                        [=](ab_span out) { return ab_cuda_column_sums(dy, s.rows, s.n, partial, out); });
}

static ab_status norm_backward(const ab_exec *exec, ab_op_io *io) {
    norm_args a = norm_of(exec, io);
    float *g_mean = static_cast<float *>(exec->workspace), *gx_mean = g_mean + a.s.rows;
    cudaStream_t stream = ab_cuda_get()->stream;
    if (!io->saved[0] || !io->saved[1]) {
        row_statistics<<<row_blocks(a.s), ROW_THREADS, 0, stream>>>(a);
        AB_TRY(ab_cuda_launched("layer_norm_statistics"));
    }
    AB_TRY(norm_param_gradients(exec, io, a));
    if (!io->din[0]) return AB_OK;
    gradient_sums<<<row_blocks(a.s), ROW_THREADS, 0, stream>>>(a, g_mean, gx_mean);
    AB_TRY(ab_cuda_launched("layer_norm_sums"));
    norm_gradient f = {a, g_mean, gx_mean};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "layer_norm_backward"); });
}

// ---- softmax -------------------------------------------------------------------------------------------------

struct softmax_row {
    float shift, factor;
};

__global__ static void softmax_sums(row_shape s, ab_span x, softmax_row *result) {
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        float best = ab_span_at(x, row * s.n);
        double sum = 0.0;
        for (int64_t c = threadIdx.x; c < s.n; c += ROW_THREADS) {
            float v = ab_span_at(x, row * s.n + c);
            if (v > best) best = v;
        }
        best = block_maximum(best);
        for (int64_t c = threadIdx.x; c < s.n; c += ROW_THREADS)
            sum += static_cast<double>(expf(ab_span_at(x, row * s.n + c) - best));
        sum = block_sum(sum);
        if (threadIdx.x != 0) continue;
        result[row].shift = best;
        result[row].factor = static_cast<float>(1.0 / sum);
    }
}

struct softmax_value {
    ab_span x;
    int64_t n;
    const softmax_row *row;
    __device__ float operator()(int64_t i) const {
        const softmax_row &r = row[i / n];
        return expf(ab_span_at(x, i) - r.shift) * r.factor;
    }
};

__global__ static void softmax_dots(row_shape s, ab_span y, ab_span dy, float *dot) {
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        double sum = 0.0;
        for (int64_t c = threadIdx.x; c < s.n; c += ROW_THREADS)
            sum += static_cast<double>(ab_span_at(y, row * s.n + c)) *
                   static_cast<double>(ab_span_at(dy, row * s.n + c));
        sum = block_sum(sum);
        if (threadIdx.x == 0) dot[row] = static_cast<float>(sum);
    }
}

struct softmax_gradient {
    ab_span y, dy;
    int64_t n;
    const float *dot;
    __device__ float operator()(int64_t i) const {
        return ab_span_at(y, i) * (ab_span_at(dy, i) - dot[i / n]);
    }
};

static ab_status prepare_softmax(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                                 size_t *state_bytes) {
    (void)exec;
    AB_TRY(ab_cuda_only(io));
    *workspace_bytes = static_cast<size_t>(rows_of(&io->in[0]->shape).rows) * sizeof(softmax_row);
    *state_bytes = 0;
    return ab_cuda_check_types(io);
}

static ab_status softmax_forward(const ab_exec *exec, ab_op_io *io) {
    row_shape s = rows_of(&io->in[0]->shape);
    softmax_row *row = static_cast<softmax_row *>(exec->workspace);
    ab_span x = ab_cuda_span(io->in[0]);
    softmax_sums<<<row_blocks(s), ROW_THREADS, 0, ab_cuda_get()->stream>>>(s, x, row);
    AB_TRY(ab_cuda_launched("softmax_sums"));
    softmax_value f = {x, s.n, row};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "softmax"); });
}

static ab_status softmax_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    row_shape s = rows_of(&io->out->shape);
    float *dot = static_cast<float *>(exec->workspace);
    ab_span y = ab_cuda_span(io->out), dy = ab_cuda_span(io->dout);
    softmax_dots<<<row_blocks(s), ROW_THREADS, 0, ab_cuda_get()->stream>>>(s, y, dy, dot);
    AB_TRY(ab_cuda_launched("softmax_dots"));
    softmax_gradient f = {y, dy, s.n, dot};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "softmax_backward"); });
}

const ab_op ab_cuda_layer_norm = ab_cuda_op("layer_norm", prepare_norm, norm_forward, norm_backward);
const ab_op ab_cuda_softmax = ab_cuda_op("softmax", prepare_softmax, softmax_forward, softmax_backward);
