// group_norm on CUDA: one block per group and image for mean and variance (two passes, double); fold kernels
// over the pixels for the gradient sums.
#include "kernels/cuda/cuda_fold.cuh"

namespace {

enum { GROUP_THREADS = 256 };

struct gn_args {
    int64_t images, pixels, channels, groups, width; // width: channels per group
    ab_span x, dy, weight, bias;
    float *mean, *rstd;  // [image][group]
    float *pull, *shift; // [image][group]; backward
    double eps;
    __device__ int64_t group_of(int64_t i, int64_t *channel) const { // of element i of the batch
        int64_t pixel = ab_divide(i, channels, channel), rest;
        return ab_divide(pixel, pixels, &rest) * groups + *channel / width;
    }
    __device__ float weight_at(int64_t c) const { return weight.data ? ab_span_at(weight, c) : 1.0f; }
};

static ab_fold over_pixels(const gn_args &a) {
    ab_shape shape = {3, {a.images, a.pixels, a.channels}};
    return ab_fold_of(&shape, 2u);
}

static size_t group_bytes(const gn_args &a) {
    return ab_cuda_aligned(static_cast<size_t>(4 * a.images * a.groups) * sizeof(float));
}

// Workspace: four floats per group and image; the partial results of two folds.
static gn_args args_of(const ab_exec *exec, const ab_op_io *io) {
    const ab_shape *in = &io->in[0]->shape;
    gn_args a = {};
    a.images = in->dim[0];
    a.pixels = in->dim[1] * in->dim[2];
    a.channels = in->dim[3];
    a.groups = ab_cuda_int(io, "num_groups", 1);
    a.width = a.channels / a.groups;
    a.x = ab_cuda_span(io->in[0]);
    a.dy = ab_cuda_optional(io->dout);
    a.weight = ab_cuda_optional(io->param[0]);
    a.bias = ab_cuda_optional(io->param[1]);
    int64_t n = a.images * a.groups;
    float *floats = static_cast<float *>(exec->workspace);
    a.mean = io->saved[0] ? static_cast<float *>(io->saved[0]->data) : floats;
    a.rstd = io->saved[1] ? static_cast<float *>(io->saved[1]->data) : floats + n;
    a.pull = floats + 2 * n;
    a.shift = floats + 3 * n;
    a.eps = ab_cuda_float(io, "eps", 1e-5);
    return a;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    AB_TRY(ab_cuda_prepare_plain(exec, io, workspace_bytes, state_bytes));
    ab_exec none = *exec;
    none.workspace = nullptr;
    gn_args a = args_of(&none, io);
    ab_fold g = over_pixels(a);
    *workspace_bytes = group_bytes(a) + 2 * ab_fold_bytes(&g);
    return AB_OK;
}

// ---- forward ------------------------------------------------------------------------------------

__device__ static double block_sum(double x) { return ab_block_fold<GROUP_THREADS>(ab_plus(), x); }

__global__ static void group_statistics(gn_args a) {
    int64_t terms = a.pixels * a.width;
    for (int64_t g = blockIdx.x; g < a.images * a.groups; g += gridDim.x) {
        int64_t first = g / a.groups * a.pixels * a.channels + g % a.groups * a.width, c;
        double sum = 0.0, squares = 0.0, n = static_cast<double>(terms);
        for (int64_t k = threadIdx.x; k < terms; k += GROUP_THREADS) {
            int64_t pixel = ab_divide(k, a.width, &c);
            sum += static_cast<double>(ab_span_at(a.x, first + pixel * a.channels + c));
        }
        double mean = block_sum(sum) / n;
        for (int64_t k = threadIdx.x; k < terms; k += GROUP_THREADS) {
            int64_t pixel = ab_divide(k, a.width, &c);
            double d = static_cast<double>(ab_span_at(a.x, first + pixel * a.channels + c)) - mean;
            squares += d * d;
        }
        squares = block_sum(squares);
        if (threadIdx.x != 0) continue;
        a.mean[g] = static_cast<float>(mean);
        a.rstd[g] = static_cast<float>(1.0 / sqrt(squares / n + a.eps));
    }
}

static ab_status measure(const gn_args &a) {
    int64_t n = a.images * a.groups;
    AB_CUDA_LAUNCH(group_statistics, static_cast<unsigned>(n < 65535 ? n : 65535), GROUP_THREADS, 0,
                   ab_cuda_context()->stream, a);
    return ab_cuda_launched("group_statistics");
}

struct gn_value {
    gn_args a;
    __device__ float operator()(int64_t i) const {
        int64_t c, g = a.group_of(i, &c);
        float bias = a.bias.data ? ab_span_at(a.bias, c) : 0.0f;
        return (ab_span_at(a.x, i) - a.mean[g]) * (a.rstd[g] * a.weight_at(c)) + bias;
    }
};

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    gn_value f = {args_of(exec, io)};
    int64_t n = ab_cuda_count(io->out);
    AB_TRY(measure(f.a));
    return ab_cuda_emit(exec, io->out, [=](ab_span out) { return ab_launch_each(f, out, n, "group_norm"); });
}

// ---- backward -----------------------------------------------------------------------------------

struct sum_term {
    gn_args a;
    __device__ float operator()(int64_t i) const { return ab_span_at(a.dy, i); }
};

struct dot_term {
    gn_args a;
    __device__ double operator()(int64_t i) const {
        int64_t c, g = a.group_of(i, &c);
        return static_cast<double>(ab_span_at(a.dy, i)) *
               (static_cast<double>(ab_span_at(a.x, i)) - static_cast<double>(a.mean[g]));
    }
};

typedef ab_folded<ab_plus> channel_sums; // per image and channel: [image][channel]

// Terms subtracted from every gradient of a group, as on the CPU.
__global__ static void group_factors(gn_args a, channel_sums sum, channel_sums dot) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t g = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; g < a.images * a.groups;
         g += step) {
        double all = 0.0, along = 0.0, count = static_cast<double>(a.pixels * a.width);
        double rstd = static_cast<double>(a.rstd[g]);
        for (int64_t k = 0; k < a.width; k++) {
            int64_t c = g % a.groups * a.width + k, at = g / a.groups * a.channels + c;
            all += static_cast<double>(a.weight_at(c)) * sum(at);
            along += static_cast<double>(a.weight_at(c)) * dot(at);
        }
        a.pull[g] = static_cast<float>(rstd * rstd * rstd * along / count);
        a.shift[g] = static_cast<float>(rstd * all / count);
    }
}

struct gn_gradient {
    gn_args a;
    __device__ float operator()(int64_t i) const {
        int64_t c, g = a.group_of(i, &c);
        float slope = a.rstd[g] * a.weight_at(c);
        return (ab_span_at(a.dy, i) * slope - (ab_span_at(a.x, i) - a.mean[g]) * a.pull[g]) - a.shift[g];
    }
};

// Sums over the images in order: gradient of the weight (with rstd) or the bias.
struct param_gradient {
    gn_args a;
    channel_sums sums;
    bool of_weight;
    __device__ float operator()(int64_t c) const {
        double total = 0.0;
        for (int64_t image = 0; image < a.images; image++) {
            double rstd = static_cast<double>(a.rstd[image * a.groups + c / a.width]);
            total += sums(image * a.channels + c) * (of_weight ? rstd : 1.0);
        }
        return static_cast<float>(total);
    }
};

static ab_status input_gradient(const ab_exec *exec, ab_op_io *io, const gn_args &a, const channel_sums &sum,
                                const channel_sums &dot) {
    AB_CUDA_LAUNCH(group_factors, ab_cuda_blocks(a.images * a.groups, AB_CUDA_THREADS), AB_CUDA_THREADS, 0,
                   ab_cuda_context()->stream, a, sum, dot);
    AB_TRY(ab_cuda_launched("group_factors"));
    gn_gradient f = {a};
    int64_t n = ab_cuda_count(io->din[0]);
    return ab_cuda_emit(exec, io->din[0],
                        [=](ab_span din) { return ab_launch_each(f, din, n, "group_norm_backward"); });
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    gn_args a = args_of(exec, io);
    ab_fold g = over_pixels(a);
    char *partial = static_cast<char *>(exec->workspace) + group_bytes(a);
    channel_sums sum, dot;
    sum_term of_sum = {a};
    dot_term of_dot = {a};
    if (!io->saved[0] || !io->saved[1]) AB_TRY(measure(a));
    AB_TRY(ab_fold_start(ab_plus(), of_sum, g, partial, &sum));
    AB_TRY(ab_fold_start(ab_plus(), of_dot, g, partial + ab_fold_bytes(&g), &dot));
    for (int i = 0; i < 2; i++) {
        param_gradient f = {a, i == 0 ? dot : sum, i == 0};
        int64_t n = a.channels;
        if (io->dparam[i])
            AB_TRY(ab_cuda_emit(exec, io->dparam[i],
                                [=](ab_span out) { return ab_launch_each(f, out, n, "group_norm_params"); }));
    }
    return io->din[0] ? input_gradient(exec, io, a, sum, dot) : AB_OK;
}

} // namespace

const ab_op ab_cuda_group_norm = ab_cuda_op("group_norm", prepare, forward, backward);
