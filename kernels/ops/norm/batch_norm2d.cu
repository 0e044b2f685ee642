// batch_norm2d and batch_norm1d on CUDA: two sums per channel in double, in a fixed order (blocks of rows,
// combined in order), then one element-wise pass. Mean and variance come from sums of x and x * x; in double
// the cancellation is below fp32 precision.
#include "kernels/cuda/cuda_ops.cuh"

namespace {

// A block sums BN_ROWS rows of 32 channels, with eight threads per channel.
enum { BN_ROWS = 512, BN_COLUMNS = 32, BN_THREADS = 8 };

struct bn_sizes {
    int64_t rows, channels, parts;
};

static bn_sizes sizes_of(const ab_shape *in) {
    int64_t channels = in->dim[in->ndim - 1];
    bn_sizes s = {1, channels, 0};
    for (int i = 0; i + 1 < in->ndim; i++) s.rows *= in->dim[i];
    s.parts = (s.rows + BN_ROWS - 1) / BN_ROWS;
    return s;
}

// Workspace: two doubles per part and channel; then four floats per channel.
static size_t partial_bytes(const bn_sizes &s) {
    return static_cast<size_t>(2 * s.parts * s.channels) * sizeof(double);
}

struct bn_factors {
    float *mean, *scale, *shift, *slope;
};

static bn_factors factors_in(const ab_exec *exec, const bn_sizes &s) {
    float *first = reinterpret_cast<float *>(static_cast<char *>(exec->workspace) + partial_bytes(s));
    bn_factors f = {first, first + s.channels, first + 2 * s.channels, first + 3 * s.channels};
    return f;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    AB_TRY(ab_cuda_check_attributes(io));
    bn_sizes s = sizes_of(&io->in[0]->shape);
    if (s.parts > 65535) return ab_fail(AB_UNAVAILABLE, "batch norm: too many rows for the CUDA kernel");
    *workspace_bytes = partial_bytes(s) + static_cast<size_t>(4 * s.channels) * sizeof(float);
    *state_bytes = 0;
    return ab_cuda_check_types(io);
}

// ---- two sums per channel -----------------------------------------------------------------------

// dy.data null: sums of x and of x * x. Else: of dy and of dy * (x - mean).
__global__ static void partial_pairs(ab_span x, ab_span dy, const float *mean, int64_t rows, int64_t channels,
                                     double *partial) {
    __shared__ double first_part[BN_THREADS][BN_COLUMNS], second_part[BN_THREADS][BN_COLUMNS];
    int64_t c = static_cast<int64_t>(blockIdx.x) * BN_COLUMNS + threadIdx.x;
    int64_t begin = static_cast<int64_t>(blockIdx.y) * BN_ROWS;
    int64_t end = begin + BN_ROWS < rows ? begin + BN_ROWS : rows;
    double a = 0.0, b = 0.0;
    for (int64_t r = begin + threadIdx.y; c < channels && r < end; r += BN_THREADS) {
        double value = static_cast<double>(ab_span_at(x, r * channels + c));
        if (dy.data) {
            double gradient = static_cast<double>(ab_span_at(dy, r * channels + c));
            a += gradient;
            b += gradient * (value - static_cast<double>(mean[c]));
        } else {
            a += value;
            b += value * value;
        }
    }
    first_part[threadIdx.y][threadIdx.x] = a;
    second_part[threadIdx.y][threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.y != 0 || c >= channels) return;
    for (int k = 1; k < BN_THREADS; k++) {
        a += first_part[k][threadIdx.x];
        b += second_part[k][threadIdx.x];
    }
    partial[2 * (blockIdx.y * channels + c)] = a;
    partial[2 * (blockIdx.y * channels + c) + 1] = b;
}

static ab_status sum_pairs(const bn_sizes &s, ab_span x, ab_span dy, const float *mean, double *partial) {
    dim3 grid(static_cast<unsigned>((s.channels + BN_COLUMNS - 1) / BN_COLUMNS),
              static_cast<unsigned>(s.parts));
    AB_CUDA_LAUNCH(partial_pairs, grid, dim3(BN_COLUMNS, BN_THREADS), 0, ab_cuda_context()->stream, x, dy,
                   mean, s.rows, s.channels, partial);
    return ab_cuda_launched("batch_norm_sums");
}

struct pair_of_sums {
    double a, b;
};

__device__ static pair_of_sums join_pairs(const double *partial, int64_t parts, int64_t channels, int64_t c) {
    pair_of_sums sum = {0.0, 0.0};
    for (int64_t p = 0; p < parts; p++) {
        sum.a += partial[2 * (p * channels + c)];
        sum.b += partial[2 * (p * channels + c) + 1];
    }
    return sum;
}

// ---- statistics from a channel's sums -----------------------------------------------------------

struct bn_channel {
    bn_sizes s;
    const double *partial;
    bn_factors f;
    ab_span gamma, beta, running_mean, running_var, saved_mean, saved_invstd; // data null: absent
    ab_span dgamma, dbeta;
    double eps, momentum;
    bool training;
};

__device__ static float value_or(ab_span span, int64_t c, float otherwise) {
    return span.data ? ab_span_at(span, c) : otherwise;
}

__device__ static void keep(ab_span span, int64_t c, double x) {
    if (span.data) ab_store(span.data, span.type, c, static_cast<float>(x));
}

__global__ static void forward_factors(bn_channel k) {
    int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= k.s.channels) return;
    double mean, invstd, n = static_cast<double>(k.s.rows);
    if (k.training) {
        pair_of_sums sum = join_pairs(k.partial, k.s.parts, k.s.channels, c);
        mean = sum.a / n;
        double m2 = sum.b - sum.a * mean;
        if (m2 < 0.0) m2 = 0.0; // negative by rounding for a constant channel; NaN propagates
        invstd = 1.0 / sqrt(m2 / n + k.eps);
        double old_mean = static_cast<double>(value_or(k.running_mean, c, 0.0f));
        double old_var = static_cast<double>(value_or(k.running_var, c, 1.0f));
        keep(k.saved_mean, c, mean);
        keep(k.saved_invstd, c, invstd);
        keep(k.running_mean, c, (1.0 - k.momentum) * old_mean + k.momentum * mean);
        keep(k.running_var, c, (1.0 - k.momentum) * old_var + k.momentum * (m2 / (n - 1.0)));
    } else {
        mean = static_cast<double>(value_or(k.running_mean, c, 0.0f));
        invstd = 1.0 / sqrt(static_cast<double>(value_or(k.running_var, c, 1.0f)) + k.eps);
    }
    k.f.mean[c] = static_cast<float>(mean);
    k.f.scale[c] = static_cast<float>(invstd) * value_or(k.gamma, c, 1.0f);
    k.f.shift[c] = value_or(k.beta, c, 0.0f);
}

// Before the sums of a backward pass: sets the mean to subtract, and 1 / standard deviation in `scale`.
__global__ static void backward_start(bn_channel k) {
    int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= k.s.channels) return;
    if (k.training) {
        k.f.mean[c] = value_or(k.saved_mean, c, 0.0f);
        k.f.scale[c] = value_or(k.saved_invstd, c, 1.0f);
    } else {
        k.f.mean[c] = value_or(k.running_mean, c, 0.0f);
        k.f.scale[c] =
            static_cast<float>(1.0 / sqrt(static_cast<double>(value_or(k.running_var, c, 1.0f)) + k.eps));
    }
}

__global__ static void backward_factors(bn_channel k) {
    int64_t c = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (c >= k.s.channels) return;
    pair_of_sums sum = join_pairs(k.partial, k.s.parts, k.s.channels, c);
    double n = static_cast<double>(k.s.rows), invstd = static_cast<double>(k.f.scale[c]);
    keep(k.dgamma, c, sum.b * invstd);
    keep(k.dbeta, c, sum.a);
    k.f.shift[c] = k.training ? static_cast<float>(sum.a / n) : 0.0f;
    k.f.slope[c] = k.training ? static_cast<float>(invstd * invstd * sum.b / n) : 0.0f;
    k.f.scale[c] *= value_or(k.gamma, c, 1.0f);
}

// ---- element-wise -------------------------------------------------------------------------------

struct bn_apply {
    ab_span x;
    bn_factors f;
    int64_t channels;
    __device__ float operator()(int64_t i) const {
        int64_t c = i % channels;
        return ab_f_bn_apply(ab_span_at(x, i), f.mean[c], f.scale[c], f.shift[c]);
    }
};

struct bn_gradient {
    ab_span x, dy;
    bn_factors f;
    int64_t channels;
    __device__ float operator()(int64_t i) const {
        int64_t c = i % channels;
        return ab_f_bn_backward(ab_span_at(dy, i), ab_span_at(x, i), f.mean[c], f.scale[c], f.shift[c],
                                f.slope[c]);
    }
};

struct bn_scale {
    ab_span dy;
    bn_factors f;
    int64_t channels;
    __device__ float operator()(int64_t i) const { return ab_span_at(dy, i) * f.scale[i % channels]; }
};

// ---- passes -------------------------------------------------------------------------------------

static ab_span span_or_nothing(const ab_tensor *tensor) {
    return tensor ? ab_cuda_span(tensor) : ab_cuda_span_of(nullptr, AB_ELEMENT_F32);
}

static bn_channel channel_of(const ab_exec *exec, const ab_op_io *io) {
    bool affine = ab_cuda_bool(io, "affine", true);
    int running = affine ? 2 : 0;
    bn_channel k;
    k.s = sizes_of(&io->in[0]->shape);
    k.partial = static_cast<const double *>(exec->workspace);
    k.f = factors_in(exec, k.s);
    k.gamma = span_or_nothing(affine ? io->param[0] : nullptr);
    k.beta = span_or_nothing(affine ? io->param[1] : nullptr);
    k.dgamma = span_or_nothing(affine ? io->dparam[0] : nullptr);
    k.dbeta = span_or_nothing(affine ? io->dparam[1] : nullptr);
    k.running_mean = span_or_nothing(io->param[running]);
    k.running_var = span_or_nothing(io->param[running + 1]);
    k.saved_mean = span_or_nothing(io->saved[0]);
    k.saved_invstd = span_or_nothing(io->saved[1]);
    k.eps = ab_cuda_float(io, "eps", 1e-5);
    k.momentum = ab_cuda_float(io, "momentum", 0.1);
    k.training = exec->training;
    return k;
}

template <typename K> static ab_status each_channel(K kernel, const bn_channel &k, const char *what) {
    unsigned blocks = static_cast<unsigned>((k.s.channels + AB_CUDA_THREADS - 1) / AB_CUDA_THREADS);
    AB_CUDA_LAUNCH(kernel, blocks, AB_CUDA_THREADS, 0, ab_cuda_context()->stream, k);
    return ab_cuda_launched(what);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    bn_channel k = channel_of(exec, io);
    ab_span x = ab_cuda_span(io->in[0]);
    if (k.training && k.s.rows < 2)
        return ab_fail(AB_CONFIG, "a batch norm needs more than one value a channel to train");
    if (k.training)
        AB_TRY(sum_pairs(k.s, x, ab_cuda_span_of(nullptr, AB_ELEMENT_F32), nullptr,
                         static_cast<double *>(exec->workspace)));
    AB_TRY(each_channel(forward_factors, k, "batch_norm_factors"));
    bn_apply f = {x, k.f, k.s.channels};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "batch_norm"); });
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    bn_channel k = channel_of(exec, io);
    ab_span x = ab_cuda_span(io->in[0]), dy = ab_cuda_span(io->dout);
    int64_t n = ab_cuda_count(io->dout), channels = k.s.channels;
    bool training = k.training;
    AB_TRY(each_channel(backward_start, k, "batch_norm_start"));
    AB_TRY(sum_pairs(k.s, x, dy, k.f.mean, static_cast<double *>(exec->workspace)));
    AB_TRY(each_channel(backward_factors, k, "batch_norm_backward_factors"));
    if (!io->din[0]) return AB_OK;
    bn_factors f = k.f;
    return ab_cuda_emit(exec, io->din[0], [=](ab_span din) {
        bn_gradient whole = {x, dy, f, channels};
        bn_scale scaled = {dy, f, channels};
        return training ? ab_launch_each(whole, din, n, "batch_norm_backward")
                        : ab_launch_each(scaled, din, n, "batch_norm_backward");
    });
}

} // namespace

const ab_op ab_cuda_batch_norm2d = ab_cuda_op("batch_norm2d", prepare, forward, backward);
const ab_op ab_cuda_batch_norm1d = ab_cuda_op("batch_norm1d", prepare, forward, backward);
