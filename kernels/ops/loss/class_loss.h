/* What losses of class ids share. Internal to kernels/ops/loss. */
#ifndef AB_KERNELS_OPS_LOSS_CLASS_LOSS_H
#define AB_KERNELS_OPS_LOSS_CLASS_LOSS_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* Writes n values, rows of `classes`: the logarithms of the classes' shares of the sum of `factors`, at least
 * -100. They are the logits, and the logarithms of probabilities, of the least mean -sum factor log p. */
void ab_log_shares(const double *factors, int64_t classes, int64_t n, float *prediction);

AB_END_DECLS

#endif
