/* The gradient of an operand of an elementwise op: what flows to every element of the op's result, summed
 * over the copies that broadcasting made. Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ELEMENTWISE_OPERAND_GRADIENT_H
#define AB_KERNELS_OPS_ELEMENTWISE_OPERAND_GRADIENT_H

#include "kernels/ops/reduction.h"

AB_BEGIN_DECLS

/* dst = what `source` gives for elements of a tensor of shape `of`, or its sums where dst is smaller; rounded
 * once. Sums use exec->workspace. */
void ab_operand_gradient(const ab_exec *exec, ab_tensor *dst, const ab_shape *of, ab_reduce_source source,
                         const void *self);

/* Bytes of workspace for the gradients of an op's first `inputs` inputs, one after the other; an op's
 * `prepare` asks for them. */
size_t ab_operand_gradients_bytes(const ab_op_io *io, int inputs);

AB_END_DECLS

#endif
