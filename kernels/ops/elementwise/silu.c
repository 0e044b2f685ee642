/* silu: x sigmoid(x), as torch.nn.SiLU. */
#include "kernels/ops/elementwise/unary_ops.h"

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_map_tensors(exec, io->out, ab_vec_math_get()->silu, io->in[0], NULL);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (io->din[0]) ab_map_tensors(exec, io->din[0], ab_vec_math_get()->silu_backward, io->in[0], io->dout);
    return AB_OK;
}

static void elementary(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward,
                       double count[AB_ELEMENTARY_COUNT]) {
    (void)attrs, (void)in, (void)backward;
    count[AB_ELEMENTARY_EXP] += (double)ab_shape_count(out);
}

const ab_op ab_op_silu = {.name = "silu",
                          .inputs = 1,
                          .infer = ab_unary_infer,
                          .backward_needs = 1u << 0,
                          .forward = forward,
                          .backward = backward,
                          .flops = ab_unary_flops,
                          .elementary = elementary,
                          .describe = ab_describe_own};
