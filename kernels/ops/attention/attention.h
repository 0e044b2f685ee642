/* The arithmetic of scaled_dot_product_attention on strided heads: forward and backward of all heads, one
 * head at a time on each thread, a block of queries at a time in its scratch.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ATTENTION_ATTENTION_H
#define AB_KERNELS_OPS_ATTENTION_ATTENTION_H

#include "kernels/ops/product/gemm.h"
#include "kernels/vec/vec_math.h"

AB_BEGIN_DECLS

/* A tensor seen as [batch, heads, rows, width]; steps in elements. tensor NULL: absent. */
typedef struct ab_heads {
    const ab_tensor *tensor;
    int64_t offset, batch_step, head_step, row_step, rows, width;
} ab_heads;

/* A mask seen as [batch, heads, queries, keys]; a step of 0 repeats it. */
typedef struct ab_mask {
    const ab_tensor *tensor; /* NULL: none; int32: 0 masks; else added */
    int64_t step[4], keys;
} ab_mask;

typedef struct ab_attention {
    const ab_exec *exec;
    int64_t batch, heads;
    ab_heads in[3], din[3], out, dout; /* q, k, v */
    ab_mask mask;
    bool causal;
    float scale, masked; /* masked: added to a score that does not take part; -inf */
    float *log_sum; /* [batch, heads, queries]: of the scores' exponentials; written by forward if not NULL */
    const ab_format *half; /* accumulate_half */
    bool may_drop;         /* room for dropped probabilities */
    ab_dropout dropout;    /* threshold 0: none */
} ab_attention;

/* Bytes of scratch that each thread needs; then the two passes over all heads. Sizes and layouts are those of
 * ab_attention. */
size_t ab_attention_lane_bytes(const ab_attention *attention);
void ab_attention_forward(const ab_attention *attention);
void ab_attention_backward(const ab_attention *attention);

AB_END_DECLS

#endif
