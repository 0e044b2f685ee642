// The three products of linear and conv2d on CUDA and who does them: cuBLASLt, cuDNN, or our own kernels,
// which do every shape and are what the libraries are compared with. Internal to the plugin.
#ifndef AB_KERNELS_OPS_PRODUCT_PRODUCT_CUDA_CUH
#define AB_KERNELS_OPS_PRODUCT_PRODUCT_CUDA_CUH

#include "kernels/cuda/cuda_ops.cuh"
#include "kernels/ops/product/pass.h"

// Operands of a pass; which are read and written depends on its kind.
struct ab_cuda_operands {
    void *in, *weights, *bias, *out; // bias: forward, or null
    void *din, *dweight;
    const void *dout;
    void *packed;    // weights in the library's layout, for whoever asked for it
    void *workspace; // workspace_bytes
};

// One product done by a library. Descriptors belong to it.
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

// Makes a product, or leaves *product null if the library does not do `spec`.
ab_status ab_cuda_blas_product(const ab_cuda_product_spec *spec, ab_cuda_product **product);
ab_status ab_cuda_dnn_product(const ab_cuda_product_spec *spec, ab_cuda_product **product);

// Whether the convolution library wants weights as {out, kh, kw, in}, which is another order than {out, in,
// kh, kw}.
bool ab_cuda_dnn_packs(const ab_conv *conv);

#endif
