/* silu: x sigmoid(x), as torch.nn.SiLU. */
#include "kernels/ops/elementwise/by_code.h"
#include "kernels/ops/elementwise/unary_ops.h"

static ab_code_tables tables;

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_values_by_code(exec, io, &tables, ab_vec_math_get()->silu);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    ab_slopes_by_code(exec, io, &tables, ab_vec_math_get()->silu_backward);
    return AB_OK;
}

static void elementary(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward,
                       double count[AB_ELEMENTARY_COUNT]) {
    (void)attrs, (void)in, (void)backward;
    count[AB_ELEMENTARY_EXP] += (double)ab_shape_count(out);
}

const ab_op ab_op_silu = {.name = "silu",
                          .inputs = 1,
                          .by_code = true,
                          .infer = ab_unary_infer,
                          .backward_needs = 1u << 0,
                          .forward = forward,
                          .backward = backward,
                          .flops = ab_unary_flops,
                          .elementary = elementary,
                          .describe = ab_describe_own};
