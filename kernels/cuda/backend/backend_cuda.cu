// The CUDA device's table: casts, sums, unscaling and updates of tensors, and code shared by all CUDA ops.
// The ops are in the rooms of their CPU versions; steps decided on the device are in resident_cuda.cu.
#include "kernels/backend/backend_layout.h"
#include "kernels/census/census.h"
#include "kernels/core/text.h"
#include "kernels/cuda/cuda_ops.cuh"

#include <cstdio>
#include <cstring>

// ---- tensors ------------------------------------------------------------------------------------

// Compares parameters, not pointers: the plugin has its own copy of the format table.
int ab_cuda_type(const ab_format *format) {
    if (!format) return AB_ELEMENT_NONE;
    if (format->storage_bytes == 4 && format->precision == 24) return AB_ELEMENT_F32;
    if (format->storage_bytes != 2) return AB_ELEMENT_NONE;
    return format->precision == 11  ? AB_ELEMENT_F16
           : format->precision == 8 ? AB_ELEMENT_BF16
                                    : AB_ELEMENT_NONE;
}

ab_span ab_cuda_span(const ab_tensor *tensor) {
    return ab_cuda_span_of(tensor->data, ab_cuda_type(tensor->format));
}

int64_t ab_cuda_count(const ab_tensor *tensor) {
    int64_t count = 1;
    for (int i = 0; i < tensor->shape.ndim; i++) count *= tensor->shape.dim[i];
    return count;
}

static bool known(const ab_tensor *tensor) {
    return !tensor || !tensor->format || ab_cuda_type(tensor->format) != AB_ELEMENT_NONE;
}

ab_status ab_cuda_check_types(const ab_op_io *io) {
    bool all = known(io->out) && known(io->dout);
    for (int i = 0; i < AB_MAX_INPUTS; i++) all = all && known(io->in[i]) && known(io->din[i]);
    for (int i = 0; i < AB_MAX_PARAMS; i++) all = all && known(io->param[i]) && known(io->dparam[i]);
    for (int i = 0; i < AB_MAX_SAVED; i++) all = all && known(io->saved[i]);
    return all ? AB_OK : ab_fail(AB_UNAVAILABLE, "no CUDA kernel for this number format");
}

// ---- attributes ---------------------------------------------------------------------------------

ab_status ab_cuda_prepare_plain(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                                size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = *state_bytes = 0;
    AB_TRY(ab_cuda_check_attributes(io));
    return ab_cuda_check_types(io);
}

static const void *attribute(const ab_op_io *io, const char *name, ab_attr_kind kind) {
    for (const ab_attr *a = io->op->attrs; a && a->name; a++)
        if (strcmp(a->name, name) == 0 && a->kind == kind)
            return static_cast<const char *>(io->attrs) + a->offset;
    return nullptr;
}

static const char *known_attributes(const char *op) {
    static const struct {
        const char *op, *attributes;
    } rows[] = {
#define AB_CUDA_OP(name, attributes) {#name, attributes},
#include "kernels/cuda/cuda_ops.def"
#undef AB_CUDA_OP
    };
    for (const auto &row : rows)
        if (strcmp(row.op, op) == 0) return row.attributes;
    return "";
}

ab_status ab_cuda_check_attributes(const ab_op_io *io) {
    char list[256], wanted[64];
    ab_text_exact(list, sizeof list, " %s ", known_attributes(io->op->name));
    for (const ab_attr *a = io->op->attrs; a && a->name; a++) {
        ab_text_exact(wanted, sizeof wanted, " %s ", a->name);
        if (!strstr(list, wanted))
            return ab_fail(AB_UNAVAILABLE, "%s: no CUDA kernel that knows '%s'", io->op->name, a->name);
    }
    return AB_OK;
}

int64_t ab_cuda_int(const ab_op_io *io, const char *name, int64_t otherwise) {
    const void *value = attribute(io, name, AB_ATTR_INT);
    if (!value) value = attribute(io, name, AB_ATTR_CHOICE);
    return value ? *static_cast<const int64_t *>(value) : otherwise;
}

double ab_cuda_float(const ab_op_io *io, const char *name, double otherwise) {
    const void *value = attribute(io, name, AB_ATTR_FLOAT);
    return value ? *static_cast<const double *>(value) : otherwise;
}

bool ab_cuda_bool(const ab_op_io *io, const char *name, bool otherwise) {
    const void *value = attribute(io, name, AB_ATTR_BOOL);
    return value ? *static_cast<const bool *>(value) : otherwise;
}

void ab_cuda_pair(const ab_op_io *io, const char *name, int64_t otherwise, int64_t pair[2]) {
    const void *value = attribute(io, name, AB_ATTR_PAIR);
    for (int i = 0; i < 2; i++) pair[i] = value ? static_cast<const int64_t *>(value)[i] : otherwise;
}

ab_ints ab_cuda_ints(const ab_op_io *io, const char *name) {
    const void *value = attribute(io, name, AB_ATTR_INTS);
    ab_ints none = {};
    return value ? *static_cast<const ab_ints *>(value) : none;
}

ab_floats ab_cuda_floats(const ab_op_io *io, const char *name) {
    const void *value = attribute(io, name, AB_ATTR_FLOATS);
    ab_floats none = {nullptr, 0};
    return value ? *static_cast<const ab_floats *>(value) : none;
}

ab_window ab_cuda_window(const ab_op_io *io, const ab_shape *in, const ab_shape *out) {
    ab_window w;
    ab_cuda_pair(io, "kernel_size", 1, w.kernel);
    ab_cuda_pair(io, "stride", 1, w.stride);
    ab_cuda_pair(io, "padding", 0, w.padding);
    ab_cuda_pair(io, "dilation", 1, w.dilation);
    for (int i = 0; i < 2; i++) {
        w.in[i] = in->dim[i + 1];
        w.out[i] = out->dim[i + 1];
    }
    w.channels = in->dim[3];
    return w;
}

// ---- observation --------------------------------------------------------------------------------

static const int64_t show_values = 1 << 16;

static ab_status show_census(const ab_exec *exec, int id, ab_span values, int64_t n) {
    static ab_census census;
    AB_TRY(ab_cuda_count_values(values, n, &census));
    exec->observer->count(exec->observer, id, &census);
    return AB_OK;
}

ab_status ab_cuda_show(const ab_exec *exec, int id, const float *values, int64_t n) {
    static float host[show_values];
    ab_cuda *cuda = ab_cuda_context();
    if (cuda->capturing) return ab_fail(AB_INTERNAL, "cuda: a probed step cannot be recorded as a graph");
    if (exec->observer->counts && exec->observer->counts(exec->observer, id))
        return show_census(exec, id, ab_cuda_span_of(const_cast<float *>(values), AB_ELEMENT_F32), n);
    for (int64_t first = 0; first < n; first += show_values) {
        int64_t part = n - first < show_values ? n - first : show_values;
        AB_CUDA_TRY(cudaMemcpyAsync(host, values + first, static_cast<size_t>(part) * sizeof(float),
                                    cudaMemcpyDeviceToHost, cuda->stream));
        AB_CUDA_TRY(cudaStreamSynchronize(cuda->stream));
        exec->observer->see(exec->observer, id, 0, host, part);
    }
    return AB_OK;
}

const char *ab_cuda_describe_own(const ab_op_io *io, const char *pass) {
    bool parameters = io->dparam[0] != nullptr;
    if (strcmp(pass, "backward_data") == 0 && !io->din[0] && !io->din[1]) return nullptr;
    if (strcmp(pass, "backward_weights") == 0 && !parameters) return nullptr;
    return "cuda:own";
}

// ---- casts and sums -----------------------------------------------------------------------------

namespace {
struct add_values {
    __device__ float operator()(float a, float b) const { return a + b; }
};

struct scale_values {
    float factor;
    __device__ float operator()(float a, float) const { return a * factor; }
};
} // namespace

static ab_span nothing() { return ab_cuda_span_of(nullptr, AB_ELEMENT_F32); }

static bool both_known(const ab_tensor *a, const ab_tensor *b) {
    return ab_cuda_type(a->format) != AB_ELEMENT_NONE && ab_cuda_type(b->format) != AB_ELEMENT_NONE;
}

static ab_status not_here() { return ab_fail(AB_UNAVAILABLE, "no CUDA kernel for this number format"); }

static ab_status cast(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    if (!both_known(dst, src)) return not_here();
    ab_span from = ab_cuda_span(src);
    int64_t n = ab_cuda_count(dst);
    return ab_cuda_emit(exec, dst, [=](ab_span out) {
        return ab_launch_map(ab_identity(), out, from, nothing(), n, "cast");
    });
}

static ab_status accumulate(const ab_exec *exec, ab_tensor *dst, const ab_tensor *src) {
    if (!both_known(dst, src)) return not_here();
    ab_span old = ab_cuda_span(dst), from = ab_cuda_span(src);
    int64_t n = ab_cuda_count(dst);
    return ab_cuda_emit(
        exec, dst, [=](ab_span out) { return ab_launch_map(add_values(), out, old, from, n, "accumulate"); });
}

// ---- unscaling ----------------------------------------------------------------------------------

// All blocks write the same 1, so the order does not matter.
__global__ static void find_nonfinite(ab_span from, int64_t n, int32_t *found) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    int here = 0;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        here |= !ab_f_finite(ab_span_at(from, i));
    if (__syncthreads_or(here) && threadIdx.x == 0) *found = 1;
}

// The unscaled values before rounding; fp32 gradients are observed too.
static ab_status unscale_one(const ab_exec *exec, const ab_unscale_item *item, float inverse, int32_t *flag) {
    ab_cuda *cuda = ab_cuda_context();
    ab_span from = ab_cuda_span(item->from), to = ab_cuda_span(item->to);
    int64_t n = ab_cuda_count(item->from);
    scale_values by = {inverse};
    AB_CUDA_LAUNCH(find_nonfinite, ab_cuda_blocks(n, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, cuda->stream, from,
                   n, flag);
    AB_TRY(ab_cuda_launched("find_nonfinite"));
    if (exec->observer && item->id >= 0) {
        float *values;
        AB_TRY(ab_cuda_observed_values(n, &values));
        AB_TRY(ab_launch_map(by, ab_cuda_span_of(values, AB_ELEMENT_F32), from, nothing(), n, "unscale"));
        AB_TRY(ab_cuda_show(exec, item->id, values, n));
    }
    return ab_launch_map(by, to, from, nothing(), n, "unscale");
}

static ab_status unscale(const ab_exec *exec, const ab_unscale_item *item, int items, float inverse,
                         bool *found) {
    int32_t *flag;
    bool seen = false;
    for (int i = 0; i < items; i++)
        if (item[i].adds || !both_known(item[i].to, item[i].from)) return not_here();
    AB_TRY(ab_cuda_clear_flag(&flag));
    for (int i = 0; i < items; i++) AB_TRY(unscale_one(exec, &item[i], inverse, flag));
    AB_TRY(ab_cuda_read_flag(flag, &seen));
    if (seen) *found = true;
    return AB_OK;
}

// ---- update -------------------------------------------------------------------------------------

namespace {
struct update_spans {
    ab_span weight, grad, state[AB_UPDATE_MAX_STATES], model; // data null if absent
};
} // namespace

__global__ static void update_kernel(update_spans s, int kind, ab_update_row row, int64_t n) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        float state[AB_UPDATE_MAX_STATES], weight = ab_span_at(s.weight, i);
        for (int k = 0; k < AB_UPDATE_MAX_STATES; k++)
            state[k] = s.state[k].data ? ab_span_at(s.state[k], i) : 0.0f;
        ab_f_update(kind, row.value, ab_span_at(s.grad, i), &weight, state);
        for (int k = 0; k < AB_UPDATE_MAX_STATES; k++)
            if (s.state[k].data) ab_store(s.state[k].data, s.state[k].type, i, state[k]);
        ab_store(s.weight.data, s.weight.type, i, weight);
        if (s.model.data) ab_store(s.model.data, s.model.type, i, weight);
    }
}

static ab_span span_or_nothing(const ab_tensor *tensor) { return tensor ? ab_cuda_span(tensor) : nothing(); }

static ab_status update(const ab_update_item *item, int items, int kind, const ab_update_row *row) {
    ab_cuda *cuda = ab_cuda_context();
    if (ab_f_needs_norms(kind)) return ab_fail(AB_UNAVAILABLE, "no single CUDA update that needs norms");
    for (int i = 0; i < items; i++) {
        int64_t n = ab_cuda_count(item[i].weight);
        update_spans s;
        s.weight = ab_cuda_span(item[i].weight);
        s.grad = ab_cuda_span(item[i].grad);
        s.model = span_or_nothing(item[i].model);
        for (int k = 0; k < AB_UPDATE_MAX_STATES; k++) s.state[k] = span_or_nothing(item[i].state[k]);
        AB_CUDA_LAUNCH(update_kernel, ab_cuda_blocks(n, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, cuda->stream, s,
                       kind, *row, n);
        AB_TRY(ab_cuda_launched("update"));
    }
    return AB_OK;
}

// ---- sums over rows -----------------------------------------------------------------------------

// Every block sums SUM_ROWS rows of 32 columns: eight threads per column take every eighth row, and their
// sums are added in order.
enum { SUM_ROWS = 512, SUM_COLUMNS = 32, SUM_LANES = 8 };

__global__ static void partial_sums(ab_span x, int64_t rows, int64_t columns, double *partial) {
    __shared__ double part[SUM_LANES][SUM_COLUMNS];
    int64_t c = static_cast<int64_t>(blockIdx.x) * SUM_COLUMNS + threadIdx.x;
    int64_t first = static_cast<int64_t>(blockIdx.y) * SUM_ROWS;
    int64_t end = first + SUM_ROWS < rows ? first + SUM_ROWS : rows;
    double sum = 0.0;
    for (int64_t r = first + threadIdx.y; c < columns && r < end; r += SUM_LANES)
        sum += static_cast<double>(ab_span_at(x, r * columns + c));
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || c >= columns) return;
    for (int k = 1; k < SUM_LANES; k++) sum += part[k][threadIdx.x];
    partial[blockIdx.y * columns + c] = sum;
}

namespace {
struct join_sums {
    const double *partial;
    int64_t columns, parts;
    __device__ float operator()(int64_t c) const {
        double sum = 0.0;
        for (int64_t p = 0; p < parts; p++) sum += partial[p * columns + c];
        return static_cast<float>(sum);
    }
};
} // namespace

size_t ab_cuda_column_bytes(int64_t rows, int64_t columns) {
    return static_cast<size_t>((rows + SUM_ROWS - 1) / SUM_ROWS * columns) * sizeof(double);
}

ab_status ab_cuda_column_sums(ab_span x, int64_t rows, int64_t columns, double *partial, ab_span sum) {
    int64_t parts = (rows + SUM_ROWS - 1) / SUM_ROWS;
    if (parts > 65535) return ab_fail(AB_UNAVAILABLE, "column sums of more than %d rows", 65535 * SUM_ROWS);
    dim3 grid(static_cast<unsigned>((columns + SUM_COLUMNS - 1) / SUM_COLUMNS), static_cast<unsigned>(parts));
    AB_CUDA_LAUNCH(partial_sums, grid, dim3(SUM_COLUMNS, SUM_LANES), 0, ab_cuda_context()->stream, x, rows,
                   columns, partial);
    AB_TRY(ab_cuda_launched("partial_sums"));
    join_sums join = {partial, columns, parts};
    return ab_launch_each(join, sum, columns, "join_sums");
}

// ---- the table ----------------------------------------------------------------------------------

static const ab_op *find_op(const ab_op *op) {
    static const ab_op *const ops[] = {
#define AB_CUDA_OP(name, attributes) &ab_cuda_##name,
#include "kernels/cuda/cuda_ops.def"
#undef AB_CUDA_OP
    };
    for (const ab_op *own : ops)
        if (strcmp(own->name, op->name) == 0) return own;
    return nullptr;
}

extern const ab_resident_ops ab_cuda_resident;
extern const ab_reductions ab_cuda_reductions;
extern "C" const ab_backend ab_backend_cuda;

const ab_backend ab_backend_cuda = {
    AB_DEVICE_ABI, ab_backend_layout, "cuda", false,          find_op,           cast,
    accumulate,    unscale,           update, ab_cuda_census, &ab_cuda_resident, &ab_cuda_reductions};
