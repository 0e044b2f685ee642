/* Exchanges among the devices of several processes, one device each: through NCCL, which a device's plugin
 * opens at run time (kernels/cuda/nccl_cuda.cu). Bytes, without arithmetic, except the library's own sum.
 *
 * What is exchanged is in host memory: it is copied to the device, sent from there, and copied back. */
#ifndef AB_CORE_DEVICE_RANKS_H
#define AB_CORE_DEVICE_RANKS_H

#include "kernels/core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_DEVICE_RANKS_ID = 128 }; /* bytes */

/* Bytes of a rank's memory that go to one peer and come from it. */
typedef struct ab_link_part {
    int64_t send_at, send_bytes, receive_at, receive_bytes;
} ab_link_part;

typedef enum ab_device_sum_kind {
    AB_DEVICE_SUM_FP32,
    AB_DEVICE_SUM_FP16,
    AB_DEVICE_SUM_BF16
} ab_device_sum_kind;

/* A sum that the library makes, in its own order, or the average. */
typedef struct ab_device_sum {
    size_t at, count; /* byte of the first value; values */
    ab_device_sum_kind kind;
    bool average;
} ab_device_sum;

/* Functions that begin something return before it ends; all ranks begin the same in the same order. */
typedef struct ab_device_ranks {
    /* On one rank, for `join` of all. AB_UNAVAILABLE: the library is missing, with the reason. */
    ab_status (*name)(unsigned char id[AB_DEVICE_RANKS_ID]);
    /* Blocks until all ranks have joined. *version: the library's, static. */
    ab_status (*join)(const unsigned char id[AB_DEVICE_RANKS_ID], int rank, int ranks, const char **version);
    /* Begins an exchange of bytes of the host's memory[bytes], which are there after `wait`. The own part is
     * ignored. */
    ab_status (*exchange)(unsigned char *memory, size_t bytes, const ab_link_part part[]);
    /* Begins the library's sum over all ranks, in place. */
    ab_status (*sum)(unsigned char *memory, size_t bytes, const ab_device_sum *what);
    /* Returns when all that was begun is complete. */
    ab_status (*wait)(void);
} ab_device_ranks;

AB_END_DECLS

#endif
