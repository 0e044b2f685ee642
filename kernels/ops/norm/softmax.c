/* softmax over the last dimension: exp(x) / sum of exp(x), as torch.softmax.
 *
 * The row's maximum is subtracted first; a row with only -inf gives NaN, as in torch. Backward reads the
 * output. */
#include "kernels/ops/norm/softmax_rows.h"

#include <math.h>

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    return ab_softmax_infer("softmax", attrs, in, out);
}

static void forward_row(const ab_row_pass *p, int64_t chunk, int64_t row, float *out, const float *x,
                        const float *unused) {
    const ab_vec_math *vec = ab_vec_math_get();
    (void)chunk;
    (void)row;
    (void)unused;
    float shift = vec->row_max(x, p->split.n);
    double sum = vec->exp_sum(out, x, shift, p->split.n);
    vec->affine(out, out, (float)(1.0 / sum), 0.0f, p->split.n);
}

static void backward_row(const ab_row_pass *p, int64_t chunk, int64_t row, float *dx, const float *y,
                         const float *dy) {
    const ab_vec_math *vec = ab_vec_math_get();
    (void)chunk;
    (void)row;
    float dot = (float)vec->row_dot(y, dy, p->split.n);
    vec->softmax_backward(dx, y, dy, dot, p->split.n);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_softmax_forward(exec, io, forward_row);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    ab_softmax_backward(exec, io, backward_row);
    return AB_OK;
}

static void elementary(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward,
                       double count[AB_ELEMENTARY_COUNT]) {
    (void)attrs, (void)in;
    if (!backward) count[AB_ELEMENTARY_EXP] += (double)ab_shape_count(out);
}

const ab_op ab_op_softmax = {.name = "softmax",
                             .inputs = 1,
                             .attrs_bytes = sizeof(ab_softmax_attrs),
                             .attrs = ab_softmax_attrs_table,
                             .infer = infer,
                             .backward_needs = AB_NEEDS_OUT,
                             .prepare = ab_softmax_prepare,
                             .forward = forward,
                             .backward = backward,
                             .flops = ab_softmax_flops,
                             .elementary = elementary,
                             .describe = ab_describe_own};
