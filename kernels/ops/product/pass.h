/* One of the three products (forward, backward data, backward weights) of one shape, done by one
 * implementation: what it is made for, what it is handed, what it can do. product.h chooses; narrow.h,
 * reference.h, dnnl_shim.h make them.
 *
 * Internal to kernels/. A pass always delivers fp32, so that a probe sees every value before its one rounding
 * and probed and unprobed steps have the same bits. */
#ifndef AB_KERNELS_OPS_PRODUCT_PASS_H
#define AB_KERNELS_OPS_PRODUCT_PASS_H

#include "kernels/core/window.h"
#include "kernels/ops/op.h"

AB_BEGIN_DECLS

typedef enum ab_pass_kind { AB_PASS_FORWARD, AB_PASS_BACKWARD_DATA, AB_PASS_BACKWARD_WEIGHTS } ab_pass_kind;

enum { AB_PASSES = 3, AB_PASS_TEXT = 80 };

/* Everything a pass is made for. A linear layer is a convolution of 1x1 images by a 1x1 kernel. */
typedef struct ab_pass_spec {
    ab_pass_kind kind;
    ab_conv conv;
    bool bias;                   /* forward adds one */
    int64_t dout_step;           /* backward weights of a matrix product: elements from one row of dout to the
                                    next; 0: out_channels */
    const ab_format *operands;   /* how src, weights and dout are handed in: fp32 or a half format */
    const ab_format *accumulate; /* not NULL: round every product and partial sum to this format */
} ab_pass_spec;

typedef struct ab_pass_args {
    const void *src;     /* forward and backward weights: in; backward data: dout */
    const void *weights; /* forward and backward data: as pack left them, or plain if packed_bytes is 0 */
    const float *bias;   /* forward; NULL if none */
    const void *dout;    /* backward weights */
    float *dst;          /* out, din, or dweight in torch's layout */
    float *dbias;        /* backward weights of a pass that sums_bias; NULL if the op has no bias */
    void *scratch;       /* scratch_bytes, 64-byte aligned */
    bool *nonfinite; /* set by a pass that asks to be checked (nonfinite.h): src or dout is not all finite */
} ab_pass_args;

typedef struct ab_pass ab_pass;
struct ab_pass {
    size_t packed_bytes;     /* of the weights in this pass's own layout; 0: plain weights will do */
    size_t scratch_bytes;    /* for run and pack */
    bool is_reference;       /* infinities and NaNs are where they belong: never checked */
    bool sums_bias;          /* backward weights computes the bias gradient too; else the caller sums dout */
    char text[AB_PASS_TEXT]; /* which implementation, for the record */
    /* packed = weights (torch's layout, in the spec's operand format) rearranged. NULL if packed_bytes is 0.
     */
    ab_status (*pack)(ab_pass *pass, const void *weights, void *packed, void *scratch);
    ab_status (*run)(ab_pass *pass, const ab_pass_args *args);
    void (*destroy)(ab_pass *pass);
};

/* Makes a pass, or leaves *pass NULL if this implementation does not do `spec`. */
typedef ab_status (*ab_pass_maker)(const ab_pass_spec *spec, ab_pass **pass);

AB_END_DECLS

#endif
