/* Shared by layer_norm and rms_norm: statistics per row (the last dimension), one forward pass, one backward
 * pass that also sums the parameter gradients.
 *
 * Internal to kernels/. Sums over rows are fp32 for a few rows, then double; chunks of rows are combined in
 * order. */
#ifndef AB_KERNELS_OPS_NORM_NORM_ROWS_H
#define AB_KERNELS_OPS_NORM_NORM_ROWS_H

#include "kernels/ops/rows.h"

AB_BEGIN_DECLS

/* y = (x - mean) / sqrt(var + eps) * weight + bias. If not centred, mean = 0 and var = mean of x^2. Absent
 * tensors are NULL. */
typedef struct ab_norm_rows {
    bool centred;
    double eps;
    const ab_tensor *weight, *bias;
    ab_tensor *dweight, *dbias;
    ab_tensor *mean, *rstd; /* fp32, one per row, written by forward for backward; mean only if centred */
} ab_norm_rows;

/* prepare() of the op: workspace of both passes, no state. */
ab_status ab_norm_rows_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                               size_t *state_bytes);
void ab_norm_rows_forward(const ab_exec *exec, const ab_op_io *io, const ab_norm_rows *norm);
void ab_norm_rows_backward(const ab_exec *exec, const ab_op_io *io, const ab_norm_rows *norm);

/* Checks that `size` (0: not given) is the last dimension of `in`. */
AB_MUST_CHECK ab_status ab_norm_rows_infer(const char *what, int64_t size, const ab_shape *in, ab_shape *out);

/* Shape of a saved per-row statistic. */
ab_shape ab_norm_rows_statistic(const ab_shape *in);

AB_END_DECLS

#endif
