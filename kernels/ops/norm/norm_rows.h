/* Shared by layer_norm, rms_norm and apex's fused norms: statistics per row (the last dimension), one forward
 * pass, one backward pass that also sums the parameter gradients.
 *
 * Internal to kernels/. Sums over rows are fp32 for a few rows, then double; chunks of rows are combined in
 * order. */
#ifndef AB_KERNELS_OPS_NORM_NORM_ROWS_H
#define AB_KERNELS_OPS_NORM_NORM_ROWS_H

#include "kernels/ops/rows.h"

AB_BEGIN_DECLS

/* y = (x - mean) / sqrt(var + eps) * weight + bias. If not centred, mean = 0 and var = mean of x^2. Absent
 * tensors are NULL.
 *
 * fused: as apex's kernels (csrc/layer_norm_cuda_kernel.cu). With a weight, the normalised value, its product
 * with the weight and the sum with the bias are each rounded to the output's format, and the input's gradient
 * takes weights of a magnitude below eps as eps. from_output: backward reads out in place of in[0] and
 * recomputes the normalised value as (out - bias) / weight. */
typedef struct ab_norm_rows {
    bool centred, fused, from_output;
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
