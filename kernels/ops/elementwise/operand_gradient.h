/* Gradient of an operand of an element-wise op: the gradient of every result element, summed over broadcast
 * dimensions. Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ELEMENTWISE_OPERAND_GRADIENT_H
#define AB_KERNELS_OPS_ELEMENTWISE_OPERAND_GRADIENT_H

#include "kernels/ops/reduction.h"

AB_BEGIN_DECLS

/* dst = the values of `source` over shape `of`, summed over the dimensions that dst broadcasts; rounded once.
 * Sums use exec->workspace. */
void ab_operand_gradient(const ab_exec *exec, ab_tensor *dst, const ab_shape *of, ab_reduce_source source,
                         const void *self);

/* Bytes of workspace for the gradients of an op's first `inputs` inputs, computed one after another. Called
 * from the op's `prepare`. */
size_t ab_operand_gradients_bytes(const ab_op_io *io, int inputs);

AB_END_DECLS

#endif
