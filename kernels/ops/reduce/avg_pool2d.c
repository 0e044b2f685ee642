/* avg_pool2d: the mean of each window; padding counts as zeros unless count_include_pad is false, as in
 * torch. */
#include "kernels/ops/reduce/pool.h"

static const ab_attr attrs_table[] = {{"kernel_size", AB_ATTR_PAIR, offsetof(ab_pool_attrs, kernel), true, 0,
                                       1, AB_POOL_MAX_KERNEL, "window size"},
                                      {"stride", AB_ATTR_PAIR, offsetof(ab_pool_attrs, stride), false, 0, 1,
                                       AB_POOL_MAX_KERNEL, "step of the window (kernel_size)"},
                                      {"padding", AB_ATTR_PAIR, offsetof(ab_pool_attrs, padding), false, 0, 0,
                                       AB_POOL_MAX_KERNEL, "zero rows and columns added on each side"},
                                      {"count_include_pad", AB_ATTR_BOOL,
                                       offsetof(ab_pool_attrs, count_include_pad), false, 1, 0, 1,
                                       "divide by the window size even where padding is in it"},
                                      {0}};

static ab_status finish_attrs(void *attrs) { return ab_pool_finish("avg_pool2d", attrs); }

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    ab_window window = ab_pool_window(attrs);
    return ab_window_infer("avg_pool2d", &window, in, in->dim[3], out);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_pool pool = ab_pool_of(io->attrs, &io->in[0]->shape, &io->out->shape);
    ab_avg_pool_forward(exec, io, &pool);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    ab_pool pool = ab_pool_of(io->attrs, &io->din[0]->shape, &io->dout->shape);
    ab_avg_pool_backward(exec, io, &pool);
    return AB_OK;
}

const ab_op ab_op_avg_pool2d = {.name = "avg_pool2d",
                                .inputs = 1,
                                .attrs_bytes = sizeof(ab_pool_attrs),
                                .attrs = attrs_table,
                                .finish_attrs = finish_attrs,
                                .infer = infer,
                                .prepare = ab_pool_prepare,
                                .forward = forward,
                                .backward = backward,
                                .flops = ab_pool_flops,
                                .describe = ab_describe_own};
