/* Shapes, prepare and averaging shared by the pooling ops. */
#include "kernels/ops/reduce/pool.h"

ab_status ab_pool_finish(const char *what, ab_pool_attrs *attrs) {
    for (int i = 0; i < 2; i++) {
        if (attrs->stride[i] == 0) attrs->stride[i] = attrs->kernel[i];
        if (2 * attrs->padding[i] > attrs->kernel[i])
            return ab_fail(AB_CONFIG, "%s: padding may be at most half of kernel_size %lld, found %lld", what,
                           (long long)attrs->kernel[i], (long long)attrs->padding[i]);
    }
    return AB_OK;
}

ab_window ab_pool_window(const ab_pool_attrs *attrs) {
    ab_window window = {.dilation = {1, 1}};
    for (int i = 0; i < 2; i++) {
        window.kernel[i] = attrs->kernel[i];
        window.stride[i] = attrs->stride[i];
        window.padding[i] = attrs->padding[i];
    }
    return window;
}

ab_pool ab_pool_of(const ab_pool_attrs *attrs, const ab_shape *in, const ab_shape *out) {
    ab_pool pool = {
        .window = ab_pool_window(attrs), .count_pad = attrs->count_include_pad, .vec = ab_vec_ops_get()};
    ab_window_place(&pool.window, in, out);
    return pool;
}

ab_status ab_pool_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes) {
    (void)exec;
    size_t forward = ab_images_workspace(io->out, io->in[0], NULL);
    size_t backward = io->din[0] ? ab_images_workspace(io->din[0], io->in[0], io->dout) : 0;
    *workspace_bytes = forward > backward ? forward : backward;
    *state_bytes = 0;
    return AB_OK;
}

static void average(const void *self, float *out, const float *in, const float *unused) {
    const ab_pool *pool = self;
    (void)unused;
    pool->vec->avg_pool(&pool->window, pool->count_pad, in, out);
}

static void average_backward(const void *self, float *din, const float *dout, const float *unused) {
    const ab_pool *pool = self;
    (void)unused;
    pool->vec->avg_pool_backward(&pool->window, pool->count_pad, dout, din);
}

void ab_avg_pool_forward(const ab_exec *exec, ab_op_io *io, const ab_pool *pool) {
    ab_map_images(exec, io->out, average, pool, io->in[0], NULL);
}

void ab_avg_pool_backward(const ab_exec *exec, ab_op_io *io, const ab_pool *pool) {
    ab_map_images(exec, io->din[0], average_backward, pool, io->dout, NULL);
}

double ab_pool_flops(const void *attrs, const ab_shape *in, const ab_shape *out) {
    const ab_pool_attrs *a = attrs;
    (void)in;
    return (double)ab_shape_count(out) * (double)(a->kernel[0] * a->kernel[1]);
}
