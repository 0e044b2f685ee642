/* Parts of matrices in memory, read as fp32 for matrix products and rounded from their results. Compiled once
 * per CPU level (vec_part.c); every level gives the same bits.
 *
 * Internal to kernels/; the callers are few_rows*.c, blocked*.c and attention.c. */
#ifndef AB_KERNELS_OPS_PRODUCT_VEC_PART_H
#define AB_KERNELS_OPS_PRODUCT_VEC_PART_H

#include "kernels/vec/stored.h"

AB_BEGIN_DECLS

enum {
    AB_PANEL = 64,     /* columns of a panel, some of which may be unused */
    AB_PANEL_STEP = 16 /* columns are computed in multiples of this */
};

/* Rows of a matrix in memory: `columns` values from `data` on, then those `step` values further, and so on.
 */
typedef struct ab_panel_part {
    void *data; /* not written where it is the source */
    ab_stored stored;
    int64_t step, rows, columns;
} ab_panel_part;

typedef struct ab_vec_part {
    /* dst[r * dst_step + c] = the part's values, widened; pack: to panel[r][c] of vec_panel.h, with zeros up
     * to the next multiple of AB_PANEL_STEP columns */
    void (*read)(float *dst, int64_t dst_step, const ab_panel_part *from);
    void (*pack)(float *panel, const ab_panel_part *from);
    /* The part's values = src[r * src_step + c], rounded once. */
    void (*store)(const ab_panel_part *to, const float *src, int64_t src_step);
    /* sum[c] = the sum of column c, added as column_sums of vec_ops.h adds it. */
    void (*column_sums)(float *sum, const ab_panel_part *of);
} ab_vec_part;

AB_END_DECLS

#endif
