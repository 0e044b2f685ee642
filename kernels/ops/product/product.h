/* What conv2d and linear share: three products (forward, backward data, backward weights), each done by one
 * implementation chosen when the op is prepared; copies of the weights in that implementation's layout, refreshed when
 * params_version changes; widening before, one rounding after.
 *
 * Internal to kernels/. An implementation is a pass: it knows one product of one shape and always delivers fp32, so that
 * a probe sees every value before its one rounding and probed and unprobed steps have the same bits. */
#ifndef AB_KERNELS_OPS_PRODUCT_PRODUCT_H
#define AB_KERNELS_OPS_PRODUCT_PRODUCT_H

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
} ab_pass_args;

typedef struct ab_pass ab_pass;
struct ab_pass {
    size_t packed_bytes;     /* of the weights in this pass's own layout; 0: plain weights will do */
    size_t scratch_bytes;    /* for run and pack */
    bool sums_bias;          /* backward weights computes the bias gradient too; else the caller sums dout */
    char text[AB_PASS_TEXT]; /* which implementation, for the record */
    /* packed = weights (torch's layout, in the spec's operand format) rearranged. NULL if packed_bytes is 0. */
    ab_status (*pack)(ab_pass *pass, const void *weights, void *packed, void *scratch);
    ab_status (*run)(ab_pass *pass, const ab_pass_args *args);
    void (*destroy)(ab_pass *pass);
};

/* Makes a pass, or leaves *pass NULL if this implementation does not do `spec`. */
typedef ab_status (*ab_pass_maker)(const ab_pass_spec *spec, ab_pass **pass);

/* How an op makes its passes. */
typedef struct ab_product_kind {
    const char *what;      /* the op's name, for messages */
    ab_pass_maker own;     /* our vectorised kernel for some fp32 shapes; may be NULL */
    ab_pass_maker library; /* oneDNN */
} ab_product_kind;

/* The prepare, bind, release, forward, backward and describe functions of conv2d and linear (op.h). in[0], param
 * {weight, bias}, out; conv is the op's geometry. What is NULL in io at prepare stays unwanted. */
AB_MUST_CHECK ab_status ab_product_prepare(const ab_exec *exec, ab_op_io *io, const ab_product_kind *kind,
                                           const ab_conv *conv, size_t *workspace_bytes, size_t *state_bytes);
void ab_product_bind(ab_op_io *io, void *state_memory);
void ab_product_release(ab_op_io *io);
AB_MUST_CHECK ab_status ab_product_forward(const ab_exec *exec, ab_op_io *io);
AB_MUST_CHECK ab_status ab_product_backward(const ab_exec *exec, ab_op_io *io);
const char *ab_product_describe(const ab_op_io *io, const char *pass);

AB_END_DECLS

#endif
