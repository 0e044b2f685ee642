// The products of linear through cuBLASLt (cuda_gemm.cuh); the bias is added before the one rounding.
//
// Bias. For some shapes the library rounds the product to the half format before it adds the bias (seen on an
// H100: bf16 [33, 65] x [65, 10], cuBLAS 13.1). So every half product with a bias is tried on numbers where
// two roundings show. Of the library's first algorithms the first that rounds once is used; else the product
// is written in fp32, and the bias and the rounding are ours.
//
// Epilogues. relu commutes with rounding, so a product may apply it to its unrounded sums
// (bench/amp/plan/plan_compile.c pairs them). What the library's relu does with NaN is not documented, so it
// is tried: on values of every kind it must give the bits of the product and our relu, NaN for NaN, or it is
// not used. The library's gelu is not used at all: gelu of a rounded number is not the rounded gelu, and in
// fp32, where nothing is rounded between, its tanh is not ours.
#include "kernels/core/text.h"
#include "kernels/cuda/cuda_gemm.cuh"
#include "kernels/ops/product/product_cuda.cuh"

#include <cstdio>
#include <cstdlib>

namespace {
struct blas_product {
    ab_cuda_product base; // must be the first member
    ab_pass_kind kind;
    ab_cuda_gemm_plan *plan;
    int sums_type; // of the bias and the result, where the plan writes fp32 sums; -1: it writes the result
};
} // namespace

static void destroy(ab_cuda_product *base) {
    blas_product *p = reinterpret_cast<blas_product *>(base);
    if (!p) return;
    ab_cuda_gemm_destroy(p->plan);
    free(p);
}

static size_t sums_bytes(const ab_cuda_gemm *g) {
    return ab_cuda_aligned(static_cast<size_t>(g->rows * g->columns) * sizeof(float));
}

// The sums precede the library's workspace.
static ab_status run_by_sums(blas_product *p, const ab_cuda_operands *o) {
    const ab_cuda_gemm *g = &p->plan->shape;
    float *sums = static_cast<float *>(o->workspace);
    AB_TRY(ab_cuda_gemm_run(p->plan, o->in, o->weights, sums, 1.0f, 0.0f, nullptr,
                            static_cast<char *>(o->workspace) + sums_bytes(g)));
    return ab_cuda_add_bias(ab_cuda_span_of(sums, AB_ELEMENT_F32), ab_cuda_span_of(o->bias, p->sums_type),
                            g->columns, ab_cuda_span_of(o->out, p->sums_type), g->rows * g->columns);
}

static ab_status run(ab_cuda_product *base, const ab_cuda_operands *o) {
    blas_product *p = reinterpret_cast<blas_product *>(base);
    if (p->sums_type >= 0) return run_by_sums(p, o);
    const void *a = p->kind == AB_PASS_FORWARD ? o->in : o->dout;
    const void *b = p->kind == AB_PASS_BACKWARD_WEIGHTS ? o->in : o->weights;
    void *c = p->kind == AB_PASS_FORWARD ? o->out : p->kind == AB_PASS_BACKWARD_WEIGHTS ? o->dweight : o->din;
    return ab_cuda_gemm_run(p->plan, a, b, c, 1.0f, 0.0f, o->bias, o->workspace);
}

// out = in W^T; din = dout W; dW = dout^T in. W is {out, in}.
static ab_cuda_gemm shape_of(const ab_cuda_product_spec *spec) {
    int64_t rows = spec->conv.batch, in = spec->conv.window.channels, out = spec->conv.out_channels;
    bool forward = spec->kind == AB_PASS_FORWARD, weights = spec->kind == AB_PASS_BACKWARD_WEIGHTS;
    ab_cuda_gemm g = forward   ? ab_cuda_gemm_of(rows, out, in, spec->type)
                     : weights ? ab_cuda_gemm_of(out, in, rows, spec->type)
                               : ab_cuda_gemm_of(rows, in, out, spec->type);
    if (forward) {
        g.transpose_b = true;
        g.ldb = in;
    }
    if (weights) {
        g.transpose_a = true;
        g.lda = out;
    }
    g.tf32 = spec->tf32 && spec->type == AB_ELEMENT_F32;
    g.bias = forward && spec->bias;
    return g;
}

static blas_product *new_product(ab_pass_kind kind) {
    blas_product *p = static_cast<blas_product *>(calloc(1, sizeof *p));
    if (!p) return nullptr;
    p->base.run = run;
    p->base.destroy = destroy;
    p->kind = kind;
    p->sums_type = -1;
    return p;
}

// Takes over the plan's size and text.
static ab_cuda_product *finished(blas_product *p) {
    p->base.workspace_bytes = p->plan->workspace_bytes;
    ab_text_show(p->base.text, sizeof p->base.text, "%s", p->plan->text);
    return &p->base;
}

// *product stays null if the library has no such product.
static ab_status make_product(ab_pass_kind kind, const ab_cuda_gemm *shape, ab_cuda_product **product) {
    *product = nullptr;
    blas_product *p = new_product(kind);
    if (!p) return ab_fail(AB_NO_MEMORY, "linear: out of memory");
    ab_status status = ab_cuda_gemm_make(shape, &p->plan);
    if (status != AB_OK || !p->plan) {
        destroy(&p->base);
        return status;
    }
    *product = finished(p);
    return AB_OK;
}

// ---- trials -------------------------------------------------------------------------------------

namespace {
// Numbers of both signs between -1 and 1; the first element of row 0 is NaN, that of row 1 inf, of row 2
// -inf.
struct trial_values {
    int64_t width;
    bool with_nonfinite;
    __device__ float operator()(int64_t i) const {
        const int64_t row = i / width;
        if (with_nonfinite && i % width == 0 && row < 3)
            return ab_float_of(row == 0 ? 0x7fc00000u : row == 1 ? 0x7f800000u : 0xff800000u);
        const uint32_t mixed = static_cast<uint32_t>(i + 1) * 2654435761u;
        return static_cast<float>(static_cast<int32_t>(mixed ^ mixed >> 15)) * 0x1p-31f;
    }
};

// One number at the head of each row, and zeros.
struct trial_heads {
    int64_t width;
    float head;
    __device__ float operator()(int64_t i) const { return i % width == 0 ? head : 0.0f; }
};

// Device memory of a trial.
struct trial {
    void *memory;
    ab_cuda_operands plain, fused;
    int64_t outputs;
};
} // namespace

// All writers store the same 1.
__global__ static void compare_relu(ab_span plain, ab_span fused, int64_t n, int32_t *differ) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step) {
        const float a = ab_f_relu(ab_span_at(plain, i)), b = ab_span_at(fused, i);
        if (!(ab_bits_of(a) == ab_bits_of(b) || (a != a && b != b))) *differ = 1;
    }
}

__global__ static void compare_constant(ab_span found, float expected, int64_t n, int32_t *differ) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        if (ab_span_at(found, i) != expected) *differ = 1;
}

static ab_status fill_trial(void *to, int type, int64_t n, int64_t width, bool with_nonfinite) {
    trial_values f = {width, with_nonfinite};
    return ab_launch_each(f, ab_cuda_span_of(to, type), n, "trial_values");
}

static ab_status fill_heads(void *to, int type, int64_t n, int64_t width, float head) {
    trial_heads f = {width, head};
    return ab_launch_each(f, ab_cuda_span_of(to, type), n, "trial_heads");
}

static ab_status take_trial(const ab_cuda_product_spec *spec, size_t workspace, trial *t) {
    const int64_t rows = spec->conv.batch, in = spec->conv.window.channels, out = spec->conv.out_channels;
    const size_t element = spec->type == AB_ELEMENT_F32 ? 4 : 2;
    const int64_t count[] = {rows * in, out * in, out, rows * out, rows * out};
    size_t offset[6] = {0};
    for (int i = 0; i < 5; i++)
        offset[i + 1] = offset[i] + ab_cuda_aligned(static_cast<size_t>(count[i]) * element);
    AB_TRY(ab_cuda_take(offset[5] + ab_cuda_aligned(workspace), &t->memory));
    char *all = static_cast<char *>(t->memory);
    t->plain.in = all;
    t->plain.weights = all + offset[1];
    t->plain.bias = all + offset[2];
    t->plain.out = all + offset[3];
    t->plain.workspace = all + offset[5];
    t->fused = t->plain;
    t->fused.out = all + offset[4];
    t->outputs = rows * out;
    return AB_OK;
}

// ---- bias ---------------------------------------------------------------------------------------

// A product that lies in the middle of two numbers of the format, and a bias that decides: 683 * 3 + 1/2 is
// 2050 in fp16, and 2048 if the product is rounded first; 37 * 7 - 1/2 is 258 in bf16, and 260.
static ab_status run_bias_trial(const ab_cuda_product_spec *spec, ab_cuda_product *product, const trial *t,
                                bool *once) {
    const bool fp16 = spec->type == AB_ELEMENT_F16;
    const int64_t rows = spec->conv.batch, in = spec->conv.window.channels, out = spec->conv.out_channels;
    int32_t *flag;
    bool differ = true;
    AB_TRY(fill_heads(t->plain.in, spec->type, rows * in, in, fp16 ? 683.0f : 37.0f));
    AB_TRY(fill_heads(t->plain.weights, spec->type, out * in, in, fp16 ? 3.0f : 7.0f));
    AB_TRY(fill_heads(t->plain.bias, spec->type, out, 1, fp16 ? 0.5f : -0.5f));
    AB_TRY(ab_cuda_clear_flag(&flag));
    AB_TRY(product->run(product, &t->plain));
    AB_CUDA_LAUNCH(compare_constant, ab_cuda_blocks(t->outputs, AB_CUDA_THREADS), AB_CUDA_THREADS, 0,
                   ab_cuda_context()->stream, ab_cuda_span_of(t->plain.out, spec->type),
                   fp16 ? 2050.0f : 258.0f, t->outputs, flag);
    AB_TRY(ab_cuda_launched("compare_constant"));
    AB_TRY(ab_cuda_read_flag(flag, &differ));
    *once = !differ;
    return AB_OK;
}

static ab_status try_bias(const ab_cuda_product_spec *spec, ab_cuda_product *product, bool *once) {
    trial t = {};
    *once = false;
    ab_status status = take_trial(spec, product->workspace_bytes, &t);
    if (status == AB_OK) status = run_bias_trial(spec, product, &t, once);
    ab_cuda_give_back(t.memory);
    return status;
}

static ab_status make_by_sums(const ab_cuda_product_spec *spec, ab_cuda_gemm shape,
                              ab_cuda_product **product) {
    shape.choice = 0;
    shape.bias = false;
    shape.type_c = AB_ELEMENT_F32;
    AB_TRY(make_product(spec->kind, &shape, product));
    if (!*product) return AB_OK;
    blas_product *p = reinterpret_cast<blas_product *>(*product);
    p->sums_type = spec->type;
    p->base.workspace_bytes += sums_bytes(&p->plan->shape);
    ab_text_show(p->base.text, sizeof p->base.text, "%s,own_bias", p->plan->text);
    return AB_OK;
}

static ab_status make_with_bias(const ab_cuda_product_spec *spec, ab_cuda_gemm shape,
                                ab_cuda_product **product) {
    for (shape.choice = 0; shape.choice < AB_CUDA_GEMM_CHOICES; shape.choice++) {
        bool once = false;
        AB_TRY(make_product(spec->kind, &shape, product));
        if (!*product) break;
        const ab_status status = try_bias(spec, *product, &once);
        if (status == AB_OK && once) return AB_OK;
        destroy(*product);
        *product = nullptr;
        if (status != AB_OK) return status;
    }
    return make_by_sums(spec, shape, product);
}

ab_status ab_cuda_blas_product(const ab_cuda_product_spec *spec, ab_cuda_product **product) {
    const ab_cuda_gemm shape = shape_of(spec);
    return shape.bias && shape.type != AB_ELEMENT_F32 ? make_with_bias(spec, shape, product)
                                                      : make_product(spec->kind, &shape, product);
}

// ---- relu ---------------------------------------------------------------------------------------

static ab_status fill_relu_trial(const ab_cuda_product_spec *spec, const trial *t) {
    const int64_t rows = spec->conv.batch, in = spec->conv.window.channels, out = spec->conv.out_channels;
    AB_TRY(fill_trial(t->plain.in, spec->type, rows * in, in, true));
    AB_TRY(fill_trial(t->plain.weights, spec->type, out * in, in, false));
    return fill_trial(t->plain.bias, spec->type, out, out, false);
}

static ab_status run_relu_trial(const ab_cuda_product_spec *spec, ab_cuda_product *plain,
                                ab_cuda_product *fused, const trial *t, bool *same) {
    cudaStream_t stream = ab_cuda_context()->stream;
    int32_t *flag;
    bool differ = true;
    AB_TRY(fill_relu_trial(spec, t));
    AB_TRY(ab_cuda_clear_flag(&flag));
    AB_TRY(plain->run(plain, &t->plain));
    AB_TRY(fused->run(fused, &t->fused));
    AB_CUDA_LAUNCH(compare_relu, ab_cuda_blocks(t->outputs, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, stream,
                   ab_cuda_span_of(t->plain.out, spec->type), ab_cuda_span_of(t->fused.out, spec->type),
                   t->outputs, flag);
    AB_TRY(ab_cuda_launched("compare_relu"));
    AB_TRY(ab_cuda_read_flag(flag, &differ));
    *same = !differ;
    return AB_OK;
}

static ab_status try_relu(const ab_cuda_product_spec *spec, ab_cuda_product *plain, ab_cuda_product *fused,
                          bool *same) {
    trial t = {};
    const size_t workspace =
        plain->workspace_bytes > fused->workspace_bytes ? plain->workspace_bytes : fused->workspace_bytes;
    *same = false;
    ab_status status = take_trial(spec, workspace, &t);
    if (status == AB_OK) status = run_relu_trial(spec, plain, fused, &t, same);
    ab_cuda_give_back(t.memory);
    return status;
}

ab_status ab_cuda_blas_product_relu(const ab_cuda_product_spec *spec, ab_cuda_product *plain,
                                    ab_cuda_product **product) {
    bool same = false;
    *product = nullptr;
    const blas_product *without = reinterpret_cast<blas_product *>(plain);
    if (without->sums_type >= 0) return AB_OK; // our bias is added after the library's epilogue
    blas_product *p = new_product(spec->kind);
    if (!p) return ab_fail(AB_NO_MEMORY, "linear: out of memory");
    ab_status status = ab_cuda_gemm_with_relu(without->plan, &p->plan);
    ab_cuda_product *fused = status == AB_OK && p->plan ? finished(p) : nullptr;
    if (fused) status = try_relu(spec, plain, fused, &same);
    if (status == AB_OK && same)
        *product = fused;
    else
        destroy(&p->base);
    return status == AB_UNAVAILABLE || status == AB_NO_MEMORY ? AB_OK : status;
}
