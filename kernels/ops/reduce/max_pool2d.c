/* max_pool2d: the maximum of each window. Padding is ignored, NaN propagates, and of equal values the first
 * in row order gets the gradient, as in torch. Backward recomputes the argmax instead of storing it, and does
 * that of a relu before it (op.h, behind_relu): of the gradient, which is 0 elsewhere, it masks the maxima.
 */
#include "kernels/ops/reduce/pool.h"
#include "kernels/vec/isa.h"
#include "kernels/vec/vec_pool.h"

AB_BY_ISA(ab_vec_pool, ab_vec_pool)

static const ab_attr attrs_table[] = {{"kernel_size", AB_ATTR_PAIR, offsetof(ab_pool_attrs, kernel), true, 0,
                                       1, AB_POOL_MAX_KERNEL, "window size"},
                                      {"stride", AB_ATTR_PAIR, offsetof(ab_pool_attrs, stride), false, 0, 1,
                                       AB_POOL_MAX_KERNEL, "step of the window (kernel_size)"},
                                      {"padding", AB_ATTR_PAIR, offsetof(ab_pool_attrs, padding), false, 0, 0,
                                       AB_POOL_MAX_KERNEL,
                                       "rows and columns added on each side, ignored by the maximum"},
                                      {0}};

static ab_status finish_attrs(void *attrs) { return ab_pool_finish("max_pool2d", attrs); }

static ab_status infer(const void *attrs, const ab_shape *in, int inputs, ab_shape *out) {
    (void)inputs;
    ab_window window = ab_pool_window(attrs);
    return ab_window_infer("max_pool2d", &window, in, in->dim[3], out);
}

/* Whether windows neither overlap nor reach into padding. */
static bool is_plain(const ab_window *w) {
    return w->stride[0] >= w->kernel[0] && w->stride[1] >= w->kernel[1] && w->padding[0] == 0 &&
           w->padding[1] == 0;
}

static void forward_image(const void *self, float *out, const float *in, const float *unused) {
    const ab_pool *pool = self;
    const ab_window *w = &pool->window;
    (void)unused;
    if (!is_plain(w) || !ab_vec_pool_get()->max_pool(w, in, out)) pool->vec->max_pool(w, in, out);
}

static void backward_image(const void *self, float *din, const float *in, const float *dout) {
    const ab_pool *pool = self;
    const ab_window *w = &pool->window;
    if (is_plain(w) && ab_vec_pool_get()->max_pool_backward(w, pool->after_relu, in, dout, din)) return;
    pool->vec->max_pool_backward(w, in, dout, din);
    if (pool->after_relu) pool->vec->relu_backward(din, in, din, w->in[0] * w->in[1] * w->channels);
}

static bool forward_bits(const void *self, uint16_t infinity, uint16_t *out, const uint16_t *in,
                         const uint16_t *unused) {
    const ab_pool *pool = self;
    (void)unused;
    return ab_vec_pool_get()->max_pool_bits(&pool->window, infinity, in, out);
}

static bool backward_bits(const void *self, uint16_t infinity, uint16_t *din, const uint16_t *in,
                          const uint16_t *dout) {
    const ab_pool *pool = self;
    return ab_vec_pool_get()->max_pool_backward_bits(&pool->window, pool->after_relu, infinity, in, dout,
                                                     din);
}

static ab_status forward(const ab_exec *exec, ab_op_io *io) {
    ab_pool pool = ab_pool_of(io->attrs, &io->in[0]->shape, &io->out->shape);
    ab_map_images_bits(exec, io->out, forward_image, is_plain(&pool.window) ? forward_bits : NULL, &pool,
                       io->in[0], NULL);
    return AB_OK;
}

static ab_status backward(const ab_exec *exec, ab_op_io *io) {
    if (!io->din[0]) return AB_OK;
    ab_pool pool = ab_pool_of(io->attrs, &io->in[0]->shape, &io->dout->shape);
    pool.after_relu = exec->fuse;
    ab_map_images_bits(exec, io->din[0], backward_image, is_plain(&pool.window) ? backward_bits : NULL, &pool,
                       io->in[0], io->dout);
    return AB_OK;
}

static ab_status prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    io->fuses = io->behind_relu;
    return ab_pool_prepare(exec, io, workspace_bytes, state_bytes);
}

const ab_op ab_op_max_pool2d = {.name = "max_pool2d",
                                .inputs = 1,
                                .attrs_bytes = sizeof(ab_pool_attrs),
                                .attrs = attrs_table,
                                .finish_attrs = finish_attrs,
                                .infer = infer,
                                .backward_needs = 1u << 0,
                                .prepare = prepare,
                                .forward = forward,
                                .backward = backward,
                                .flops = ab_pool_flops,
                                .describe = ab_describe_own};
