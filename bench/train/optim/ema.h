/* Averaged weights: torch.optim.swa_utils.AveragedModel with get_ema_multi_avg_fn(decay): a copy at the first
 * update, then average += (1 - decay) (weight - average), in fp32, rounded once to the average's format. Half
 * averages stop changing when the increment is below half an ulp; half formats are offered to show this. */
#ifndef AB_BENCH_TRAIN_OPTIM_EMA_H
#define AB_BENCH_TRAIN_OPTIM_EMA_H

#include "kernels/ops/tensor.h"

AB_BEGIN_DECLS

/* updates: number of earlier updates of this average. Same shape, any formats, any device. */
AB_MUST_CHECK ab_status ab_ema_update(ab_tensor *average, const ab_tensor *weight, double decay,
                                      int64_t updates);

AB_END_DECLS

#endif
