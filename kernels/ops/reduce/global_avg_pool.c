/* global_avg_pool: the mean over height and width, {N, H, W, C} to {N, C} (torch's AdaptiveAvgPool2d(1) and
 * flatten). */
#include "kernels/ops/reduce/pool.h"

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)attrs;
    (void)inputs;
    char text[AB_SHAPE_TEXT];
    if (in->ndim != 4)
        return ab_fail(AB_CONFIG,
                       "global_avg_pool expects an image [batch, height, width, channels], found %s",
                       ab_shape_text(in, text));
    *out = (ab_shape){.ndim = 2, .dim = {in->dim[0], in->dim[3]}};
    return AB_OK;
}

/* One window as large as the image. */
static ab_pool whole_image(const ab_shape *in) {
    return (ab_pool){.window = {.in = {in->dim[1], in->dim[2]},
                                .out = {1, 1},
                                .kernel = {in->dim[1], in->dim[2]},
                                .stride = {1, 1},
                                .dilation = {1, 1},
                                .channels = in->dim[3]},
                     .count_pad = true,
                     .vec = ab_vec_ops_get()};
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_pool pool = whole_image(&io->in[0]->shape);
    ab_avg_pool_forward(exec, io, &pool);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    ab_pool pool = whole_image(&io->din[0]->shape);
    ab_avg_pool_backward(exec, io, &pool);
    return AB_OK;
}

static double flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    (void)attrs;
    (void)out;
    return (double)ab_shape_count(in);
}

const ab_op ab_op_global_avg_pool = {.name = "global_avg_pool",
                                     .inputs = 1,
                                     .infer = infer,
                                     .prepare = ab_pool_prepare,
                                     .forward = forward,
                                     .backward = backward,
                                     .flops = flops,
                                     .describe = ab_describe_own};
