// Convolutions through cuDNN, images and weights channels-last. fp32 sums; fp32 convolutions are IEEE (FMA)
// unless the run allows TF32; a half convolution with a bias uses the fused call, so there is one rounding.
//
// The algorithm is the first deterministic one in the order of the heuristics. It is run once on scratch
// memory, because cuDNN reports missing support only when run. Unsupported products use own kernels.
#include "kernels/core/text.h"
#include "kernels/ops/product/product_cuda.cuh"

#include <cstdio>
#include <cstdlib>

enum { CANDIDATES = 8, MOST_WORKSPACE = 256 << 20 };

namespace {
struct dnn_product {
    ab_cuda_product base; // must be the first member
    ab_cuda_product_spec spec;
    cudnnTensorDescriptor_t in, out, bias;
    cudnnFilterDescriptor_t weights;
    cudnnConvolutionDescriptor_t conv;
    cudnnActivationDescriptor_t identity;
    int algorithm;
    bool fused; // bias and rounding in one call
    bool tf32;  // the chosen algorithm rounds operands to TF32
};
} // namespace

bool ab_cuda_dnn_packs(const ab_conv *conv) {
    const ab_window *w = &conv->window;
    return w->kernel[0] * w->kernel[1] > 1 && w->channels / conv->groups > 1;
}

static cudnnDataType_t data_type(int type) {
    return type == AB_ELEMENT_F32   ? CUDNN_DATA_FLOAT
           : type == AB_ELEMENT_F16 ? CUDNN_DATA_HALF
                                    : CUDNN_DATA_BFLOAT16;
}

static size_t element_bytes(int type) { return type == AB_ELEMENT_F32 ? 4 : 2; }

static void destroy(ab_cuda_product *base) {
    dnn_product *p = reinterpret_cast<dnn_product *>(base);
    if (!p) return;
    if (p->in) (void)cudnnDestroyTensorDescriptor(p->in);
    if (p->out) (void)cudnnDestroyTensorDescriptor(p->out);
    if (p->bias) (void)cudnnDestroyTensorDescriptor(p->bias);
    if (p->weights) (void)cudnnDestroyFilterDescriptor(p->weights);
    if (p->conv) (void)cudnnDestroyConvolutionDescriptor(p->conv);
    if (p->identity) (void)cudnnDestroyActivationDescriptor(p->identity);
    free(p);
}

// ---- running ------------------------------------------------------------------------------------

static ab_status add_bias(const dnn_product *p, const ab_cuda_operands *o) {
    const ab_span out = ab_cuda_span_of(o->out, p->spec.type);
    return ab_cuda_add_bias(out, ab_cuda_span_of(o->bias, p->spec.type), p->spec.conv.out_channels, out,
                            ab_cuda_out_count(&p->spec.conv));
}

static ab_status run_forward(dnn_product *p, const ab_cuda_operands *o) {
    const float one = 1.0f, zero = 0.0f;
    cudnnHandle_t dnn = ab_cuda_context()->dnn;
    cudnnConvolutionFwdAlgo_t algorithm = static_cast<cudnnConvolutionFwdAlgo_t>(p->algorithm);
    if (p->fused)
        return ab_cuda_check_dnn(cudnnConvolutionBiasActivationForward(
                                     dnn, &one, p->in, o->in, p->weights, o->packed, p->conv, algorithm,
                                     o->workspace, p->base.workspace_bytes, &zero, p->out, o->out, p->bias,
                                     o->bias, p->identity, p->out, o->out),
                                 "cudnnConvolutionBiasActivationForward");
    AB_DNN_TRY(cudnnConvolutionForward(dnn, &one, p->in, o->in, p->weights, o->packed, p->conv, algorithm,
                                       o->workspace, p->base.workspace_bytes, &zero, p->out, o->out));
    return p->spec.bias ? add_bias(p, o) : AB_OK;
}

static ab_status run(ab_cuda_product *base, const ab_cuda_operands *o) {
    dnn_product *p = reinterpret_cast<dnn_product *>(base);
    const float one = 1.0f, zero = 0.0f;
    cudnnHandle_t dnn = ab_cuda_context()->dnn;
    if (p->spec.kind == AB_PASS_FORWARD) return run_forward(p, o);
    if (p->spec.kind == AB_PASS_BACKWARD_DATA)
        return ab_cuda_check_dnn(
            cudnnConvolutionBackwardData(dnn, &one, p->weights, o->packed, p->out, o->dout, p->conv,
                                         static_cast<cudnnConvolutionBwdDataAlgo_t>(p->algorithm),
                                         o->workspace, p->base.workspace_bytes, &zero, p->in, o->din),
            "cudnnConvolutionBackwardData");
    return ab_cuda_check_dnn(
        cudnnConvolutionBackwardFilter(dnn, &one, p->in, o->in, p->out, o->dout, p->conv,
                                       static_cast<cudnnConvolutionBwdFilterAlgo_t>(p->algorithm),
                                       o->workspace, p->base.workspace_bytes, &zero, p->weights, o->dweight),
        "cudnnConvolutionBackwardFilter");
}

// ---- descriptors --------------------------------------------------------------------------------

static bool fits_int(int64_t n) { return n >= 0 && n <= 0x7fffffff; }

static ab_status describe_tensors(dnn_product *p, cudnnDataType_t type) {
    const ab_conv *c = &p->spec.conv;
    const ab_window *w = &c->window;
    int batch = static_cast<int>(c->batch), channels = static_cast<int>(w->channels);
    int outputs = static_cast<int>(c->out_channels), per_group = static_cast<int>(w->channels / c->groups);
    AB_DNN_TRY(cudnnCreateTensorDescriptor(&p->in));
    AB_DNN_TRY(cudnnCreateTensorDescriptor(&p->out));
    AB_DNN_TRY(cudnnCreateTensorDescriptor(&p->bias));
    AB_DNN_TRY(cudnnCreateFilterDescriptor(&p->weights));
    AB_DNN_TRY(cudnnSetTensor4dDescriptor(p->in, CUDNN_TENSOR_NHWC, type, batch, channels,
                                          static_cast<int>(w->in[0]), static_cast<int>(w->in[1])));
    AB_DNN_TRY(cudnnSetTensor4dDescriptor(p->out, CUDNN_TENSOR_NHWC, type, batch, outputs,
                                          static_cast<int>(w->out[0]), static_cast<int>(w->out[1])));
    AB_DNN_TRY(cudnnSetTensor4dDescriptor(p->bias, CUDNN_TENSOR_NHWC, type, 1, outputs, 1, 1));
    return ab_cuda_check_dnn(cudnnSetFilter4dDescriptor(p->weights, type, CUDNN_TENSOR_NHWC, outputs,
                                                        per_group, static_cast<int>(w->kernel[0]),
                                                        static_cast<int>(w->kernel[1])),
                             "cudnnSetFilter4dDescriptor");
}

static ab_status describe_convolution(dnn_product *p) {
    const ab_window *w = &p->spec.conv.window;
    bool ieee = p->spec.type == AB_ELEMENT_F32 && !p->spec.tf32;
    AB_DNN_TRY(cudnnCreateConvolutionDescriptor(&p->conv));
    AB_DNN_TRY(cudnnSetConvolution2dDescriptor(
        p->conv, static_cast<int>(w->padding[0]), static_cast<int>(w->padding[1]),
        static_cast<int>(w->stride[0]), static_cast<int>(w->stride[1]), static_cast<int>(w->dilation[0]),
        static_cast<int>(w->dilation[1]), CUDNN_CROSS_CORRELATION, CUDNN_DATA_FLOAT));
    AB_DNN_TRY(cudnnSetConvolutionGroupCount(p->conv, static_cast<int>(p->spec.conv.groups)));
    AB_DNN_TRY(cudnnSetConvolutionMathType(p->conv, ieee ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH));
    AB_DNN_TRY(cudnnCreateActivationDescriptor(&p->identity));
    return ab_cuda_check_dnn(
        cudnnSetActivationDescriptor(p->identity, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN, 0.0),
        "cudnnSetActivationDescriptor");
}

// ---- selection ----------------------------------------------------------------------------------

namespace {
// Results of the three heuristics for one algorithm.
struct candidate {
    int algorithm;
    cudnnStatus_t status;
    size_t workspace;
    bool deterministic;
    cudnnMathType_t math;
};
} // namespace

template <typename P> static int take(const P *found, int count, candidate *list) {
    for (int i = 0; i < count; i++)
        list[i] = {static_cast<int>(found[i].algo), found[i].status, found[i].memory,
                   found[i].determinism == CUDNN_DETERMINISTIC, found[i].mathType};
    return count;
}

static int ask(const dnn_product *p, candidate *list) {
    cudnnHandle_t dnn = ab_cuda_context()->dnn;
    int count = 0;
    if (p->spec.kind == AB_PASS_FORWARD) {
        cudnnConvolutionFwdAlgoPerf_t found[CANDIDATES];
        if (cudnnGetConvolutionForwardAlgorithm_v7(dnn, p->in, p->weights, p->conv, p->out, CANDIDATES,
                                                   &count, found) != CUDNN_STATUS_SUCCESS)
            return 0;
        return take(found, count, list);
    }
    if (p->spec.kind == AB_PASS_BACKWARD_DATA) {
        cudnnConvolutionBwdDataAlgoPerf_t found[CANDIDATES];
        if (cudnnGetConvolutionBackwardDataAlgorithm_v7(dnn, p->weights, p->out, p->conv, p->in, CANDIDATES,
                                                        &count, found) != CUDNN_STATUS_SUCCESS)
            return 0;
        return take(found, count, list);
    }
    cudnnConvolutionBwdFilterAlgoPerf_t found[CANDIDATES];
    if (cudnnGetConvolutionBackwardFilterAlgorithm_v7(dnn, p->in, p->out, p->conv, p->weights, CANDIDATES,
                                                      &count, found) != CUDNN_STATUS_SUCCESS)
        return 0;
    return take(found, count, list);
}

static ab_status apply(dnn_product *p, const candidate *c) {
    p->algorithm = c->algorithm;
    p->base.workspace_bytes = c->workspace;
    if (p->spec.type == AB_ELEMENT_F32 && !p->spec.tf32) return AB_OK; // keep FMA
    return ab_cuda_check_dnn(cudnnSetConvolutionMathType(p->conv, c->math), "cudnnSetConvolutionMathType");
}

namespace {
// Device memory of a trial: operands, and for two runs a second place for each.
struct trial {
    void *memory;
    size_t bytes; // of the operands
    ab_cuda_operands operands, others;
};
} // namespace

// The library refuses operands that overlap.
static ab_status take_trial(const dnn_product *p, size_t runs, trial *t) {
    const ab_conv *c = &p->spec.conv;
    const int64_t count[] = {ab_cuda_in_count(c), ab_cuda_out_count(c), ab_cuda_weight_count(c),
                             c->out_channels};
    size_t offset[5] = {0};
    for (int i = 0; i < 4; i++)
        offset[i + 1] =
            offset[i] + ab_cuda_aligned(static_cast<size_t>(count[i]) * element_bytes(p->spec.type));
    t->bytes = offset[4];
    AB_TRY(ab_cuda_take(runs * t->bytes + p->base.workspace_bytes + 256, &t->memory));
    char *all = static_cast<char *>(t->memory);
    ab_cuda_operands *const both[] = {&t->operands, &t->others};
    for (size_t i = 0; i < runs; i++) {
        ab_cuda_operands *o = both[i];
        o->in = o->din = all;
        o->out = all + offset[1];
        o->dout = o->out;
        o->weights = o->packed = o->dweight = all + offset[2];
        o->bias = all + offset[3];
        o->workspace = static_cast<char *>(t->memory) + runs * t->bytes;
        all += t->bytes;
    }
    return AB_OK;
}

static ab_status waited(ab_status status) {
    ab_status done = ab_cuda_check(cudaStreamSynchronize(ab_cuda_context()->stream), "trying a convolution");
    return status == AB_OK ? done : status;
}

// Runs the product once on zeros.
static ab_status try_out(dnn_product *p) {
    trial t = {};
    ab_status status = take_trial(p, 1, &t);
    if (status == AB_OK)
        status = ab_cuda_check(cudaMemsetAsync(t.memory, 0, t.bytes, ab_cuda_context()->stream),
                               "cudaMemsetAsync");
    if (status == AB_OK) status = waited(run(&p->base, &t.operands));
    ab_cuda_give_back(t.memory);
    return status;
}

// ---- TF32 ---------------------------------------------------------------------------------------
// Where TF32 is allowed, the library's math type does not say whether an algorithm uses it (seen: weight
// gradients of math type 0 with IEEE's bits, cuDNN 9.19 on an H100). So the product of ones is computed
// twice, once with 1 + 2^-12 for one operand, which is 1 in TF32: equal results are of rounded operands.

namespace {
struct constant {
    float value;
    __device__ float operator()(int64_t) const { return value; }
};
} // namespace

__global__ static void compare(const uint32_t *a, const uint32_t *b, int64_t n, int32_t *differ) {
    const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
    for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step)
        if (a[i] != b[i]) *differ = 1;
}

static ab_status run_of_ones(dnn_product *p, const ab_cuda_operands *o, size_t bytes, float other) {
    const ab_conv *c = &p->spec.conv;
    void *const varied = p->spec.kind == AB_PASS_BACKWARD_DATA ? o->weights : o->in;
    constant ones = {1.0f}, others = {other};
    AB_TRY(ab_launch_each(ones, ab_cuda_span_of(o->in, AB_ELEMENT_F32), static_cast<int64_t>(bytes / 4),
                          "constant"));
    AB_TRY(ab_launch_each(others, ab_cuda_span_of(varied, AB_ELEMENT_F32),
                          varied == o->in ? ab_cuda_in_count(c) : ab_cuda_weight_count(c), "constant"));
    return run(&p->base, o);
}

static ab_status compare_results(dnn_product *p, const trial *t, bool *same) {
    const ab_conv *c = &p->spec.conv;
    const bool forward = p->spec.kind == AB_PASS_FORWARD, data = p->spec.kind == AB_PASS_BACKWARD_DATA;
    const ab_cuda_operands *a = &t->operands, *b = &t->others;
    const int64_t n = forward ? ab_cuda_out_count(c) : data ? ab_cuda_in_count(c) : ab_cuda_weight_count(c);
    const void *left = forward ? a->out
                       : data  ? a->din
                               : a->dweight,
               *right = forward ? b->out
                        : data  ? b->din
                                : b->dweight;
    int32_t *flag;
    bool differ = true;
    AB_TRY(ab_cuda_clear_flag(&flag));
    AB_CUDA_LAUNCH(compare, ab_cuda_blocks(n, AB_CUDA_THREADS), AB_CUDA_THREADS, 0, ab_cuda_context()->stream,
                   static_cast<const uint32_t *>(left), static_cast<const uint32_t *>(right), n, flag);
    AB_TRY(ab_cuda_launched("compare"));
    AB_TRY(ab_cuda_read_flag(flag, &differ));
    *same = !differ;
    return AB_OK;
}

static ab_status find_tf32(dnn_product *p) {
    if (p->spec.type != AB_ELEMENT_F32 || !p->spec.tf32) return AB_OK;
    trial t = {};
    ab_status status = take_trial(p, 2, &t);
    if (status == AB_OK) status = run_of_ones(p, &t.operands, t.bytes, 1.0f);
    if (status == AB_OK) status = run_of_ones(p, &t.others, t.bytes, 1.0f + 0x1p-12f);
    if (status == AB_OK) status = compare_results(p, &t, &p->tf32);
    ab_cuda_give_back(t.memory);
    return status;
}

// ---- the first that works -----------------------------------------------------------------------

static ab_status choose(dnn_product *p, bool *found) {
    candidate list[CANDIDATES];
    int count = ask(p, list);
    *found = false;
    for (int i = 0; i < count && !*found; i++) {
        const candidate *c = &list[i];
        if (c->status != CUDNN_STATUS_SUCCESS || !c->deterministic || c->workspace > MOST_WORKSPACE) continue;
        if (p->fused && c->algorithm != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) continue;
        AB_TRY(apply(p, c));
        ab_status status = try_out(p);
        if (status == AB_OK)
            *found = true;
        else if (status != AB_UNAVAILABLE)
            return status;
    }
    return AB_OK;
}

static ab_status set_up(dnn_product *p, bool *found) {
    AB_TRY(describe_tensors(p, data_type(p->spec.type)));
    AB_TRY(describe_convolution(p));
    AB_TRY(choose(p, found));
    return *found ? find_tf32(p) : AB_OK;
}

static bool too_large(const ab_conv *c) {
    return !fits_int(ab_cuda_in_count(c)) || !fits_int(ab_cuda_out_count(c));
}

ab_status ab_cuda_dnn_product(const ab_cuda_product_spec *spec, ab_cuda_product **product) {
    static const char *const names[] = {"fwd", "bwd_data", "bwd_filter"};
    bool found = false;
    *product = nullptr;
    if (too_large(&spec->conv)) return AB_OK;
    AB_TRY(ab_cuda_start());
    dnn_product *p = static_cast<dnn_product *>(calloc(1, sizeof *p));
    if (!p) return ab_fail(AB_NO_MEMORY, "conv2d: out of memory");
    p->base.run = run;
    p->base.destroy = destroy;
    p->spec = *spec;
    p->fused = spec->kind == AB_PASS_FORWARD && spec->bias && spec->type != AB_ELEMENT_F32;
    ab_status status = set_up(p, &found);
    if (status != AB_OK || !found) {
        destroy(&p->base);
        return status == AB_UNAVAILABLE ? AB_OK : status;
    }
    ab_text_show(p->base.text, sizeof p->base.text, "cudnn:%s%d%s", names[spec->kind], p->algorithm,
                 p->fused  ? "+bias"
                 : p->tf32 ? ",tf32"
                           : "");
    *product = &p->base;
    return AB_OK;
}
