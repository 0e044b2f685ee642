/* A tensor as rows of channels, split by its shape alone: groups of rows that fit the cache, and chunks of
 * groups, one per claim of a thread. Sums over rows are fp32 within a group and double across groups; chunks
 * are combined in order, so sums do not depend on the number of threads.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ROWS_H
#define AB_KERNELS_OPS_ROWS_H

#include "kernels/ops/blocks.h"
#include "kernels/ops/op.h"
#include "kernels/vec/vec_math.h"

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

/* Row-wise processing (a row is the last dimension): softmax and the normalisations split their work by shape
 * alone and convert stored formats through fp32 row buffers per thread.
 *
 * Internal to kernels/. */

enum { AB_ROW_MAX_CHUNKS = 64 };

typedef struct ab_row_split {
    int64_t rows, n; /* n values per row */
    int64_t chunk_rows, chunks;
} ab_row_split;

/* Split of a tensor of this shape into chunks of rows. */
ab_row_split ab_row_split_of(const ab_shape *shape);

/* Arguments of one pass; absent tensors are NULL. */
typedef struct ab_row_pass ab_row_pass;

/* out = f(a, b) for one row. out is dst's own memory or a buffer, and NULL if dst is NULL. */
typedef void (*ab_row_function)(const ab_row_pass *pass, int64_t chunk, int64_t row, float *out,
                                const float *a, const float *b);

struct ab_row_pass {
    const ab_exec *exec;
    ab_row_split split;
    const ab_tensor *a, *b;
    ab_tensor *dst;
    size_t fixed_bytes; /* bytes of workspace before the row buffers */
    const void *self;   /* argument of f */
    ab_row_function f;
};

/* Bytes of row buffers, placed after fixed_bytes. */
size_t ab_row_pass_bytes(const ab_shape *shape);

/* Runs f over all rows. The rows of a chunk run in order on one thread. */
void ab_row_pass_run(const ab_row_pass *pass);

AB_END_DECLS

#endif
