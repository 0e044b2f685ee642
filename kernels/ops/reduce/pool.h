/* Shared by the pooling ops: attributes, shapes and the loop over images.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_REDUCE_POOL_H
#define AB_KERNELS_OPS_REDUCE_POOL_H

#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_ops.h"

AB_BEGIN_DECLS

typedef struct ab_pool_attrs {
    int64_t kernel[2], stride[2], padding[2];
    bool count_include_pad;
} ab_pool_attrs;

enum { AB_POOL_MAX_KERNEL = 1024 };

/* stride defaults to the kernel size; padding is at most half of it, as in torch. `what` names the op. */
AB_MUST_CHECK ab_status ab_pool_finish(const char *what, ab_pool_attrs *attrs);

/* The window without image sizes. */
ab_window ab_pool_window(const ab_pool_attrs *attrs);

/* Argument of a pooling op's image functions. */
typedef struct ab_pool {
    ab_window window;
    bool count_pad;
    bool after_relu; /* max_pool2d backward: does that of the relu before it, too */
    const ab_vec_ops *vec;
} ab_pool;

/* The window with the sizes of images `in` and `out`. */
ab_pool ab_pool_of(const ab_pool_attrs *attrs, const ab_shape *in, const ab_shape *out);

/* prepare() of an op whose forward maps in[0] and whose backward maps (in[0] and) dout per image. */
ab_status ab_pool_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes);

/* out = window means of in[0]; din[0] = each gradient divided equally over its window. */
void ab_avg_pool_forward(const ab_exec *exec, ab_op_io *io, const ab_pool *pool);
void ab_avg_pool_backward(const ab_exec *exec, ab_op_io *io, const ab_pool *pool);

/* One operation per element of each window. */
double ab_pool_flops(const void *attrs, const ab_shape *in, const ab_shape *out);

AB_END_DECLS

#endif
