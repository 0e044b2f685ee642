/* Row-wise processing (a row is the last dimension): softmax and the normalisations split their work by shape
 * alone and convert stored formats through fp32 row buffers per thread.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ROW_MAP_H
#define AB_KERNELS_OPS_ROW_MAP_H

#include "kernels/ops/blocks.h"
#include "kernels/vec/vec_math.h"

AB_BEGIN_DECLS

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
