/* Whether the ranks of data parallelism still have the same weights: checksums of every tensor of every rank,
 * compared. Ranks that parted never meet again, and no loss shows it at once. */
#ifndef AB_KERNELS_COLLECTIVE_REPLICAS_H
#define AB_KERNELS_COLLECTIVE_REPLICAS_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

/* The first tensor that is not the same on all ranks, and the first rank whose checksum is not that of most;
 * where two checksums are equally frequent, the one of the lower rank counts as that of most. */
typedef struct ab_parting {
    int rank, tensor;   /* -1: all are the same */
    int ranks, tensors; /* how many ranks differ from most in that tensor; tensors that differ on any rank */
} ab_parting;

/* Of the bits of n values, in their order. Two arrays that differ in one value always differ in it. */
uint64_t ab_replica_checksum(const float *value, int64_t n);

/* checksum[ranks][tensors]. */
ab_parting ab_replicas_compare(const uint64_t *checksum, int ranks, int tensors);

AB_END_DECLS

#endif
