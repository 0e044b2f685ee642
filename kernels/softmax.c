/* softmax over the last dimension: exp(x) / sum of exp(x), as torch.softmax.
 *
 * The row's maximum is subtracted first; a row of -inf alone gives NaN, as in torch. Backward reads the output. */
#include "kernels/row_map.h"

#include <math.h>

typedef struct softmax_attrs {
    int64_t dim;
} softmax_attrs;

static const ab_attr attrs_table[] = {{"dim", AB_ATTR_INT, offsetof(softmax_attrs, dim), false, -1,
                                       -AB_MAX_DIMS, AB_MAX_DIMS - 1, "the last dimension: -1 or its number"},
                                      {0}};

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    const softmax_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    (void)inputs;
    if (a->dim != -1 && a->dim != in->ndim - 1)
        return ab_fail(AB_CONFIG,
                       "softmax works on the last dimension of its input %s, found dim %lld; transpose first",
                       ab_shape_text(in, text), (long long)a->dim);
    *out = *in;
    return AB_OK;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = ab_row_pass_bytes(&io->in[0]->shape);
    *state_bytes = 0;
    return AB_OK;
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
    ab_row_pass p = {.exec = exec, .a = io->in[0], .dst = io->out, .f = forward_row};
    p.split = ab_row_split_of(&io->in[0]->shape);
    ab_row_pass_run(&p);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    ab_row_pass p = {.exec = exec, .a = io->out, .b = io->dout, .dst = io->din[0], .f = backward_row};
    p.split = ab_row_split_of(&io->in[0]->shape);
    if (p.dst) ab_row_pass_run(&p);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 20.0 * (double)ab_shape_count(in); /* mostly the exponential */
}

const ab_op ab_op_softmax = {.name = "softmax",
                             .inputs = 1,
                             .attrs_bytes = sizeof(softmax_attrs),
                             .attrs = attrs_table,
                             .infer = infer,
                             .backward_needs = AB_NEEDS_OUT,
                             .prepare = prepare,
                             .forward = forward,
                             .backward = backward,
                             .flops = flops,
                             .describe = ab_describe_own};
