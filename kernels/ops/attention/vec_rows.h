/* Rows of attention's scores, as vector code compiled once per CPU level (vec_rows.c): softmax, softmax again
 * from saved sums, and its gradient. Several rows at a time, so that the latencies of one row hide behind the
 * others. Every level gives the same bits; elementary functions are those of kernels/core.
 *
 * Internal to kernels/; the only caller is attention.c. */
#ifndef AB_KERNELS_OPS_ATTENTION_VEC_ROWS_H
#define AB_KERNELS_OPS_ATTENTION_VEC_ROWS_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_SCORES_STEP = 16 }; /* rows of scores start at multiples of this */

/* `rows` rows of `keys` scores, `step` apart, with room for whole steps of AB_SCORES_STEP. The first
 * min(keys, seen + r slope) of row r take part; the functions make the others zeros, also in that room. */
typedef struct ab_score_rows {
    float *value;
    int64_t rows, keys, step; /* step: a multiple of AB_SCORES_STEP, at least keys */
    int64_t seen, slope;      /* slope: 0 or 1 */
} ab_score_rows;

typedef struct ab_vec_rows {
    /* Scores to probabilities. log_sum[r]: log of the sum of the exponentials of row r, -inf if all are -inf
     * (the probabilities are 0 then); NULL: not wanted. */
    void (*softmax)(const ab_score_rows *scores, float *log_sum);
    /* The same from the log_sum that softmax wrote. */
    void (*softmax_again)(const ab_score_rows *scores, const float *log_sum);
    /* Gradients of probabilities to gradients of scores: d = p (d - sum over the row of p d). p has the
     * layout of the gradients, and zeros where these do not take part. */
    void (*gradient)(const ab_score_rows *gradients, const float *p);
} ab_vec_rows;

AB_END_DECLS

#endif
