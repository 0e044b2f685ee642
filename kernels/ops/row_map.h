/* A tensor row by row (a row is the last dimension): how softmax and the normalisations split their work, by
 * shape alone, and read and write stored formats through one fp32 row a thread.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ROW_MAP_H
#define AB_KERNELS_OPS_ROW_MAP_H

#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_math.h"

AB_BEGIN_DECLS

enum { AB_ROW_MAX_CHUNKS = 64 };

typedef struct ab_row_split {
    int64_t rows, n; /* n values a row */
    int64_t chunk_rows, chunks;
} ab_row_split;

/* How a tensor of this shape is cut into chunks of rows. */
ab_row_split ab_row_split_of(const ab_shape *shape);

/* Tensors of one pass; absent ones are NULL. */
typedef struct ab_row_pass ab_row_pass;

/* out = f(a, b) for one row; out may be dst's own memory or a buffer, and is NULL without dst. */
typedef void (*ab_row_function)(const ab_row_pass *pass, int64_t chunk, int64_t row, float *out,
                                const float *a, const float *b);

struct ab_row_pass {
    const ab_exec *exec;
    ab_row_split split;
    const ab_tensor *a, *b;
    ab_tensor *dst;
    size_t fixed_bytes; /* of workspace before the threads' rows */
    const void *self;   /* of f */
    ab_row_function f;
};

/* Bytes of workspace behind fixed_bytes. */
size_t ab_row_pass_bytes(const ab_shape *shape);

/* Runs f over all rows: a chunk's rows in order on one thread. */
void ab_row_pass_run(const ab_row_pass *pass);

AB_END_DECLS

#endif
