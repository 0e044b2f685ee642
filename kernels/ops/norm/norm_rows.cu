// layer_norm, rms_norm and apex's fused norms (norm_rows.h) on CUDA: one block per row.
#include "kernels/cuda/cuda_rows.cuh"

namespace {

struct norm_args {
    ab_cuda_rows s;
    bool centred;            // rms_norm: mean 0
    bool fused, from_output; // norm_rows.h; from_output: x is the output
    ab_span x, dy, weight, bias;
    float *mean, *rstd; // per row
    double eps;
    int stored;  // fused: the output's type
    float least; // fused: the least weight of the input's gradient
};

__device__ static float weight_at(const norm_args &a, int64_t c) {
    return a.weight.data ? ab_span_at(a.weight, c) : 1.0f;
}

__device__ static float bias_at(const norm_args &a, int64_t c) {
    return a.bias.data ? ab_span_at(a.bias, c) : 0.0f;
}

// The weight of the input's gradient.
__device__ static float pull_at(const norm_args &a, int64_t c) {
    float weight = weight_at(a, c);
    if (!a.fused || !a.weight.data || !(fabsf(weight) < a.least)) return weight;
    return weight >= 0.0f ? a.least : -a.least;
}

static AB_HOST_DEVICE float as_stored(float x, int type) {
    uint32_t room = 0;
    ab_store(&room, type, 0, x);
    return ab_load(&room, type, 0);
}

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
    if (a.from_output) {
        int64_t c = i - row * a.s.n;
        return (ab_span_at(a.x, i) - bias_at(a, c)) / pull_at(a, c);
    }
    float mean = a.centred ? a.mean[row] : 0.0f;
    return (ab_span_at(a.x, i) - mean) * a.rstd[row];
}

struct norm_value {
    norm_args a;
    __device__ float operator()(int64_t i) const {
        int64_t c, row = ab_divide(i, a.s.n, &c);
        float x = normalised(a, row, i);
        if (!a.fused) return x * weight_at(a, c) + bias_at(a, c);
        if (!a.weight.data) return x;
        x = as_stored(x, a.stored) * weight_at(a, c);
        return a.bias.data ? as_stored(x, a.stored) + bias_at(a, c) : x;
    }
};

// From the output: the weight times the normalised value is the output minus the bias.
__device__ static double output_term(const norm_args &a, int64_t i, int64_t c) {
    float x = ab_span_at(a.x, i) - bias_at(a, c);
    return static_cast<double>(ab_span_at(a.dy, i)) * static_cast<double>(x);
}

// Row sums for the input gradient: of g = dy weight, and of g times the normalised input.
__global__ static void gradient_sums(norm_args a, float *g_mean, float *gx_mean) {
    for (int64_t row = blockIdx.x; row < a.s.rows; row += gridDim.x) {
        double g_sum = 0.0, gx_sum = 0.0, n = static_cast<double>(a.s.n);
        for (int64_t c = threadIdx.x; c < a.s.n; c += AB_CUDA_ROW_THREADS) {
            double g = static_cast<double>(ab_span_at(a.dy, row * a.s.n + c));
            if (a.weight.data) g *= static_cast<double>(ab_span_at(a.weight, c));
            g_sum += g;
            gx_sum += a.from_output ? output_term(a, row * a.s.n + c, c)
                                    : g * static_cast<double>(normalised(a, row, row * a.s.n + c));
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
        float g = ab_span_at(a.dy, i) * pull_at(a, c);
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

// Whether the saved statistics include a mean: not where backward reads the output.
static bool has_mean(const ab_op_io *io, bool centred) {
    return centred && !ab_cuda_bool(io, "memory_efficient", false);
}

static norm_args norm_of(const ab_exec *exec, const ab_op_io *io, bool centred, bool backward) {
    norm_args a = {};
    float *floats = static_cast<float *>(exec->workspace);
    bool kept = has_mean(io, centred);
    const ab_tensor *mean = kept ? io->saved[0] : nullptr, *rstd = io->saved[kept ? 1 : 0];
    a.s = ab_cuda_rows_of(&io->in[0]->shape);
    a.centred = centred;
    a.from_output = backward && ab_cuda_bool(io, "memory_efficient", false);
    a.x = ab_cuda_span(a.from_output ? io->out : io->in[0]);
    a.dy = ab_cuda_optional(io->dout);
    a.weight = ab_cuda_optional(io->param[0]);
    a.bias = ab_cuda_optional(io->param[1]);
    a.mean = mean ? static_cast<float *>(mean->data) : floats + 2 * a.s.rows;
    a.rstd = rstd ? static_cast<float *>(rstd->data) : floats + 3 * a.s.rows;
    a.eps = ab_cuda_float(io, "eps", 1e-5);
    return a;
}

static norm_args fused_of(const ab_op_io *io, norm_args a) {
    a.fused = true;
    a.stored = io->out ? ab_cuda_type(io->out->format) : AB_ELEMENT_F32;
    a.least = a.weight.data ? as_stored(static_cast<float>(a.eps), a.weight.type) : 0.0f;
    return a;
}

static bool is_saved(const ab_op_io *io, bool centred) {
    return io->saved[0] && (!has_mean(io, centred) || io->saved[1]);
}

template <bool CENTRED, bool FUSED> static ab_status norm_forward(const ab_exec *exec, ab_op_io *io) {
    norm_args a = norm_of(exec, io, CENTRED, false);
    if (FUSED) a = fused_of(io, a);
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

template <bool CENTRED, bool FUSED> static ab_status norm_backward(const ab_exec *exec, ab_op_io *io) {
    norm_args a = norm_of(exec, io, CENTRED, true);
    if (FUSED) a = fused_of(io, a);
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

template <bool CENTRED, bool FUSED> static ab_op descriptor(const char *name) {
    return ab_cuda_op(name, prepare_norm, norm_forward<CENTRED, FUSED>, norm_backward<CENTRED, FUSED>);
}

const ab_op ab_cuda_layer_norm = descriptor<true, false>("layer_norm");
const ab_op ab_cuda_rms_norm = descriptor<false, false>("rms_norm");
const ab_op ab_cuda_fused_layer_norm = descriptor<true, true>("fused_layer_norm");
const ab_op ab_cuda_mixed_fused_layer_norm = descriptor<true, true>("mixed_fused_layer_norm");
const ab_op ab_cuda_fused_rms_norm = descriptor<false, true>("fused_rms_norm");
const ab_op ab_cuda_mixed_fused_rms_norm = descriptor<false, true>("mixed_fused_rms_norm");
