/* Shared by softmax and log_softmax: the attribute, shape inference, and passes over rows (the last
 * dimension). The op supplies the row formula.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_NORM_SOFTMAX_ROWS_H
#define AB_KERNELS_OPS_NORM_SOFTMAX_ROWS_H

#include "kernels/ops/rows.h"

AB_BEGIN_DECLS

typedef struct ab_softmax_attrs {
    int64_t dim;
} ab_softmax_attrs;

/* Attribute table of both ops: "dim". */
extern const ab_attr ab_softmax_attrs_table[];

/* Output shape = input shape. Returns AB_CONFIG, naming op `what`, unless the dimension is the last. */
AB_MUST_CHECK ab_status ab_softmax_infer(const char *what, const void *attrs, const ab_shape *in,
                                         ab_shape *out);
ab_status ab_softmax_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes);
double ab_softmax_flops(const void *attrs, const ab_shape *in, const ab_shape *out);

/* forward: computes an output row from an input row; backward: computes a row of din from a row of the output
 * and of dout. */
void ab_softmax_forward(const ab_exec *exec, ab_op_io *io, ab_row_function row);
void ab_softmax_backward(const ab_exec *exec, ab_op_io *io, ab_row_function row);

AB_END_DECLS

#endif
