/* Batch norm over several ranks: what each says of its own batch, and what all make of it. The formulas are
 * those of torch.nn.SyncBatchNorm (torch 2.11, Normalization.cuh: batch_norm_reduce_statistics_kernel) and of
 * apex.parallel.SyncBatchNorm (csrc/welford.cu: welford_kernel_parallel), in fp32 and in the order of the
 * ranks. How numbers come from the other ranks is the caller's business. */
#ifndef AB_OPS_NORM_NORM_SYNC_H
#define AB_OPS_NORM_NORM_SYNC_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

/* Floats that a rank sends: of `channels`, mean and spread each, and the number of values. */
static inline int64_t ab_sync_floats(int64_t channels) { return 2 * channels + 1; }

/* Writes what a rank sends to own[ab_sync_floats(channels)]: mean, then 1/sqrt(var + eps) (torch) or the
 * biased variance (apex), then the number of values. mean and m2 (sum of squared deviations): of n values a
 * channel. */
void ab_sync_send(ab_sync_form form, const double *mean, const double *m2, double n, double eps,
                  int64_t channels, float *own);

/* Merges what `ranks` ranks sent, all[rank][ab_sync_floats]: mean and m2 of all *n values. */
void ab_sync_merge(ab_sync_form form, const float *all, int ranks, double eps, int64_t channels, double *mean,
                   double *m2, double *n);

/* Sums of dy and of dy (x - mean), 2 x channels numbers, over the ranks. torch adds the sums; apex means,
 * which it divides by the number of ranks. n: values of this rank; total: of all. */
AB_MUST_CHECK ab_status ab_sync_sums(const ab_norm_sync *sync, double n, double total, int64_t channels,
                                     float *own, double *sums);

AB_END_DECLS

#endif
