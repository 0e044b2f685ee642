/* One head of attention whose scores all fit the cache, as vector code compiled once per CPU level
 * (vec_head.c), with the bits of the path by blocks in attention.c but where it takes bf16 pairs. Scores lie
 * in memory as [keys][queries]: queries are the lanes of vectors, so a maximum or a sum over keys needs no
 * sum over lanes, and one vector has the logarithms of as many queries as it has lanes.
 *
 * Internal to kernels/; the only caller is attention.c. */
#ifndef AB_KERNELS_OPS_ATTENTION_VEC_HEAD_H
#define AB_KERNELS_OPS_ATTENTION_VEC_HEAD_H

#include "kernels/core/compiler.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

/* Fewest and most queries or keys of a head; a query, key or value has a multiple of AB_HEAD_STEP values and
 * as many at most: a chain of multiply-adds is not cut there (vec_gemm.c). Rows of scores are rounded up to
 * that multiple. */
enum { AB_HEAD_LEAST = 8, AB_HEAD_MOST = 128, AB_HEAD_STEP = 32 };

/* Rows `step` apart; those of bf16 values are read and written as they are in memory. */
typedef struct ab_head_rows {
    float *data; /* NULL: not wanted, or only as bf16 */
    int64_t step;
    uint16_t *bf16;    /* NULL: only as fp32 */
    int64_t bf16_step; /* even */
} ab_head_rows;

/* Rows that will be used soon: `left` of `bytes` bytes from `at` on, `step` bytes apart. */
typedef struct ab_fetch {
    const char *at;
    int64_t step, bytes, left;
    bool writes;
} ab_fetch;

/* Lists of them in the order of use. They are fetched bit by bit between products: as many at once as a head
 * has would fill the processor's queue of misses, and loads would wait behind them. */
enum { AB_FETCH_MOST = 7 };
typedef struct ab_fetches {
    ab_fetch of[AB_FETCH_MOST];
    int next, count;
} ab_fetches;

/* Fetches the next `rows` rows into the L2 cache. */
static inline void ab_fetch_some(ab_fetches *f, int64_t rows) {
    enum { LINE = 64 };
    for (; rows > 0 && f->next < f->count; f->next++) {
        ab_fetch *x = &f->of[f->next];
        for (; x->left > 0 && rows > 0; x->left--, rows--, x->at += x->step)
            for (int64_t at = 0; at < x->bytes; at += LINE)
                if (x->writes)
                    __builtin_prefetch(x->at + at, 1, 2);
                else
                    __builtin_prefetch(x->at + at, 0, 2);
        if (x->left > 0) return;
    }
}

typedef struct ab_head {
    int64_t queries, keys;      /* causal: as many keys as queries, of which query i sees the first i + 1 */
    int64_t width, value_width; /* of a query or key, of a value */
    bool causal;
    bool pairs; /* q k^T and dout v^T from bf16 rows, as bf16_unit.h says of vectors; needs AVX512-BF16 */
    float scale;
    /* q, k, v; dout: of backward. Where a result is bf16, so are the operands of its product. */
    ab_head_rows in[3], dout;
    ab_head_rows out;    /* of forward */
    ab_head_rows din[3]; /* of backward */
    float *log_sum;      /* [queries]; written by forward unless NULL */
    ab_fetches *fetches; /* what is done besides */
    float *p, *dp;       /* scratch, 64-byte aligned: keys times queries rounded up, each; dp: of backward */
} ab_head;

typedef struct ab_vec_head {
    /* False: some row's sum of exponentials is 0, infinite or NaN, and nothing but scratch and log_sum is
     * written; the path by blocks says what is to become of it. NULL: this level has no such code. */
    bool (*forward)(const ab_head *head);
    bool (*backward)(const ab_head *head);
    bool takes_bf16; /* rows of bf16, and pairs on a CPU that has AVX512-BF16 */
} ab_vec_head;

AB_END_DECLS

#endif
