/* Inner loops of matrix products that stream one operand once: rows of it, as they are in memory, against a
 * panel of the other that is in cache. Compiled once per CPU level (vec_panel.c). Each result is one chain of
 * multiply-adds in the order of the inner dimension, fused where the CPU level has FMA, so its bits depend
 * neither on the tile that computes it nor on the vector width.
 *
 * Internal to kernels/; few_rows.c is the only caller. */
#ifndef AB_KERNELS_VEC_VEC_PANEL_H
#define AB_KERNELS_VEC_VEC_PANEL_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum {
    AB_PANEL = 64,     /* columns of a panel, some of which may be unused */
    AB_PANEL_ROWS = 6, /* rows of a tile */
    AB_PANEL_STEP = 16 /* columns are computed in multiples of this */
};

/* c[r][0..columns) = sum over k < inner of a[r][k] * panel[k][0..columns) for each of AB_PANEL_ROWS rows.
 * From row `rows` on, c is undefined and a is not read. columns: at most AB_PANEL, a multiple of
 * AB_PANEL_STEP. */
typedef struct ab_panel_tile {
    const float *a, *panel;
    float *c; /* [AB_PANEL_ROWS][AB_PANEL] */
    int64_t rows, columns, inner;
} ab_panel_tile;

typedef struct ab_vec_panel {
    void (*tile)(const ab_panel_tile *job);
    /* dst[c * dst_step + r] = src[r * src_step + c] for r < rows, c < columns */
    void (*transpose)(float *dst, int64_t dst_step, const float *src, int64_t src_step, int64_t rows,
                      int64_t columns);
} ab_vec_panel;

AB_END_DECLS

#endif
