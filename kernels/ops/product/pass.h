/* One of the three products (forward, backward data, backward weights) for one shape and one implementation:
 * specification, arguments, properties. product.h chooses; narrow.h, reference.h and dnnl_shim.h implement.
 *
 * Internal to kernels/. The result is always fp32, so a probe sees every value before its one rounding, and
 * probed and unprobed steps have the same bits. */
#ifndef AB_KERNELS_OPS_PRODUCT_PASS_H
#define AB_KERNELS_OPS_PRODUCT_PASS_H

#include "kernels/core/window.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

typedef enum ab_pass_kind { AB_PASS_FORWARD, AB_PASS_BACKWARD_DATA, AB_PASS_BACKWARD_WEIGHTS } ab_pass_kind;

enum { AB_PASSES = 3, AB_PASS_TEXT = 80 };

/* Specification of a pass. A linear layer is a 1x1 convolution of 1x1 images. */
typedef struct ab_pass_spec {
    ab_pass_kind kind;
    ab_conv conv;
    bool bias; /* forward adds a bias */
    int64_t
        dout_step; /* backward weights of a matrix product: row stride of dout in elements; 0: out_channels */
    const ab_format *operands;   /* format of src, weights and dout: fp32 or a half format */
    const ab_format *accumulate; /* round every product and partial sum to this format; NULL: fp32 */
    bool sizes_only;             /* packed_bytes, scratch_bytes and text are wanted; the pass cannot run */
} ab_pass_spec;

typedef struct ab_pass_args {
    const void *src;     /* forward and backward weights: in; backward data: dout */
    const void *weights; /* forward and backward data: as written by pack, or plain if packed_bytes is 0 */
    const float *bias;   /* forward; NULL if none */
    const void *dout;    /* backward weights */
    float *dst;          /* out, din, or dweight in torch's layout */
    float *dbias;        /* backward weights of a pass that sums_bias; NULL if the op has no bias */
    void *scratch;       /* scratch_bytes, 64-byte aligned */
    bool *
        nonfinite; /* written by a pass that requests checking (nonfinite.h): src or dout is not all finite */
} ab_pass_args;

typedef struct ab_pass ab_pass;
struct ab_pass {
    size_t packed_bytes;     /* size of the weights in the pass's own layout; 0: reads plain weights */
    size_t scratch_bytes;    /* for run and pack */
    bool is_reference;       /* propagates inf and NaN correctly: never checked */
    bool sums_bias;          /* backward weights also computes the bias gradient; else the caller sums dout */
    char text[AB_PASS_TEXT]; /* implementation, for the record */
    /* Writes weights (torch's layout, the spec's operand format) to packed in the pass's layout. NULL if
     * packed_bytes is 0. */
    ab_status (*pack)(ab_pass *pass, const void *weights, void *packed, void *scratch);
    ab_status (*run)(ab_pass *pass, const ab_pass_args *args);
    void (*destroy)(ab_pass *pass);
};

/* Makes a pass, or leaves *pass NULL if the implementation does not support `spec`. */
typedef ab_status (*ab_pass_maker)(const ab_pass_spec *spec, ab_pass **pass);

AB_END_DECLS

#endif
