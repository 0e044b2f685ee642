/* Shared by softmax and log_softmax; see softmax_rows.h. */
#include "kernels/ops/norm/softmax_rows.h"

const ab_attr ab_softmax_attrs_table[] = {{"dim", AB_ATTR_INT, offsetof(ab_softmax_attrs, dim), false, -1,
                                           -AB_MAX_DIMS, AB_MAX_DIMS - 1,
                                           "the last dimension: -1 or its number"},
                                          {0}};

ab_status ab_softmax_infer(const char *what, const void *attrs, const ab_shape *in, ab_shape *out) {
    const ab_softmax_attrs *a = attrs;
    char text[AB_SHAPE_TEXT];
    if (a->dim != -1 && a->dim != in->ndim - 1)
        return ab_fail(AB_CONFIG,
                       "%s works on the last dimension of its input %s, found dim %lld; transpose first",
                       what, ab_shape_text(in, text), (long long)a->dim);
    *out = *in;
    return AB_OK;
}

ab_status ab_softmax_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes,
                             size_t *state_bytes) {
    (void)exec;
    *workspace_bytes = ab_row_pass_bytes(&io->in[0]->shape);
    *state_bytes = 0;
    return AB_OK;
}

double ab_softmax_flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return 20.0 * (double)ab_shape_count(in); /* mostly the exponential */
}

void ab_softmax_forward(const ab_exec *exec, ab_op_io *io, ab_row_function row) {
    ab_row_pass p = {.exec = exec, .a = io->in[0], .dst = io->out, .f = row};
    p.split = ab_row_split_of(&io->in[0]->shape);
    ab_row_pass_run(&p);
}

void ab_softmax_backward(const ab_exec *exec, ab_op_io *io, ab_row_function row) {
    ab_row_pass p = {.exec = exec, .a = io->out, .b = io->dout, .dst = io->din[0], .f = row};
    p.split = ab_row_split_of(&io->in[0]->shape);
    if (p.dst) ab_row_pass_run(&p);
}
