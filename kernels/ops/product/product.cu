// linear and conv2d on CUDA: products by cuBLASLt and cuDNN where supported, else by own direct kernels
// (formulas.h). `--cpu-path reference` selects own kernels for all.
//
// A probed step computes half results a second time with the own kernel, in fp32, to observe them before
// rounding; the stored result comes from the same product as on other steps.
#include "kernels/ops/product/product_cuda.cuh"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {
struct biased {
    ab_span sums, bias;
    int64_t columns;
    __device__ float operator()(int64_t i) const {
        return ab_span_at(sums, i) + ab_span_at(bias, i % columns);
    }
};
} // namespace

ab_status ab_cuda_add_bias(ab_span sums, ab_span bias, int64_t columns, ab_span out, int64_t n) {
    biased f = {sums, bias, columns};
    return ab_launch_each(f, out, n, "add_bias");
}

namespace {

static const int64_t weight_parts = 64; // partial sums of a weight gradient

struct product_state {
    ab_conv conv;
    int type;
    ab_cuda_product *library[AB_PASSES]; // null: own kernel
    ab_cuda_product *fused;              // forward with the relu that follows; null: none
    bool packs;                          // weights are repacked for the library
    void *packed;                        // state memory
};

// ---- our own kernels ----------------------------------------------------------------------------

struct own_forward {
    ab_conv conv;
    ab_span in, weights, bias; // bias.data may be null
    __device__ float operator()(int64_t i) const {
        float sum = ab_f_conv(&conv, in, weights, i);
        return bias.data ? sum + ab_span_at(bias, i % conv.out_channels) : sum;
    }
};

struct own_backward_data {
    ab_conv conv;
    ab_span dout, weights;
    __device__ float operator()(int64_t i) const { return ab_f_conv_backward_data(&conv, dout, weights, i); }
};

// One thread per weight and part; parts are combined in order.
__global__ static void own_weight_parts(ab_conv conv, ab_span in, ab_span dout, int64_t weights,
                                        int64_t parts, double *partial) {
    int64_t rows = conv.batch * conv.window.out[0], per_part = (rows + parts - 1) / parts;
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t k = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; k < weights * parts;
         k += step) {
        int64_t i = k % weights, part = k / weights, first = part * per_part, end = first + per_part;
        if (end > rows) end = rows;
        partial[k] = ab_f_conv_backward_weights(&conv, in, dout, i, first, end);
    }
}

struct join_parts {
    const double *partial;
    int64_t weights, parts;
    __device__ float operator()(int64_t i) const {
        double sum = 0.0;
        for (int64_t p = 0; p < parts; p++) sum += partial[p * weights + i];
        return static_cast<float>(sum);
    }
};

static int64_t part_count(const ab_conv *c) {
    int64_t rows = c->batch * c->window.out[0];
    return rows < weight_parts ? rows : weight_parts;
}

static size_t part_bytes(const ab_conv *c) {
    return static_cast<size_t>(ab_cuda_weight_count(c) * part_count(c)) * sizeof(double);
}

static ab_status own_weights(const ab_conv *c, ab_span in, ab_span dout, void *workspace, ab_span dweight) {
    int64_t n = ab_cuda_weight_count(c), parts = part_count(c);
    double *partial = static_cast<double *>(workspace);
    AB_CUDA_LAUNCH(own_weight_parts, ab_cuda_blocks(n * parts, AB_CUDA_THREADS), AB_CUDA_THREADS, 0,
                   ab_cuda_context()->stream, *c, in, dout, n, parts, partial);
    AB_TRY(ab_cuda_launched("conv_weight_parts"));
    join_parts join = {partial, n, parts};
    return ab_launch_each(join, dweight, n, "conv_weight_join");
}

// ---- layouts ------------------------------------------------------------------------------------

struct pack_weights {
    ab_span weights;
    int64_t in, taps;
    __device__ float operator()(int64_t i) const { return ab_span_at(weights, ab_krsc_source(i, in, taps)); }
};

// Inverse: element i of {out, in, taps} from {out, taps, in}.
struct unpack_weights {
    ab_span weights;
    int64_t in, taps;
    __device__ float operator()(int64_t i) const { return ab_span_at(weights, ab_krsc_source(i, taps, in)); }
};

static int64_t taps_of(const ab_conv *c) { return c->window.kernel[0] * c->window.kernel[1]; }

// ---- set-up -------------------------------------------------------------------------------------

static ab_conv geometry(const ab_op_io *io, bool linear) {
    const ab_shape *in = &io->in[0]->shape, *weights = &io->param[0]->shape;
    ab_conv c = {};
    c.out_channels = weights->dim[0];
    c.groups = 1;
    if (!linear) {
        c.window = ab_cuda_window(io, in, &io->out->shape);
        c.groups = ab_cuda_int(io, "groups", 1);
        c.batch = in->dim[0];
        return c;
    }
    for (int i = 0; i < 2; i++)
        c.window.in[i] = c.window.out[i] = c.window.kernel[i] = c.window.stride[i] = c.window.dilation[i] = 1;
    c.window.channels = in->dim[in->ndim - 1];
    c.batch = ab_cuda_count(io->in[0]) / c.window.channels;
    return c;
}

// Checks that all operands have one type and the arithmetic is supported.
static ab_status check(const ab_exec *exec, const ab_op_io *io) {
    AB_TRY(ab_cuda_check_types(io));
    int type = ab_cuda_type(io->in[0]->format);
    bool same = ab_cuda_type(io->out->format) == type;
    for (int i = 0; i < 2; i++) {
        same = same && (!io->param[i] || ab_cuda_type(io->param[i]->format) == type);
        same = same && (!io->dparam[i] || ab_cuda_type(io->dparam[i]->format) == type);
    }
    same = same && (!io->dout || ab_cuda_type(io->dout->format) == type);
    same = same && (!io->din[0] || ab_cuda_type(io->din[0]->format) == type);
    if (!same) return ab_fail(AB_UNAVAILABLE, "no CUDA product of mixed formats");
    if (exec->accumulate_half && type != AB_ELEMENT_F32)
        return ab_fail(AB_UNAVAILABLE, "no CUDA product with half sums");
    return AB_OK;
}

static ab_status make_library(const ab_exec *exec, product_state *s, const ab_op_io *io, bool linear) {
    const bool wanted[AB_PASSES] = {true, io->din[0] != nullptr, io->dparam[0] != nullptr};
    for (int i = 0; i < AB_PASSES; i++) {
        ab_cuda_product_spec spec = {static_cast<ab_pass_kind>(i), s->conv, s->type, io->param[1] != nullptr,
                                     exec->tf32};
        if (!wanted[i]) continue;
        AB_TRY(linear ? ab_cuda_blas_product(&spec, &s->library[i])
                      : ab_cuda_dnn_product(&spec, &s->library[i]));
    }
    s->packs = !linear && ab_cuda_dnn_packs(&s->conv);
    return AB_OK;
}

// Linear followed by relu.
static ab_status make_fused(const ab_exec *exec, product_state *s, ab_op_io *io) {
    ab_cuda_product_spec spec = {AB_PASS_FORWARD, s->conv, s->type, io->param[1] != nullptr, exec->tf32};
    if (!io->tail.out || exec->sizes_only || !s->library[AB_PASS_FORWARD]) return AB_OK;
    AB_TRY(ab_cuda_blas_product_relu(&spec, s->library[AB_PASS_FORWARD], &s->fused));
    io->fuses = s->fused != nullptr;
    return AB_OK;
}

static size_t packed_bytes(const product_state *s) {
    return static_cast<size_t>(ab_cuda_weight_count(&s->conv)) * (s->type == AB_ELEMENT_F32 ? 4 : 2);
}

static size_t aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

// The packed gradient precedes the library's workspace.
static size_t workspace_of(const product_state *s, const ab_op_io *io) {
    int64_t rows = s->conv.batch * s->conv.window.out[0] * s->conv.window.out[1];
    size_t most = io->dparam[1] ? ab_cuda_column_bytes(rows, s->conv.out_channels) : 0;
    for (int i = 0; i < AB_PASSES; i++) {
        size_t bytes = s->library[i] ? s->library[i]->workspace_bytes : 0;
        if (i == AB_PASS_BACKWARD_WEIGHTS && s->packs) bytes += aligned(packed_bytes(s));
        if (bytes > most) most = bytes;
    }
    if (s->fused && s->fused->workspace_bytes > most) most = s->fused->workspace_bytes;
    if (io->dparam[0] && part_bytes(&s->conv) > most)
        most = part_bytes(&s->conv); // own kernel and probed steps
    return most;
}

static void release(ab_op_io *io) {
    product_state *s = static_cast<product_state *>(io->state);
    if (!s) return;
    for (ab_cuda_product *library : s->library)
        if (library) library->destroy(library);
    if (s->fused) s->fused->destroy(s->fused);
    io->fuses = false;
    free(s);
    io->state = nullptr;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes,
                         bool linear) {
    AB_TRY(ab_cuda_check_attributes(io));
    AB_TRY(check(exec, io));
    product_state *s = static_cast<product_state *>(calloc(1, sizeof *s));
    if (!s) return ab_fail(AB_NO_MEMORY, "out of memory");
    io->state = s;
    s->conv = geometry(io, linear);
    s->type = ab_cuda_type(io->in[0]->format);
    ab_status status = exec->path == AB_PATH_REFERENCE ? AB_OK : make_library(exec, s, io, linear);
    if (status == AB_OK && linear) status = make_fused(exec, s, io);
    if (status != AB_OK) {
        release(io);
        return status;
    }
    *workspace_bytes = workspace_of(s, io);
    *state_bytes = s->packs ? packed_bytes(s) : 0;
    return AB_OK;
}

static ab_status prepare_linear(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                                size_t *state_bytes) {
    return prepare(exec, io, workspace_bytes, state_bytes, true);
}

static ab_status prepare_conv(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                              size_t *state_bytes) {
    return prepare(exec, io, workspace_bytes, state_bytes, false);
}

static void bind(ab_op_io *io, void *state_memory) {
    product_state *s = static_cast<product_state *>(io->state);
    s->packed = state_memory;
}

// ---- running ------------------------------------------------------------------------------------

static ab_span span_or_nothing(const ab_tensor *tensor) {
    return tensor ? ab_cuda_span(tensor) : ab_cuda_span_of(nullptr, AB_ELEMENT_F32);
}

static void *data_or_null(const ab_tensor *tensor) { return tensor ? tensor->data : nullptr; }

static ab_cuda_operands operands_of(const ab_exec *exec, const ab_op_io *io, const product_state *s) {
    ab_cuda_operands o = {};
    o.in = io->in[0]->data;
    o.weights = io->param[0]->data;
    o.bias = data_or_null(io->param[1]);
    o.out = io->out->data;
    o.din = data_or_null(io->din[0]);
    o.dweight = data_or_null(io->dparam[0]);
    o.dout = data_or_null(io->dout);
    o.packed = s->packs ? s->packed : o.weights;
    o.workspace = exec->workspace;
    return o;
}

// Weights change every step; packing costs little compared to the product.
static ab_status pack(const product_state *s, const ab_op_io *io) {
    if (!s->packs) return AB_OK;
    pack_weights f = {ab_cuda_span(io->param[0]), s->conv.window.channels / s->conv.groups,
                      taps_of(&s->conv)};
    return ab_launch_each(f, ab_cuda_span_of(s->packed, s->type), ab_cuda_weight_count(&s->conv),
                          "pack_weights");
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    product_state *s = static_cast<product_state *>(io->state);
    ab_cuda_product *library = s->library[AB_PASS_FORWARD];
    ab_cuda_operands o = operands_of(exec, io, s);
    own_forward f = {s->conv, ab_cuda_span(io->in[0]), ab_cuda_span(io->param[0]),
                     span_or_nothing(io->param[1])};
    int64_t n = ab_cuda_count(io->out);
    auto own = [=](ab_span out) { return ab_launch_each(f, out, n, "conv_forward"); };
    if (exec->fuse && s->fused) {
        o.out = io->tail.out->data;
        return s->fused->run(s->fused, &o);
    }
    AB_TRY(library ? pack(s, io) : AB_OK);
    return ab_cuda_store_and_show(
        exec, io->out, [&] { return library ? library->run(library, &o) : own(ab_cuda_span(io->out)); }, own);
}

static ab_status backward_data(const ab_exec *exec, ab_op_io *io, product_state *s) {
    ab_cuda_product *library = s->library[AB_PASS_BACKWARD_DATA];
    ab_cuda_operands o = operands_of(exec, io, s);
    own_backward_data f = {s->conv, ab_cuda_span(io->dout), ab_cuda_span(io->param[0])};
    int64_t n = ab_cuda_count(io->din[0]);
    auto own = [=](ab_span din) { return ab_launch_each(f, din, n, "conv_backward_data"); };
    AB_TRY(library ? pack(s, io) : AB_OK);
    return ab_cuda_store_and_show(
        exec, io->din[0], [&] { return library ? library->run(library, &o) : own(ab_cuda_span(io->din[0])); },
        own);
}

// Computes the library's result and unpacks it to {out, in, kh, kw}.
static ab_status library_weights(const ab_exec *exec, ab_op_io *io, product_state *s,
                                 ab_cuda_product *library) {
    ab_cuda_operands o = operands_of(exec, io, s);
    if (!s->packs) return library->run(library, &o);
    o.dweight = exec->workspace;
    o.workspace = static_cast<char *>(exec->workspace) + aligned(packed_bytes(s));
    AB_TRY(library->run(library, &o));
    unpack_weights f = {ab_cuda_span_of(o.dweight, s->type), s->conv.window.channels / s->conv.groups,
                        taps_of(&s->conv)};
    return ab_launch_each(f, ab_cuda_span(io->dparam[0]), ab_cuda_weight_count(&s->conv), "unpack_weights");
}

static ab_status backward_weights(const ab_exec *exec, ab_op_io *io, product_state *s) {
    ab_cuda_product *library = s->library[AB_PASS_BACKWARD_WEIGHTS];
    ab_conv conv = s->conv;
    ab_span in = ab_cuda_span(io->in[0]), dout = ab_cuda_span(io->dout);
    void *workspace = exec->workspace;
    auto own = [=](ab_span dweight) { return own_weights(&conv, in, dout, workspace, dweight); };
    return ab_cuda_store_and_show(
        exec, io->dparam[0],
        [&] { return library ? library_weights(exec, io, s, library) : own(ab_cuda_span(io->dparam[0])); },
        own);
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    product_state *s = static_cast<product_state *>(io->state);
    int64_t channels = s->conv.out_channels, rows = ab_cuda_count(io->dout) / channels;
    if (io->dparam[0]) AB_TRY(backward_weights(exec, io, s));
    if (io->dparam[1]) {
        ab_span dout = ab_cuda_span(io->dout);
        double *partial = static_cast<double *>(exec->workspace);
        AB_TRY(ab_cuda_emit(exec, io->dparam[1], [=](ab_span dbias) {
            return ab_cuda_column_sums(dout, rows, channels, partial, dbias);
        }));
    }
    return io->din[0] ? backward_data(exec, io, s) : AB_OK;
}

static const char *describe(const ab_op_io *io, const char *pass) {
    const product_state *s = static_cast<const product_state *>(io->state);
    int i = strcmp(pass, "forward") == 0 ? 0 : strcmp(pass, "backward_data") == 0 ? 1 : 2;
    if ((i == 1 && !io->din[0]) || (i == 2 && !io->dparam[0])) return nullptr;
    if (i == 0 && s->fused) return s->fused->text;
    return s->library[i] ? s->library[i]->text : "cuda:own";
}

static ab_op descriptor(const char *name, ab_cuda_prepare prepare_op) {
    ab_op op = ab_cuda_op(name, prepare_op, forward, backward);
    op.bind = bind;
    op.release = release;
    op.describe = describe;
    return op;
}

} // namespace

const ab_op ab_cuda_linear = descriptor("linear", prepare_linear);
const ab_op ab_cuda_conv2d = descriptor("conv2d", prepare_conv);
