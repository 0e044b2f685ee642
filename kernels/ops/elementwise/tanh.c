/* tanh, as torch.tanh. Backward reads the output, so the input may be freed. */
#include "kernels/ops/elementwise/unary_ops.h"

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_map_tensors(exec, io->out, ab_vec_math_get()->tanh, io->in[0], NULL);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (io->din[0]) ab_map_tensors(exec, io->din[0], ab_vec_math_get()->tanh_backward, io->out, io->dout);
    return AB_OK;
}

/* Backward reads the output. */
static void elementary(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward,
                       double count[AB_ELEMENTARY_COUNT]) {
    (void)attrs, (void)in;
    if (!backward) count[AB_ELEMENTARY_TANH] += (double)ab_shape_count(out);
}

const ab_op ab_op_tanh = {.name = "tanh",
                          .inputs = 1,
                          .infer = ab_unary_infer,
                          .backward_needs = AB_NEEDS_OUT,
                          .forward = forward,
                          .backward = backward,
                          .flops = ab_unary_flops,
                          .elementary = elementary,
                          .describe = ab_describe_own};
