// cuDNN of the emulation: checks what the caller describes and gives, then convolves from the definition, in
// double, rounded once. Images and filters are channels-last here; other layouts are refused.
#include "cudnn.h"

#include "inside.h"

#include "kernels/ops/element.h"

#include <stdio.h>

#include <vector>

using emulated::mistake;

enum live { ALIVE = 0x600d, DEAD = 0xdead };

struct emulated_dnn {
    live state;
    cudaStream_t stream;
};
struct emulated_tensor {
    live state;
    bool set;
    cudnnDataType_t type;
    int64_t n, h, w, c;
};
struct emulated_filter {
    live state;
    bool set;
    cudnnDataType_t type;
    int64_t k, h, w, c;
};
struct emulated_convolution {
    live state;
    bool set;
    int64_t pad[2], stride[2], dilation[2], groups;
    cudnnMathType_t math;
};
struct emulated_activation {
    live state;
    bool set;
    cudnnActivationMode_t mode;
};

// ---- descriptors --------------------------------------------------------------------------------

size_t cudnnGetVersion() { return 0; }

const char *cudnnGetErrorString(cudnnStatus_t code) {
    return code == CUDNN_STATUS_SUCCESS     ? "CUDNN_STATUS_SUCCESS"
           : code == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
                                            : "CUDNN_STATUS_NOT_SUPPORTED";
}

void cudnnGetLastErrorString(char *text, size_t size) { snprintf(text, size, "emulated"); }

template <typename T> static cudnnStatus_t create(T **object) {
    *object = new T();
    (*object)->state = ALIVE;
    return CUDNN_STATUS_SUCCESS;
}

template <typename T> static bool is_alive(const T *object, const char *what) {
    if (object && object->state == ALIVE) return true;
    mistake("cuDNN: %s was destroyed or never made", what);
    return false;
}

template <typename T> static bool is_set(const T *object, const char *what) {
    if (!is_alive(object, what)) return false;
    if (!object->set) mistake("cuDNN: %s was never set", what);
    return object->set;
}

// Destroyed objects are kept, so that a later use is found.
template <typename T> static cudnnStatus_t bury(T *object, const char *what) {
    if (!is_alive(object, what)) return CUDNN_STATUS_BAD_PARAM;
    object->state = DEAD;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) { return create(handle); }

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t refuse(bool bad, const char *what) {
    if (bad) mistake("cuDNN: %s", what);
    return bad ? CUDNN_STATUS_BAD_PARAM : CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor) { return create(tensor); }

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w) {
    if (!is_alive(tensor, "a tensor's descriptor")) return CUDNN_STATUS_BAD_PARAM;
    *tensor = {ALIVE, true, type, n, h, w, c};
    return refuse(format != CUDNN_TENSOR_NHWC || n < 1 || c < 1 || h < 1 || w < 1,
                  "a tensor that is not channels-last, or empty");
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor) {
    return bury(tensor, "a tensor's descriptor");
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter) { return create(filter); }

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w) {
    if (!is_alive(filter, "a filter's descriptor")) return CUDNN_STATUS_BAD_PARAM;
    *filter = {ALIVE, true, type, k, h, w, c};
    return refuse(format != CUDNN_TENSOR_NHWC || k < 1 || c < 1 || h < 1 || w < 1,
                  "a filter that is not channels-last, or empty");
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter) {
    return bury(filter, "a filter's descriptor");
}

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *conv) {
    cudnnStatus_t status = create(conv);
    (*conv)->groups = 1;
    return status;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv, int pad_h, int pad_w,
                                              int stride_h, int stride_w, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t compute) {
    if (!is_alive(conv, "a convolution's descriptor")) return CUDNN_STATUS_BAD_PARAM;
    *conv = {
        ALIVE, true, {pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}, 1, CUDNN_DEFAULT_MATH};
    return refuse(mode != CUDNN_CROSS_CORRELATION || compute != CUDNN_DATA_FLOAT || pad_h < 0 || pad_w < 0 ||
                      stride_h < 1 || stride_w < 1 || dilation_h < 1 || dilation_w < 1,
                  "a convolution that is no cross-correlation with fp32 sums");
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv, int groups) {
    if (!is_set(conv, "a convolution's descriptor")) return CUDNN_STATUS_BAD_PARAM;
    conv->groups = groups;
    return refuse(groups < 1, "a convolution without groups");
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv, cudnnMathType_t math) {
    if (!is_set(conv, "a convolution's descriptor")) return CUDNN_STATUS_BAD_PARAM;
    conv->math = math;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv) {
    return bury(conv, "a convolution's descriptor");
}

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *activation) {
    return create(activation);
}

cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode,
                                           cudnnNanPropagation_t, double) {
    if (!is_alive(activation, "an activation's descriptor")) return CUDNN_STATUS_BAD_PARAM;
    *activation = {ALIVE, true, mode};
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
    return bury(activation, "an activation's descriptor");
}

// ---- what is asked ------------------------------------------------------------------------------

struct convolution {
    emulated_tensor x, y;
    emulated_filter w;
    emulated_convolution conv;
};

static int64_t out_size(const convolution &c, int axis, int64_t in, int64_t kernel) {
    return (in + 2 * c.conv.pad[axis] - c.conv.dilation[axis] * (kernel - 1) - 1) / c.conv.stride[axis] + 1;
}

static bool make_convolution(cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
                             cudnnConvolutionDescriptor_t conv, cudnnTensorDescriptor_t y, convolution *c) {
    if (!is_set(x, "x") || !is_set(w, "the filter") || !is_set(conv, "the convolution") || !is_set(y, "y"))
        return false;
    *c = {*x, *y, *w, *conv};
    bool fits = x->n == y->n && y->c == w->k && x->c == w->c * conv->groups && w->k % conv->groups == 0 &&
                y->h == out_size(*c, 0, x->h, w->h) && y->w == out_size(*c, 1, x->w, w->w);
    if (!fits) mistake("cuDNN: the shapes of a convolution contradict each other");
    if (x->type != y->type || x->type != w->type) mistake("cuDNN: a convolution of several types");
    if (x->type != CUDNN_DATA_FLOAT && conv->math == CUDNN_FMA_MATH)
        mistake("cuDNN: FMA math for half operands");
    return fits;
}

static size_t workspace_for(const convolution &c, int algorithm) {
    return algorithm == 0 ? 0 : 256 + static_cast<size_t>(c.w.k % 5) * 128;
}

// The first choice is not deterministic, or does not exist: the caller has to pass it over.
template <typename P>
static cudnnStatus_t choices(const convolution &c, bool forward, int wanted, int *count, P *list) {
    *count = wanted < 2 ? wanted : 2;
    for (int i = 0; i < *count; i++) {
        list[i] = {};
        list[i].algo = static_cast<decltype(list[i].algo)>(i);
        list[i].status = forward && i == 0 ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_SUCCESS;
        list[i].memory = workspace_for(c, i);
        list[i].determinism = i == 0 ? CUDNN_NON_DETERMINISTIC : CUDNN_DETERMINISTIC;
        list[i].mathType = c.x.type == CUDNN_DATA_FLOAT && c.conv.math == CUDNN_FMA_MATH
                               ? CUDNN_FMA_MATH
                               : CUDNN_TENSOR_OP_MATH;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t conv,
                                                     cudnnTensorDescriptor_t y, int wanted, int *count,
                                                     cudnnConvolutionFwdAlgoPerf_t *list) {
    convolution c;
    return make_convolution(x, w, conv, y, &c) ? choices(c, true, wanted, count, list)
                                               : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t dy,
                                                          cudnnConvolutionDescriptor_t conv,
                                                          cudnnTensorDescriptor_t dx, int wanted, int *count,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *list) {
    convolution c;
    return make_convolution(dx, w, conv, dy, &c) ? choices(c, false, wanted, count, list)
                                                 : CUDNN_STATUS_BAD_PARAM;
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t dy, cudnnConvolutionDescriptor_t conv,
    cudnnFilterDescriptor_t dw, int wanted, int *count, cudnnConvolutionBwdFilterAlgoPerf_t *list) {
    convolution c;
    return make_convolution(x, dw, conv, dy, &c) ? choices(c, false, wanted, count, list)
                                                 : CUDNN_STATUS_BAD_PARAM;
}

// ---- the products -------------------------------------------------------------------------------

static int element_type(cudnnDataType_t type) {
    return type == CUDNN_DATA_FLOAT  ? AB_ELEMENT_F32
           : type == CUDNN_DATA_HALF ? AB_ELEMENT_F16
                                     : AB_ELEMENT_BF16;
}

// An array in device memory, as doubles.
struct array {
    int type;
    size_t count;
    void *data;
    std::vector<double> value;
};

static array array_of(cudnnDataType_t type, int64_t count, const void *data) {
    return {element_type(type), static_cast<size_t>(count), const_cast<void *>(data), {}};
}

static array tensor_of(const emulated_tensor &t, const void *data) {
    return array_of(t.type, t.n * t.h * t.w * t.c, data);
}

static array filter_of(const emulated_filter &f, const void *data) {
    return array_of(f.type, f.k * f.h * f.w * f.c, data);
}

static size_t bytes_of(const array &a) { return a.count * (a.type == AB_ELEMENT_F32 ? 4 : 2); }

static void read(array *a, const char *who) {
    emulated::memory_read(a->data, bytes_of(*a), who);
    a->value.resize(a->count);
    for (size_t i = 0; i < a->count; i++)
        a->value[i] = static_cast<double>(ab_load(a->data, a->type, static_cast<int64_t>(i)));
}

// Operands of a product: fp32 ones are rounded to TF32 unless the convolution asks for FMA.
static void read_operand(array *a, const convolution &c, const char *who) {
    read(a, who);
    if (a->type != AB_ELEMENT_F32 || c.conv.math == CUDNN_FMA_MATH) return;
    for (double &x : a->value) x = static_cast<double>(emulated::rounded_to_tf32(static_cast<float>(x)));
}

static void zero(array *a) { a->value.assign(a->count, 0.0); }

static void store(const array &a, const char *who) {
    emulated::memory_write(a.data, bytes_of(a), who);
    for (size_t i = 0; i < a.count; i++)
        ab_store(a.data, a.type, static_cast<int64_t>(i), static_cast<float>(a.value[i]));
}

// Calls f(index in x, in w, in y) for every product of two of them that a convolution sums.
template <typename F> static void each_term(const convolution &c, F f) {
    int64_t per_out = c.w.k / c.conv.groups;
    for (int64_t n = 0; n < c.y.n; n++)
        for (int64_t p = 0; p < c.y.h * c.y.w; p++)
            for (int64_t tap = 0; tap < c.w.h * c.w.w; tap++) {
                int64_t row = p / c.y.w * c.conv.stride[0] + tap / c.w.w * c.conv.dilation[0] - c.conv.pad[0];
                int64_t col = p % c.y.w * c.conv.stride[1] + tap % c.w.w * c.conv.dilation[1] - c.conv.pad[1];
                if (row < 0 || row >= c.x.h || col < 0 || col >= c.x.w) continue;
                for (int64_t k = 0; k < c.w.k; k++) {
                    int64_t x = ((n * c.x.h + row) * c.x.w + col) * c.x.c + k / per_out * c.w.c;
                    int64_t w = (k * c.w.h * c.w.w + tap) * c.w.c, y = (n * c.y.h * c.y.w + p) * c.y.c + k;
                    for (int64_t i = 0; i < c.w.c; i++)
                        f(static_cast<size_t>(x + i), static_cast<size_t>(w + i), static_cast<size_t>(y));
                }
            }
}

static void check_call(const convolution &c, int algorithm, void *workspace, size_t bytes, const void *alpha,
                       const void *beta) {
    if (algorithm != 1)
        mistake("cuDNN: algorithm %d was not among the supported, deterministic ones", algorithm);
    if (bytes < workspace_for(c, algorithm) || !workspace)
        mistake("cuDNN: a workspace of %zu bytes, the algorithm needs %zu", bytes,
                workspace_for(c, algorithm));
    if (reinterpret_cast<uintptr_t>(workspace) % 16) mistake("cuDNN: a workspace at %p", workspace);
    if (*static_cast<const float *>(alpha) != 1.0f || *static_cast<const float *>(beta) != 0.0f)
        mistake("cuDNN: only alpha 1 and beta 0 are emulated");
}

static void forward(const convolution &c, const void *x_at, const void *w_at, const void *bias_at,
                    void *y_at) {
    array x = tensor_of(c.x, x_at), w = filter_of(c.w, w_at), y = tensor_of(c.y, y_at);
    array bias = array_of(c.y.type, c.y.c, bias_at);
    read_operand(&x, c, "cuDNN forward, x");
    read_operand(&w, c, "cuDNN forward, filter");
    if (bias_at) read(&bias, "cuDNN forward, bias");
    zero(&y);
    each_term(c, [&](size_t i, size_t j, size_t k) { y.value[k] += x.value[i] * w.value[j]; });
    for (size_t k = 0; bias_at && k < y.count; k++) y.value[k] += bias.value[k % bias.count];
    store(y, "cuDNN forward, y");
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_as,
                                      const void *x, cudnnFilterDescriptor_t w_as, const void *w,
                                      cudnnConvolutionDescriptor_t conv, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *workspace, size_t bytes, const void *beta,
                                      cudnnTensorDescriptor_t y_as, void *y) {
    convolution c;
    if (!make_convolution(x_as, w_as, conv, y_as, &c)) return CUDNN_STATUS_BAD_PARAM;
    if (x == y) return CUDNN_STATUS_NOT_SUPPORTED; // as cuDNN 9.19 on an H100
    check_call(c, algorithm, workspace, bytes, alpha, beta);
    emulated::enqueue(handle->stream, [=] {
        emulated::memory_forget(workspace, bytes, "cuDNN forward, workspace");
        forward(c, x, w, nullptr, y);
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha, cudnnTensorDescriptor_t x_as, const void *x,
    cudnnFilterDescriptor_t w_as, const void *w, cudnnConvolutionDescriptor_t conv,
    cudnnConvolutionFwdAlgo_t algorithm, void *workspace, size_t bytes, const void *beta,
    cudnnTensorDescriptor_t, const void *, cudnnTensorDescriptor_t bias_as, const void *bias,
    cudnnActivationDescriptor_t activation, cudnnTensorDescriptor_t y_as, void *y) {
    convolution c;
    if (!make_convolution(x_as, w_as, conv, y_as, &c) || !is_set(bias_as, "the bias") ||
        !is_set(activation, "the activation"))
        return CUDNN_STATUS_BAD_PARAM;
    if (bias_as->c != c.y.c || bias_as->n * bias_as->h * bias_as->w != 1 || bias_as->type != c.y.type)
        mistake("cuDNN: the bias does not fit the result");
    if (activation->mode != CUDNN_ACTIVATION_IDENTITY) mistake("cuDNN: only the identity is emulated");
    if (x == y) return CUDNN_STATUS_NOT_SUPPORTED; // as cuDNN 9.19 on an H100
    check_call(c, algorithm, workspace, bytes, alpha, beta);
    emulated::enqueue(handle->stream, [=] {
        emulated::memory_forget(workspace, bytes, "cuDNN forward, workspace");
        forward(c, x, w, bias, y);
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t handle, const void *alpha,
                                           cudnnFilterDescriptor_t w_as, const void *w_at,
                                           cudnnTensorDescriptor_t dy_as, const void *dy_at,
                                           cudnnConvolutionDescriptor_t conv,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                                           size_t bytes, const void *beta, cudnnTensorDescriptor_t dx_as,
                                           void *dx_at) {
    convolution c;
    if (!make_convolution(dx_as, w_as, conv, dy_as, &c)) return CUDNN_STATUS_BAD_PARAM;
    check_call(c, algorithm, workspace, bytes, alpha, beta);
    emulated::enqueue(handle->stream, [=] {
        emulated::memory_forget(workspace, bytes, "cuDNN backward data, workspace");
        array dx = tensor_of(c.x, dx_at), w = filter_of(c.w, w_at), dy = tensor_of(c.y, dy_at);
        read_operand(&w, c, "cuDNN backward data, filter");
        read_operand(&dy, c, "cuDNN backward data, dy");
        zero(&dx);
        each_term(c, [&](size_t i, size_t j, size_t k) { dx.value[i] += dy.value[k] * w.value[j]; });
        store(dx, "cuDNN backward data, dx");
    });
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t handle, const void *alpha,
                                             cudnnTensorDescriptor_t x_as, const void *x_at,
                                             cudnnTensorDescriptor_t dy_as, const void *dy_at,
                                             cudnnConvolutionDescriptor_t conv,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                             size_t bytes, const void *beta, cudnnFilterDescriptor_t dw_as,
                                             void *dw_at) {
    convolution c;
    if (!make_convolution(x_as, dw_as, conv, dy_as, &c)) return CUDNN_STATUS_BAD_PARAM;
    check_call(c, algorithm, workspace, bytes, alpha, beta);
    emulated::enqueue(handle->stream, [=] {
        emulated::memory_forget(workspace, bytes, "cuDNN backward filter, workspace");
        array x = tensor_of(c.x, x_at), dw = filter_of(c.w, dw_at), dy = tensor_of(c.y, dy_at);
        read_operand(&x, c, "cuDNN backward filter, x");
        read_operand(&dy, c, "cuDNN backward filter, dy");
        zero(&dw);
        each_term(c, [&](size_t i, size_t j, size_t k) { dw.value[j] += dy.value[k] * x.value[i]; });
        store(dw, "cuDNN backward filter, dw");
    });
    return CUDNN_STATUS_SUCCESS;
}
