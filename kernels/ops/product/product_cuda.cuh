// The three products of linear and conv2d on CUDA and their implementations: cuBLASLt, cuDNN, or own kernels,
// which support every shape and are the reference for the libraries. Internal to the plugin.
#ifndef AB_KERNELS_OPS_PRODUCT_PRODUCT_CUDA_CUH
#define AB_KERNELS_OPS_PRODUCT_PRODUCT_CUDA_CUH

#include "kernels/cuda/cuda_ops.cuh"
#include "kernels/ops/product/pass.h"

// Operands of a pass; its kind determines which are read and written.
struct ab_cuda_operands {
    void *in, *weights, *bias, *out; // bias: forward, or null
    void *din, *dweight;
    const void *dout;
    void *packed;    // weights in the library's layout, if the product uses it
    void *workspace; // workspace_bytes
};

// Elements of a convolution's operands, and of their gradients.
static inline int64_t ab_cuda_in_count(const ab_conv *c) {
    return c->batch * c->window.in[0] * c->window.in[1] * c->window.channels;
}
static inline int64_t ab_cuda_out_count(const ab_conv *c) {
    return c->batch * c->window.out[0] * c->window.out[1] * c->out_channels;
}
static inline int64_t ab_cuda_weight_count(const ab_conv *c) {
    return c->out_channels * (c->window.channels / c->groups) * c->window.kernel[0] * c->window.kernel[1];
}

// out = sums + bias of the column, rounded once; `out` may be `sums`. n elements in rows of `columns`.
ab_status ab_cuda_add_bias(ab_span sums, ab_span bias, int64_t columns, ab_span out, int64_t n);

// One product computed by a library. Owns its descriptors.
struct ab_cuda_product {
    size_t workspace_bytes;
    char text[AB_PASS_TEXT];
    ab_status (*run)(ab_cuda_product *product, const ab_cuda_operands *operands);
    void (*destroy)(ab_cuda_product *product);
};

struct ab_cuda_product_spec {
    ab_pass_kind kind;
    ab_conv conv;
    int type; // ab_element_type of all operands
    bool bias, tf32;
};

// Makes a product, or leaves *product null if the library does not support `spec`.
ab_status ab_cuda_blas_product(const ab_cuda_product_spec *spec, ab_cuda_product **product);
// The forward product `plain` of ab_cuda_blas_product with a relu before its one rounding; *product stays
// null unless the library's results for values of every kind, NaN included, are those of the product and our
// relu.
ab_status ab_cuda_blas_product_relu(const ab_cuda_product_spec *spec, ab_cuda_product *plain,
                                    ab_cuda_product **product);
ab_status ab_cuda_dnn_product(const ab_cuda_product_spec *spec, ab_cuda_product **product);

// Whether cuDNN needs weights repacked as {out, kh, kw, in}, i.e. differently ordered from {out, in, kh, kw}.
bool ab_cuda_dnn_packs(const ab_conv *conv);

#endif
