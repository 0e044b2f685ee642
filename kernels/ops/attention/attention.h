/* Forward and backward of scaled_dot_product_attention on strided heads. A thread processes one head at a
 * time, one block of queries at a time, in its own scratch.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_OPS_ATTENTION_ATTENTION_H
#define AB_KERNELS_OPS_ATTENTION_ATTENTION_H

#include "kernels/ops/product/gemm.h"
#include "kernels/vec/vec_math.h"

AB_BEGIN_DECLS

/* A tensor viewed as [batch, heads, rows, width]; strides in elements. tensor is NULL if absent. */
typedef struct ab_heads {
    const ab_tensor *tensor;
    int64_t offset, batch_step, head_step, row_step, rows, width;
} ab_heads;

/* A mask viewed as [batch, heads, queries, keys]; a stride of 0 broadcasts it. */
typedef struct ab_mask {
    const ab_tensor *tensor; /* NULL: no mask; int32: 0 masks out; else added to the scores */
    int64_t step[4], keys;
} ab_mask;

typedef struct ab_attention {
    const ab_exec *exec;
    int64_t batch, heads;
    ab_heads in[3], din[3], out, dout; /* q, k, v */
    ab_mask mask;
    bool causal;
    float scale, masked; /* masked: added to a masked-out score, or -inf */
    float *log_sum; /* [batch, heads, queries]: log of the sum of the scores' exponentials; written by forward
                       if not NULL */
    const ab_format *half; /* accumulate_half */
    bool may_drop;         /* reserve scratch for the probabilities after dropout */
    ab_dropout dropout;    /* threshold 0: no dropout */
    bool pairs;            /* what ab_attention_pairs said */
} ab_attention;

/* thread_bytes: bytes of scratch per thread. forward and backward: the two passes over all heads. Shapes and
 * strides come from ab_attention. */
size_t ab_attention_thread_bytes(const ab_attention *attention);
/* Sizes of the product that gives the scores of a block of queries. */
ab_gemm ab_attention_product(const ab_attention *attention);
/* Whether the scores and their gradients are products of bf16 pairs on AVX512-BF16 (bf16_unit.h), at `auto`
 * and `native`: all tensors are bf16, and heads are computed at once (vec_head.h). */
bool ab_attention_pairs(const ab_attention *attention);
void ab_attention_forward(const ab_attention *attention);
void ab_attention_backward(const ab_attention *attention);

AB_END_DECLS

#endif
