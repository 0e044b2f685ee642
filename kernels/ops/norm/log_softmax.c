/* log_softmax over the last dimension: x - log(sum of exp(x)), as torch.log_softmax.
 *
 * The row's maximum is subtracted first; a row with only -inf gives NaN, as in torch. Backward reads the
 * output. */
#include "kernels/ops/norm/softmax_rows.h"

#include "kernels/core/elementary64.h"

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    return ab_softmax_infer("log_softmax", attrs, in, out);
}

static void forward_row(const ab_row_pass *p, int64_t chunk, int64_t row, float *out, const float *x,
                        const float *unused) {
    const ab_vec_math *vec = ab_vec_math_get();
    (void)chunk;
    (void)row;
    (void)unused;
    float shift = vec->row_max(x, p->split.n);
    double sum = vec->exp_sum(out, x, shift, p->split.n);
    const float lead = (float)ab_log(sum);
    for (int64_t i = 0; i < p->split.n; i++) out[i] = x[i] - shift - lead;
}

static void backward_row(const ab_row_pass *p, int64_t chunk, int64_t row, float *dx, const float *y,
                         const float *dy) {
    const ab_vec_math *vec = ab_vec_math_get();
    (void)chunk;
    (void)row;
    float sum = (float)vec->row_sum(dy, p->split.n);
    vec->log_softmax_backward(dx, y, dy, sum, p->split.n);
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
    (void)attrs, (void)in, (void)backward;
    count[AB_ELEMENTARY_EXP] += (double)ab_shape_count(out);
}

const ab_op ab_op_log_softmax = {.name = "log_softmax",
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
