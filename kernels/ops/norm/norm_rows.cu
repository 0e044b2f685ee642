// layer_norm, rms_norm, softmax and log_softmax on CUDA: one block a row, sums in double and in a fixed tree.
#include "kernels/cuda/cuda_fold.cuh"

enum { ROW_THREADS = 128 };

__device__ static double block_sum(double x) { return ab_block_fold<ROW_THREADS>(ab_plus(), x); }

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

// ---- layer_norm and rms_norm ---------------------------------------------------------------------------------

struct norm_args {
    row_shape s;
    bool centred; // rms_norm: mean 0
    ab_span x, dy, weight, bias;
    float *mean, *rstd; // a row
    double eps;
};

__global__ static void row_statistics(norm_args a) {
    for (int64_t row = blockIdx.x; row < a.s.rows; row += gridDim.x) {
        double sum = 0.0, squares = 0.0, n = static_cast<double>(a.s.n);
        for (int64_t c = threadIdx.x; a.centred && c < a.s.n; c += ROW_THREADS)
            sum += static_cast<double>(ab_span_at(a.x, row * a.s.n + c));
        double mean = block_sum(sum) / n;
        for (int64_t c = threadIdx.x; c < a.s.n; c += ROW_THREADS) {
            double d = static_cast<double>(ab_span_at(a.x, row * a.s.n + c)) - mean;
            squares += d * d;
        }
        double var = block_sum(squares) / n;
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

// Sums a row's input gradient needs: of g = dy weight, and of g times the normalised input.
__global__ static void gradient_sums(norm_args a, float *g_mean, float *gx_mean) {
    for (int64_t row = blockIdx.x; row < a.s.rows; row += gridDim.x) {
        double g_sum = 0.0, gx_sum = 0.0, n = static_cast<double>(a.s.n);
        for (int64_t c = threadIdx.x; c < a.s.n; c += ROW_THREADS) {
            double g = static_cast<double>(ab_span_at(a.dy, row * a.s.n + c));
            if (a.weight.data) g *= static_cast<double>(ab_span_at(a.weight, c));
            float x = normalised(a, row, row * a.s.n + c);
            g_sum += g;
            gx_sum += g * static_cast<double>(x);
        }
        g_sum = block_sum(g_sum);
        gx_sum = block_sum(gx_sum);
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

// Terms of the parameters' gradients, which are sums over rows.
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

static ab_fold over_rows(const row_shape &s) {
    ab_shape shape = {2, {s.rows, s.n}};
    return ab_fold_of(&shape, 1u);
}

// Workspace: two floats a row for the sums, two for the statistics where nobody saves them, and the parts of a fold.
static size_t float_bytes(const row_shape &s) {
    return ab_cuda_aligned(static_cast<size_t>(4 * s.rows) * sizeof(float));
}

static ab_status prepare_norm(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                              size_t *state_bytes) {
    (void)exec;
    row_shape s = rows_of(&io->in[0]->shape);
    AB_TRY(ab_cuda_only(io));
    ab_fold g = over_rows(s);
    *workspace_bytes = float_bytes(s) + ab_fold_bytes(&g);
    *state_bytes = 0;
    return ab_cuda_check_types(io);
}

static norm_args norm_of(const ab_exec *exec, const ab_op_io *io, bool centred) {
    norm_args a;
    float *floats = static_cast<float *>(exec->workspace);
    const ab_tensor *mean = centred ? io->saved[0] : nullptr, *rstd = io->saved[centred ? 1 : 0];
    a.s = rows_of(&io->in[0]->shape);
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
    row_statistics<<<row_blocks(a.s), ROW_THREADS, 0, ab_cuda_get()->stream>>>(a);
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
    cudaStream_t stream = ab_cuda_get()->stream;
    if (!is_saved(io, CENTRED)) {
        row_statistics<<<row_blocks(a.s), ROW_THREADS, 0, stream>>>(a);
        AB_TRY(ab_cuda_launched("norm_statistics"));
    }
    AB_TRY(norm_param_gradients(exec, io, a));
    if (!io->din[0]) return AB_OK;
    gradient_sums<<<row_blocks(a.s), ROW_THREADS, 0, stream>>>(a, g_mean, gx_mean);
    AB_TRY(ab_cuda_launched("norm_sums"));
    norm_gradient f = {a, g_mean, gx_mean};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "norm_backward"); });
}

// ---- softmax and log_softmax ---------------------------------------------------------------------------------

struct softmax_row {
    float shift, factor; // log_softmax: the logarithm of the sum in the place of its inverse
};

__global__ static void softmax_sums(row_shape s, ab_span x, bool logarithm, softmax_row *result) {
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        double best = ab_larger::start(), sum = 0.0;
        for (int64_t c = threadIdx.x; c < s.n; c += ROW_THREADS)
            best = ab_larger()(best, static_cast<double>(ab_span_at(x, row * s.n + c)));
        float shift = static_cast<float>(ab_block_fold<ROW_THREADS>(ab_larger(), best));
        for (int64_t c = threadIdx.x; c < s.n; c += ROW_THREADS)
            sum += static_cast<double>(expf(ab_span_at(x, row * s.n + c) - shift));
        sum = block_sum(sum);
        if (threadIdx.x != 0) continue;
        result[row].shift = shift;
        result[row].factor = static_cast<float>(logarithm ? log(sum) : 1.0 / sum);
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
        return logarithm ? d - r.factor : expf(d) * r.factor;
    }
};

// What a row's gradient needs: the sum of y dy, or of dy for log_softmax.
__global__ static void softmax_dots(row_shape s, ab_span y, ab_span dy, bool logarithm, float *dot) {
    for (int64_t row = blockIdx.x; row < s.rows; row += gridDim.x) {
        double sum = 0.0;
        for (int64_t c = threadIdx.x; c < s.n; c += ROW_THREADS) {
            double d = static_cast<double>(ab_span_at(dy, row * s.n + c));
            sum += logarithm ? d : d * static_cast<double>(ab_span_at(y, row * s.n + c));
        }
        sum = block_sum(sum);
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
        return logarithm ? d - expf(out) * dot[row] : out * (d - dot[row]);
    }
};

static ab_status prepare_softmax(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                                 size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    *workspace_bytes = static_cast<size_t>(rows_of(&io->in[0]->shape).rows) * sizeof(softmax_row);
    return AB_OK;
}

template <bool LOGARITHM> static ab_status softmax_forward(const ab_exec *exec, ab_op_io *io) {
    row_shape s = rows_of(&io->in[0]->shape);
    softmax_row *row = static_cast<softmax_row *>(exec->workspace);
    ab_span x = ab_cuda_span(io->in[0]);
    softmax_sums<<<row_blocks(s), ROW_THREADS, 0, ab_cuda_get()->stream>>>(s, x, LOGARITHM, row);
    AB_TRY(ab_cuda_launched("softmax_sums"));
    softmax_value f = {x, s.n, row, LOGARITHM};
    int64_t n = ab_cuda_count(io->out);
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "softmax"); });
}

template <bool LOGARITHM> static ab_status softmax_backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    row_shape s = rows_of(&io->out->shape);
    float *dot = static_cast<float *>(exec->workspace);
    ab_span y = ab_cuda_span(io->out), dy = ab_cuda_span(io->dout);
    softmax_dots<<<row_blocks(s), ROW_THREADS, 0, ab_cuda_get()->stream>>>(s, y, dy, LOGARITHM, dot);
    AB_TRY(ab_cuda_launched("softmax_dots"));
    softmax_gradient f = {y, dy, s.n, dot, LOGARITHM};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "softmax_backward"); });
}

const ab_op ab_cuda_layer_norm =
    ab_cuda_op("layer_norm", prepare_norm, norm_forward<true>, norm_backward<true>);
const ab_op ab_cuda_rms_norm =
    ab_cuda_op("rms_norm", prepare_norm, norm_forward<false>, norm_backward<false>);
const ab_op ab_cuda_softmax =
    ab_cuda_op("softmax", prepare_softmax, softmax_forward<false>, softmax_backward<false>);
const ab_op ab_cuda_log_softmax =
    ab_cuda_op("log_softmax", prepare_softmax, softmax_forward<true>, softmax_backward<true>);
