/* What the pooling ops share: attributes, shapes and the walk over images.
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

/* stride defaults to the kernel size; padding may be at most half of it, as in torch. `what` names the op. */
AB_MUST_CHECK ab_status ab_pool_finish(const char *what, ab_pool_attrs *attrs);

/* The window without sizes of images. */
ab_window ab_pool_window(const ab_pool_attrs *attrs);

/* What the image functions of a pooling op are handed. */
typedef struct ab_pool {
    ab_window window;
    bool count_pad;
    const ab_vec_ops *vec;
} ab_pool;

/* The window placed on images `in` and `out`. */
ab_pool ab_pool_of(const ab_pool_attrs *attrs, const ab_shape *in, const ab_shape *out);

/* The prepare function of an op whose forward maps in[0] and whose backward maps (in[0] and) dout image by
 * image. */
ab_status ab_pool_prepare(const ab_exec *exec, ab_op_io *io, size_t *workspace_bytes, size_t *state_bytes);

/* out = means of in[0]'s windows; din[0] = each gradient shared equally among its window. */
void ab_avg_pool_forward(const ab_exec *exec, ab_op_io *io, const ab_pool *pool);
void ab_avg_pool_backward(const ab_exec *exec, ab_op_io *io, const ab_pool *pool);

/* One operation per element of each window. */
double ab_pool_flops(const void *attrs, const ab_shape *in, const ab_shape *out);

AB_END_DECLS

#endif
