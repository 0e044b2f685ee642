/* Shared by conv2d and linear: the three products (forward, backward data, backward weights), each with an
 * implementation chosen in prepare; weights packed in its layout, refreshed when params_version changes;
 * widening before, one rounding after.
 *
 * Internal to kernels/. An implementation is a pass (pass.h). */
#ifndef AB_KERNELS_OPS_PRODUCT_PRODUCT_H
#define AB_KERNELS_OPS_PRODUCT_PRODUCT_H

#include "kernels/ops/product/pass.h"

AB_BEGIN_DECLS

/* Makers of an op's passes. */
typedef struct ab_product_kind {
    const char *what;      /* op name, for error messages */
    ab_pass_maker own;     /* this project's vectorised kernel for some fp32 shapes; may be NULL */
    ab_pass_maker bf16;    /* the same for bf16 operands on a unit for them (bf16_unit.h); may be NULL */
    ab_pass_maker library; /* oneDNN */
} ab_product_kind;

/* The prepare, bind, release, forward, backward and describe functions of conv2d and linear (op.h). in[0],
 * param {weight, bias}, out; conv is the op's geometry. Gradients that are NULL in io at prepare are never
 * computed. */
AB_MUST_CHECK ab_status ab_product_prepare(const ab_exec *exec, ab_op_io *io, const ab_product_kind *kind,
                                           const ab_conv *conv, size_t *workspace_bytes, size_t *state_bytes);
void ab_product_bind(ab_op_io *io, void *state_memory);
void ab_product_release(ab_op_io *io);
AB_MUST_CHECK ab_status ab_product_forward(const ab_exec *exec, ab_op_io *io);
AB_MUST_CHECK ab_status ab_product_backward(const ab_exec *exec, ab_op_io *io);
const char *ab_product_describe(const ab_op_io *io, const char *pass);

AB_END_DECLS

#endif
