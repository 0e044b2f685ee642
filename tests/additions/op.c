/* An op as a newcomer would add it: out = 2 x. */
#include "kernels/ops/elementwise/unary_ops.h"

static void twice(float *restrict out, const float *restrict x, const float *restrict unused, int64_t n) {
    (void)unused;
    for (int64_t i = 0; i < n; i++) out[i] = 2.0f * x[i];
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_map_tensors(exec, io->out, twice, io->in[0], NULL);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (io->din[0]) ab_map_tensors(exec, io->din[0], twice, io->dout, NULL);
    return AB_OK;
}

const ab_op ab_op_added_op = {.name = "added_op",
                              .inputs = 1,
                              .infer = ab_unary_infer,
                              .forward = forward,
                              .backward = backward,
                              .flops = ab_unary_flops,
                              .describe = ab_describe_own};
