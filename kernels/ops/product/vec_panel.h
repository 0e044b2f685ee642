/* Inner loops of matrix products: rows of one operand, as they are in memory, against a panel of the other
 * that is in cache. Compiled once per CPU level (vec_panel.c). Each result is one chain of multiply-adds in
 * the order of the inner dimension, fused where the CPU level has FMA, so its bits depend neither on the tile
 * that computes it nor on the vector width.
 *
 * Internal to kernels/; the callers are few_rows*.c and blocked*.c. */
#ifndef AB_KERNELS_OPS_PRODUCT_VEC_PANEL_H
#define AB_KERNELS_OPS_PRODUCT_VEC_PANEL_H

#include "kernels/ops/product/vec_part.h"

#include <stdbool.h>
#include <stdint.h>

AB_BEGIN_DECLS

enum { AB_PANEL_ROWS = 6 }; /* of a tile */

/* Halves that a tile widens while it computes: AB_PANEL_ROWS rows of as many values as its inner dimension.
 */
typedef struct ab_panel_ahead {
    const void *from;
    ab_stored stored; /* not AB_STORED_FP32 */
    float *to;
    int64_t from_step, to_step; /* from one row to the next */
} ab_panel_ahead;

/* c[r][0..columns) = sum over k < inner of a[r][k] * panel[k][0..columns) for each row r < rows, at most
 * AB_PANEL_ROWS. columns: at most AB_PANEL, a multiple of AB_PANEL_STEP. continues: the sums go on from those
 * in c; else those of every row from `start`, or from zeros if it is NULL. */
typedef struct ab_panel_tile {
    const float *a, *panel;
    const float *start;
    float *c;
    int64_t a_step, c_step; /* from one row to the next */
    int64_t rows, columns, inner;
    bool continues;
    uint16_t *rounded; /* where results go in place of c, rounded once to rounded_as; NULL: to c */
    int64_t rounded_step;
    ab_stored rounded_as;        /* not AB_STORED_FP32 */
    const ab_panel_ahead *ahead; /* what to widen meanwhile; NULL: nothing */
    int64_t next_rows; /* rows of the results behind these, which are fetched into the cache meanwhile */
} ab_panel_tile;

typedef struct ab_vec_panel {
    void (*tile)(const ab_panel_tile *job);
    /* dst[c * dst_step + r] = src[r * src_step + c] for r < rows, c < columns */
    void (*transpose)(float *dst, int64_t dst_step, const float *src, int64_t src_step, int64_t rows,
                      int64_t columns);
    /* dst[c * dst_step + r] = the part's value in row r, column c, widened */
    void (*turn)(float *dst, int64_t dst_step, const ab_panel_part *from);
    /* The part's value in row r < AB_PANEL, column c = sums[c * AB_PANEL + r] + bias[c], rounded once; bias
     * NULL: none. Changes the sums, whose rows are read up to a multiple of AB_PANEL_STEP, as are columns. */
    void (*store_turned)(const ab_panel_part *to, float *sums, const float *bias);
} ab_vec_panel;

AB_END_DECLS

#endif
