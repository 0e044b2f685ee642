/* add: the sum of two tensors of one shape (a residual connection). No broadcasting. */
#include "kernels/blocks.h"
#include "kernels/vec_ops.h"

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)attrs;
    (void)inputs;
    char a[AB_SHAPE_TEXT], b[AB_SHAPE_TEXT];
    if (!ab_shape_equal(&in[0], &in[1]))
        return ab_fail(AB_CONFIG, "add expects two inputs of one shape, found %s and %s",
                       ab_shape_text(&in[0], a), ab_shape_text(&in[1], b));
    *out = in[0];
    return AB_OK;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_map_tensors(exec, io->out, ab_vec_ops_get()->add, io->in[0], io->in[1]);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    for (int i = 0; i < 2; i++)
        if (io->din[i]) ab_cast(exec, io->din[i], io->dout);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    return (double)ab_shape_count(out);
}

const ab_op ab_op_add = {.name = "add",
                         .inputs = 2,
                         .infer = infer,
                         .forward = forward,
                         .backward = backward,
                         .flops = flops,
                         .describe = ab_describe_own};
