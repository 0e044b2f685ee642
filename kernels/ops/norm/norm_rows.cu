// layer_norm and rms_norm on CUDA: one block per row.
#include "kernels/cuda/cuda_rows.cuh"

namespace {

struct norm_args {
    ab_cuda_rows s;
    bool centred; // rms_norm: mean 0
    ab_span x, dy, weight, bias;
    float *mean, *rstd; // per row
    double eps;
};

__global__ static void row_statistics(norm_args a) {
    for (int64_t row = blockIdx.x; row < a.s.rows; row += gridDim.x) {
        double sum = 0.0, squares = 0.0, n = static_cast<double>(a.s.n);
        for (int64_t c = threadIdx.x; a.centred && c < a.s.n; c += AB_CUDA_ROW_THREADS)
            sum += static_cast<double>(ab_span_at(a.x, row * a.s.n + c));
        double mean = ab_cuda_row_sum(sum) / n;
        for (int64_t c = threadIdx.x; c < a.s.n; c += AB_CUDA_ROW_THREADS) {
            double d = static_cast<double>(ab_span_at(a.x, row * a.s.n + c)) - mean;
            squares += d * d;
        }
        double var = ab_cuda_row_sum(squares) / n;
        if (threadIdx.x != 0) continue;
        if (a.mean) a.mean[row] = static_cast<float>(mean);
        a.rstd[row] = static_cast<float>(1.0 / sqrt(var + a.eps));
    }
}

__device__ static float normalised(const norm_args &a, int64_t row, int64_t i) {
    float mean = a.centred ? a.mean[row] : 0.0f;
    return (ab_span_at(a.x, i) - mean) * a.rstd[row];
}

struct norm_value {
    norm_args a;
    __device__ float operator()(int64_t i) const {
        int64_t c, row = ab_divide(i, a.s.n, &c);
        float weight = a.weight.data ? ab_span_at(a.weight, c) : 1.0f,
              bias = a.bias.data ? ab_span_at(a.bias, c) : 0.0f;
        return normalised(a, row, i) * weight + bias;
    }
};

// Row sums for the input gradient: of g = dy weight, and of g times the normalised input.
__global__ static void gradient_sums(norm_args a, float *g_mean, float *gx_mean) {
    for (int64_t row = blockIdx.x; row < a.s.rows; row += gridDim.x) {
        double g_sum = 0.0, gx_sum = 0.0, n = static_cast<double>(a.s.n);
        for (int64_t c = threadIdx.x; c < a.s.n; c += AB_CUDA_ROW_THREADS) {
            double g = static_cast<double>(ab_span_at(a.dy, row * a.s.n + c));
            if (a.weight.data) g *= static_cast<double>(ab_span_at(a.weight, c));
            float x = normalised(a, row, row * a.s.n + c);
            g_sum += g;
            gx_sum += g * static_cast<double>(x);
        }
        g_sum = ab_cuda_row_sum(g_sum);
        gx_sum = ab_cuda_row_sum(gx_sum);
        if (threadIdx.x != 0) continue;
        g_mean[row] = a.centred ? static_cast<float>(g_sum / n) : 0.0f;
        gx_mean[row] = static_cast<float>(gx_sum / n);
    }
}

struct norm_gradient {
    norm_args a;
    const float *g_mean, *gx_mean;
    __device__ float operator()(int64_t i) const {
        int64_t c, row = ab_divide(i, a.s.n, &c);
        float g = ab_span_at(a.dy, i) * (a.weight.data ? ab_span_at(a.weight, c) : 1.0f);
        float x = normalised(a, row, i);
        return a.rstd[row] * ((g - g_mean[row]) - x * gx_mean[row]);
    }
};

// Terms of the parameter gradients, which are sums over rows.
struct weight_term {
    norm_args a;
    __device__ double operator()(int64_t i) const {
        int64_t c, row = ab_divide(i, a.s.n, &c);
        return static_cast<double>(ab_span_at(a.dy, i)) * static_cast<double>(normalised(a, row, i));
    }
};

struct bias_term {
    ab_span dy;
    __device__ float operator()(int64_t i) const { return ab_span_at(dy, i); }
};

static ab_fold over_rows(const ab_cuda_rows &s) {
    ab_shape shape = {2, {s.rows, s.n}};
    return ab_fold_of(&shape, 1u);
}

// Workspace: two floats per row for the sums, two for the statistics if they are not saved, and the partial
// results of a fold.
static size_t float_bytes(const ab_cuda_rows &s) {
    return ab_cuda_aligned(static_cast<size_t>(4 * s.rows) * sizeof(float));
}

static ab_status prepare_norm(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                              size_t *state_bytes) {
    (void)exec;
    ab_cuda_rows s = ab_cuda_rows_of(&io->in[0]->shape);
    AB_TRY(ab_cuda_check_attributes(io));
    ab_fold g = over_rows(s);
    *workspace_bytes = float_bytes(s) + ab_fold_bytes(&g);
    *state_bytes = 0;
    return ab_cuda_check_types(io);
}

static norm_args norm_of(const ab_exec *exec, const ab_op_io *io, bool centred) {
    norm_args a;
    float *floats = static_cast<float *>(exec->workspace);
    const ab_tensor *mean = centred ? io->saved[0] : nullptr, *rstd = io->saved[centred ? 1 : 0];
    a.s = ab_cuda_rows_of(&io->in[0]->shape);
    a.centred = centred;
    a.x = ab_cuda_span(io->in[0]);
    a.dy = ab_cuda_optional(io->dout);
    a.weight = ab_cuda_optional(io->param[0]);
    a.bias = ab_cuda_optional(io->param[1]);
    a.mean = mean ? static_cast<float *>(mean->data) : floats + 2 * a.s.rows;
    a.rstd = rstd ? static_cast<float *>(rstd->data) : floats + 3 * a.s.rows;
    a.eps = ab_cuda_float(io, "eps", 1e-5);
    return a;
}

static bool is_saved(const ab_op_io *io, bool centred) { return io->saved[0] && (!centred || io->saved[1]); }

template <bool CENTRED> static ab_status norm_forward(const ab_exec *exec, ab_op_io *io) {
    norm_args a = norm_of(exec, io, CENTRED);
    AB_CUDA_LAUNCH(row_statistics, ab_cuda_row_blocks(a.s), AB_CUDA_ROW_THREADS, 0, ab_cuda_context()->stream,
                   a);
    AB_TRY(ab_cuda_launched("norm_statistics"));
    norm_value f = {a};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "norm"); });
}

static ab_status norm_param_gradients(const ab_exec *exec, ab_op_io *io, const norm_args &a) {
    void *partial = static_cast<char *>(exec->workspace) + float_bytes(a.s);
    ab_fold g = over_rows(a.s);
    weight_term weight = {a};
    bias_term bias = {a.dy};
    if (io->dparam[0])
        AB_TRY(ab_cuda_emit(exec, io->dparam[0], [=](ab_span out) {
            return ab_fold_into(ab_plus(), weight, g, 1.0, partial, out);
        }));
    if (!io->dparam[1]) return AB_OK;
    return ab_cuda_emit(exec, io->dparam[1],
                        [=](ab_span out) { return ab_fold_into(ab_plus(), bias, g, 1.0, partial, out); });
}

template <bool CENTRED> static ab_status norm_backward(const ab_exec *exec, ab_op_io *io) {
    norm_args a = norm_of(exec, io, CENTRED);
    float *g_mean = static_cast<float *>(exec->workspace), *gx_mean = g_mean + a.s.rows;
    cudaStream_t stream = ab_cuda_context()->stream;
    if (!is_saved(io, CENTRED)) {
        AB_CUDA_LAUNCH(row_statistics, ab_cuda_row_blocks(a.s), AB_CUDA_ROW_THREADS, 0, stream, a);
        AB_TRY(ab_cuda_launched("norm_statistics"));
    }
    AB_TRY(norm_param_gradients(exec, io, a));
    if (!io->din[0]) return AB_OK;
    AB_CUDA_LAUNCH(gradient_sums, ab_cuda_row_blocks(a.s), AB_CUDA_ROW_THREADS, 0, stream, a, g_mean,
                   gx_mean);
    AB_TRY(ab_cuda_launched("norm_sums"));
    norm_gradient f = {a, g_mean, gx_mean};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "norm_backward"); });
}

} // namespace

const ab_op ab_cuda_layer_norm =
    ab_cuda_op("layer_norm", prepare_norm, norm_forward<true>, norm_backward<true>);
const ab_op ab_cuda_rms_norm =
    ab_cuda_op("rms_norm", prepare_norm, norm_forward<false>, norm_backward<false>);
