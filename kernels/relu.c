/* relu: max(x, 0), NaN kept, as torch.relu. Backward reads the output, so that the input may be freed. */
#include "kernels/blocks.h"
#include "kernels/vec_ops.h"

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)attrs;
    (void)inputs;
    *out = in[0];
    return AB_OK;
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_map_tensors(exec, io->out, ab_vec_ops_get()->relu, io->in[0], NULL);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (io->din[0]) ab_map_tensors(exec, io->din[0], ab_vec_ops_get()->relu_backward, io->out, io->dout);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)in;
    return (double)ab_shape_count(out);
}

const ab_op ab_op_relu = {.name = "relu",
                          .inputs = 1,
                          .infer = infer,
                          .backward_needs = AB_NEEDS_OUT,
                          .forward = forward,
                          .backward = backward,
                          .flops = flops,
                          .describe = ab_describe_own};
