/* Optimizers that round to the storage format after every operation, as torch 2.11's for-loop optimizers do
 * with half tensors on the CPU. Bit for bit; the last addition to the weight is left to the store. */
#ifndef AB_BENCH_TRAIN_OPTIM_BY_OP_H
#define AB_BENCH_TRAIN_OPTIM_BY_OP_H

#include "bench/train/optim/optimizer.h"

AB_BEGIN_DECLS

/* One update of n <= AB_UPDATE_BLOCK elements, as ab_optimizer.update_by_op. */
ab_update_by_op ab_optimizer_sgd_by_op, ab_optimizer_momentum_by_op, ab_optimizer_nesterov_by_op,
    ab_optimizer_adam_by_op, ab_optimizer_adamw_by_op;

AB_END_DECLS

#endif
