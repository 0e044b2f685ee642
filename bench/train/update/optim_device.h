/* Optimizers on a device: the formula of kernels/ops/formulas.h, and its fp32 constants at a step. */
#ifndef AB_BENCH_TRAIN_UPDATE_OPTIM_DEVICE_H
#define AB_BENCH_TRAIN_UPDATE_OPTIM_DEVICE_H

#include "bench/train/optim/optimizer.h"
#include "kernels/ops/formulas.h"

AB_BEGIN_DECLS

/* AB_UPDATE_NONE: the device has no such formula; the host runs the update. */
ab_update_kind ab_optimizer_device_kind(const ab_optimizer *optimizer);

/* Constants of update number `taken` (1: the first). */
ab_update_row ab_optimizer_device_row(ab_update_kind kind, const ab_optimizer_config *config, int64_t taken);

AB_END_DECLS

#endif
