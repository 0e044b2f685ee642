/* What softmax and log_softmax share: the one attribute, shapes, and passes over rows (the last dimension).
 * An op brings the formula of a row.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_NORM_SOFTMAX_ROWS_H
#define AB_KERNELS_OPS_NORM_SOFTMAX_ROWS_H

#include "kernels/ops/row_map.h"

AB_BEGIN_DECLS

typedef struct ab_softmax_attrs {
    int64_t dim;
} ab_softmax_attrs;

/* The attribute "dim", for both ops. */
extern const ab_attr ab_softmax_attrs_table[];

/* The input's shape; AB_CONFIG, in the name of op `what`, for another dimension than the last. */
AB_MUST_CHECK ab_status ab_softmax_infer(const char *what, const void *attrs, const ab_shape *in,
                                         ab_shape *out);
ab_status ab_softmax_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes);
double ab_softmax_flops(const void *attrs, const ab_shape *in, const ab_shape *out);

/* forward: a row of the output from one of the input; backward: a row of din from one of the output and one
 * of dout. */
void ab_softmax_forward(const ab_exec *exec, ab_op_io *io, ab_row_function row);
void ab_softmax_backward(const ab_exec *exec, ab_op_io *io, ab_row_function row);

AB_END_DECLS

#endif
