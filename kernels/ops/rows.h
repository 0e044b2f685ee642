/* A tensor as rows of channels, split by its shape alone: groups of rows that fit the cache, and chunks of
 * groups, one per claim of a thread. Sums over rows are fp32 within a group and double across groups; chunks
 * are combined in order, so sums do not depend on the number of threads.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ROWS_H
#define AB_KERNELS_OPS_ROWS_H

#include "kernels/ops/op.h"

AB_BEGIN_DECLS

typedef struct ab_rows {
    int64_t rows, channels;
    int64_t group_rows, groups;
    int64_t chunk_groups, chunks;
} ab_rows;

/* Channels are the last dimension. */
ab_rows ab_rows_of(const ab_shape *shape);

/* Number of rows of a group (the last may be short), its first element, and the groups [first, end) of a
 * chunk. */
int64_t ab_rows_in_group(const ab_rows *rows, int64_t group);
int64_t ab_rows_offset(const ab_rows *rows, int64_t group);
int64_t ab_rows_chunk_end(const ab_rows *rows, int64_t chunk);

/* sum[c] = sum over the rows of tensor. Needs ab_rows_sum_bytes of 64-byte aligned scratch. */
void ab_rows_sum(const ab_tensor *tensor, float *sum, void *scratch);
size_t ab_rows_sum_bytes(const ab_tensor *tensor);

AB_END_DECLS

#endif
