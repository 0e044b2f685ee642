// Shared by the CUDA ops: element types of tensors, attributes by name, launches of elementwise kernels,
// and values for observers. Internal to the plugin.
#ifndef AB_KERNELS_CUDA_CUDA_OPS_CUH
#define AB_KERNELS_CUDA_CUDA_OPS_CUH

#include "kernels/backend/backend.h"
#include "kernels/core/cuda.cuh"
#include "kernels/ops/views.h"

// ---- tensors ------------------------------------------------------------------------------------

int ab_cuda_type(
    const ab_format *format); // ab_element_type; AB_ELEMENT_NONE for formats without a kernel here
// A tensor's values with their element type; its number of elements; whether two shapes are equal.
ab_span ab_cuda_span(const ab_tensor *tensor);
int64_t ab_cuda_count(const ab_tensor *tensor);
bool ab_cuda_same_shape(const ab_shape *a, const ab_shape *b);

// AB_UNAVAILABLE unless every floating tensor of io has an element type. Integer tensors (no format) are
// skipped.
ab_status ab_cuda_check_types(const ab_op_io *io);

// A span of raw memory.
static inline ab_span ab_cuda_span_of(void *data, int type) {
    ab_span span = {data, type};
    return span;
}

// An empty span, for an operand that a kernel does not read.
static inline ab_span ab_cuda_empty_span() { return ab_cuda_span_of(nullptr, AB_ELEMENT_F32); }
static inline ab_span ab_cuda_optional(const ab_tensor *tensor) {
    return tensor ? ab_cuda_span(tensor) : ab_cuda_empty_span();
}
// Bytes rounded up to the alignment of workspaces.
static inline size_t ab_cuda_aligned(size_t bytes) { return (bytes + 255) / 256 * 256; }

// ---- attributes, located by the op's table ------------------------------------------------------

// AB_UNAVAILABLE if the op has an attribute that is not in its row of cuda_ops.def: the kernel does not
// implement it.
ab_status ab_cuda_check_attributes(const ab_op_io *io);

// Attributes of an op by name; `otherwise` is the default if the op has none of that name.
int64_t ab_cuda_int(const ab_op_io *io, const char *name, int64_t otherwise);
double ab_cuda_float(const ab_op_io *io, const char *name, double otherwise);
bool ab_cuda_bool(const ab_op_io *io, const char *name, bool otherwise);
void ab_cuda_pair(const ab_op_io *io, const char *name, int64_t otherwise, int64_t pair[2]);
ab_ints ab_cuda_ints(const ab_op_io *io, const char *name);
ab_floats ab_cuda_floats(const ab_op_io *io, const char *name);
// The window of a pooling or convolution op for these shapes of in[0] and out.
ab_window ab_cuda_window(const ab_op_io *io, const ab_shape *in, const ab_shape *out);

// ---- element-wise kernels -----------------------------------------------------------------------

// out[i] = f(i)
template <typename F> __global__ void ab_each(F f, ab_span out, int64_t n) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        ab_store(out.data, out.type, i, f(i));
}

template <typename F> ab_status ab_launch_each(F f, ab_span out, int64_t n, const char *what) {
    ab_cuda *cuda = ab_cuda_context();
    AB_CUDA_LAUNCH(ab_each, ab_cuda_blocks(n, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, cuda->stream, f, out, n);
    return ab_cuda_launched(what);
}

enum { AB_PACK = 8 }; // elements per thread and iteration: one or two 16-byte accesses

// Loads eight elements from index i on as fp32: one 16-byte access for fp16 and bf16, two for fp32.
__device__ inline void ab_unpack(ab_span span, int64_t i, float *v) {
    if (span.type == AB_ELEMENT_F32) {
        const float4 *p = reinterpret_cast<const float4 *>(static_cast<const float *>(span.data) + i);
        float4 a = p[0], b = p[1];
        v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
        return;
    }
    uint4 bits = *reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(span.data) + i);
    const uint32_t word[4] = {bits.x, bits.y, bits.z, bits.w};
    for (int k = 0; k < AB_PACK; k++) {
        uint16_t code = static_cast<uint16_t>(word[k / 2] >> 16 * (k % 2));
        v[k] = span.type == AB_ELEMENT_F16 ? ab_f16_value(code) : ab_bf16_value(code);
    }
}

// Stores eight fp32 values from index i on, rounded to nearest even.
__device__ inline void ab_pack(ab_span span, int64_t i, const float *v) {
    if (span.type == AB_ELEMENT_F32) {
        float4 *p = reinterpret_cast<float4 *>(static_cast<float *>(span.data) + i);
        p[0] = make_float4(v[0], v[1], v[2], v[3]);
        p[1] = make_float4(v[4], v[5], v[6], v[7]);
        return;
    }
    uint32_t word[4];
    for (int k = 0; k < 4; k++) {
        uint32_t low = span.type == AB_ELEMENT_F16 ? ab_f16_code(v[2 * k]) : ab_bf16_code(v[2 * k]);
        uint32_t high = span.type == AB_ELEMENT_F16 ? ab_f16_code(v[2 * k + 1]) : ab_bf16_code(v[2 * k + 1]);
        word[k] = low | high << 16;
    }
    *reinterpret_cast<uint4 *>(static_cast<uint16_t *>(span.data) + i) =
        make_uint4(word[0], word[1], word[2], word[3]);
}

// out = f(a, b), eight elements per thread; all arrays 16-byte aligned. The remainder is scalar. b.data
// may be null.
template <typename F> __global__ void ab_map_packed(F f, ab_span out, ab_span a, ab_span b, int64_t n) {
    int64_t packs = n / AB_PACK, step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    int64_t thread = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    for (int64_t p = thread; p < packs; p += step) {
        float x[AB_PACK], y[AB_PACK] = {0};
        ab_unpack(a, p * AB_PACK, x);
        if (b.data) ab_unpack(b, p * AB_PACK, y);
        for (int k = 0; k < AB_PACK; k++) x[k] = f(x[k], y[k]);
        ab_pack(out, p * AB_PACK, x);
    }
    for (int64_t i = packs * AB_PACK + thread; i < n; i += step)
        ab_store(out.data, out.type, i, f(ab_span_at(a, i), b.data ? ab_span_at(b, i) : 0.0f));
}

template <typename F> __global__ void ab_map_single(F f, ab_span out, ab_span a, ab_span b, int64_t n) {
    int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        ab_store(out.data, out.type, i, f(ab_span_at(a, i), b.data ? ab_span_at(b, i) : 0.0f));
}

// Whether the memory is aligned for ab_unpack and ab_pack.
static inline bool ab_cuda_packable(ab_span span) { return reinterpret_cast<uintptr_t>(span.data) % 16 == 0; }

// out = f(a, b) elementwise; b.data may be null. out may be a or b.
template <typename F>
ab_status ab_launch_map(F f, ab_span out, ab_span a, ab_span b, int64_t n, const char *what) {
    ab_cuda *cuda = ab_cuda_context();
    if (ab_cuda_packable(out) && ab_cuda_packable(a) && ab_cuda_packable(b)) {
        unsigned blocks = ab_cuda_blocks((n + AB_PACK - 1) / AB_PACK, AB_CUDA_THREADS);
        AB_CUDA_LAUNCH(ab_map_packed, blocks, AB_CUDA_THREADS, 0, cuda->stream, f, out, a, b, n);
    } else {
        AB_CUDA_LAUNCH(ab_map_single, ab_cuda_blocks(n, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, cuda->stream, f,
                       out, a, b, n);
    }
    return ab_cuda_launched(what);
}

struct ab_identity {
    __device__ float operator()(float x, float) const { return x; }
};

// ---- observation --------------------------------------------------------------------------------

// Passes n fp32 device values to the observer under an observed id.
ab_status ab_cuda_show(const ab_exec *exec, int id, const float *values, int64_t n);

// fp32 memory for n observed values, until the next call.
static inline ab_status ab_cuda_observed_values(int64_t n, float **values) {
    void *block;
    AB_TRY(ab_cuda_kept(AB_CUDA_PROBE, static_cast<size_t>(n) * sizeof(float), &block));
    *values = static_cast<float *>(block);
    return AB_OK;
}

// Whether values stored in `dst` are observed.
static inline bool ab_cuda_shown(const ab_exec *exec, const ab_tensor *dst) {
    return exec->observer && dst->id >= 0 && ab_cuda_type(dst->format) != AB_ELEMENT_F32;
}

// Calls write(span), which writes every element of dst's shape to the span. An observed fp16 or bf16 dst
// is first written as fp32, observed, and then rounded: same bits, since every write rounds an fp32 value
// once.
template <typename W> ab_status ab_cuda_emit(const ab_exec *exec, ab_tensor *dst, W write) {
    if (!ab_cuda_shown(exec, dst)) return write(ab_cuda_span(dst));
    int64_t n = ab_cuda_count(dst);
    float *values;
    AB_TRY(ab_cuda_observed_values(n, &values));
    AB_TRY(write(ab_cuda_span_of(values, AB_ELEMENT_F32)));
    AB_TRY(ab_cuda_show(exec, dst->id, values, n));
    return ab_launch_map(ab_identity(), ab_cuda_span(dst), ab_cuda_span_of(values, AB_ELEMENT_F32),
                         ab_cuda_span_of(nullptr, AB_ELEMENT_F32), n, "narrow");
}

// Stores by `store`; an observed fp16 or bf16 result is also computed in fp32 by `own` and observed.
template <typename S, typename W>
ab_status ab_cuda_store_and_show(const ab_exec *exec, ab_tensor *dst, S store, W own) {
    AB_TRY(store());
    if (!ab_cuda_shown(exec, dst)) return AB_OK;
    int64_t n = ab_cuda_count(dst);
    float *values;
    AB_TRY(ab_cuda_observed_values(n, &values));
    AB_TRY(own(ab_cuda_span_of(values, AB_ELEMENT_F32)));
    return ab_cuda_show(exec, dst->id, values, n);
}

// Census of n values, widened to fp32, or of a tensor, with the subnormals of its own format (census.cu).
ab_status ab_cuda_count_values(ab_span values, int64_t n, struct ab_census *census);
ab_status ab_cuda_census(const ab_tensor *tensor, struct ab_census *census);

// ---- sums ---------------------------------------------------------------------------------------

// sum[c] = sum over rows of x[row * columns + c], in double and a fixed order; partial: ab_cuda_column_bytes
// of workspace.
size_t ab_cuda_column_bytes(int64_t rows, int64_t columns);
ab_status ab_cuda_column_sums(ab_span x, int64_t rows, int64_t columns, double *partial, ab_span sum);

// ---- the ops ------------------------------------------------------------------------------------

// Name of the kernel of a forward or backward pass, for the record.
const char *ab_cuda_describe_own(const ab_op_io *io, const char *pass);

typedef ab_status (*ab_cuda_prepare)(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                                     size_t *state_bytes);
typedef ab_status (*ab_cuda_pass)(const ab_exec *exec, ab_op_io *io);

// A prepare for kernels that need neither workspace nor state.
ab_status ab_cuda_prepare_plain(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                                size_t *state_bytes);

// Descriptor of an op with our own kernels. Read only after static initialisation of the plugin.
static inline ab_op ab_cuda_op(const char *name, ab_cuda_prepare prepare, ab_cuda_pass forward,
                               ab_cuda_pass backward) {
    ab_op op = {};
    op.name = name;
    op.prepare = prepare;
    op.forward = forward;
    op.backward = backward;
    op.describe = ab_cuda_describe_own;
    return op;
}

// Rows of kernels/cuda/cuda_ops.def: name of the op; descriptor ab_cuda_<name>.
#define AB_CUDA_OP(name, attributes) extern const ab_op ab_cuda_##name;
#include "kernels/cuda/cuda_ops.def"
#undef AB_CUDA_OP

#endif
