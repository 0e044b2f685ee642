/* gelu: x times the standard normal CDF of x or, with approximate "tanh", x (1 + tanh(sqrt(2 / pi) (x +
 * 0.044715 x^3))) / 2 (Hendrycks and Gimpel 2016), as torch.nn.GELU. */
#include "kernels/ops/elementwise/by_code.h"
#include "kernels/ops/elementwise/unary_ops.h"

typedef struct gelu_attrs {
    int64_t approximate;
} gelu_attrs;

enum { NONE, TANH };

static const ab_attr attrs_table[] = {
    {"approximate", AB_ATTR_CHOICE, offsetof(gelu_attrs, approximate), false, NONE, NONE, TANH, "none|tanh"},
    {0}};

static bool by_tanh(const ab_op_io *io) { return ((const gelu_attrs *)io->attrs)->approximate == TANH; }

static ab_code_tables tables[2]; /* by `approximate` */

static ab_code_tables *tables_of(const ab_op_io *io) { return &tables[by_tanh(io)]; }

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    const ab_vec_math *vec = ab_vec_math_get();
    ab_values_by_code(exec, io, tables_of(io), by_tanh(io) ? vec->gelu_tanh : vec->gelu);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    const ab_vec_math *vec = ab_vec_math_get();
    ab_slopes_by_code(exec, io, tables_of(io), by_tanh(io) ? vec->gelu_tanh_backward : vec->gelu_backward);
    return AB_OK;
}

static void elementary(const void *attrs, const ab_shape *in, const ab_shape *out, bool backward,
                       double count[AB_ELEMENTARY_COUNT]) {
    const gelu_attrs *a = attrs;
    (void)in;
    count[a->approximate == TANH ? AB_ELEMENTARY_TANH : AB_ELEMENTARY_ERF] += (double)ab_shape_count(out);
    if (backward && a->approximate != TANH) count[AB_ELEMENTARY_EXP] += (double)ab_shape_count(out);
}

const ab_op ab_op_gelu = {.name = "gelu",
                          .inputs = 1,
                          .mixes_formats = true,
                          .by_code = true,
                          .attrs_bytes = sizeof(gelu_attrs),
                          .attrs = attrs_table,
                          .infer = ab_unary_infer,
                          .backward_needs = 1u << 0,
                          .forward = forward,
                          .backward = backward,
                          .flops = ab_unary_flops,
                          .elementary = elementary,
                          .describe = ab_describe_own};
