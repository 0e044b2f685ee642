/* Products of linear layers with many rows, in blocks that stay in cache: lines x inner times inner x
 * columns. One order of work (blocked.c) and two units that compute: fp32 vectors (blocked_fp32.c) and pairs
 * of bf16 (blocked_bf16.c).
 *
 * Internal to blocked*.c. */
#ifndef AB_KERNELS_OPS_PRODUCT_BLOCKED_H
#define AB_KERNELS_OPS_PRODUCT_BLOCKED_H

#include "kernels/ops/product/few_rows.h"

AB_BEGIN_DECLS

typedef struct ab_blocked_unit ab_blocked_unit;

/* Values [first, first + count) of a dimension. */
typedef struct ab_range {
    int64_t first, count;
} ab_range;

/* Both operands as they are stored: lines as [line][inner] or, turned, [inner][line]; columns as
 * [inner][column] or, turned, [column][inner]. step: values from one stored row to the next. */
typedef struct ab_blocked_operands {
    const ab_blocked_unit *unit; /* that computes with them */
    ab_values lines, columns;
    int64_t lines_step, columns_step;
    bool lines_turned, columns_turned;
} ab_blocked_operands;

/* Lines of a block, side by side in memory. */
typedef struct ab_blocked_lines {
    const void *data;
    int64_t step; /* values from one line to the next */
} ab_blocked_lines;

/* sums[line][0..columns) = start + lines times a part of a panel; lines and columns are the unit's multiples
 * or may be computed up to them. */
typedef struct ab_blocked_product {
    const ab_blocked_unit *unit;
    ab_blocked_lines lines;
    const void *panel;
    float *sums;
    int64_t sums_step, count, columns, inner; /* count: of lines; inner: padded */
    const float *start;                       /* AB_PANEL values from which every line starts; NULL: zeros */
    bool continues;                           /* the sums go on from those in `sums` */
    const ab_panel_part
        *rounded; /* where the results go in place of `sums`, rounded once; NULL: nowhere else */
    const ab_panel_part *stored; /* where the caller stores finished sums, from `sums`; NULL: they are not */
} ab_blocked_product;

struct ab_blocked_unit {
    const ab_format *format;         /* of packed operands */
    const struct ab_bf16_unit *bf16; /* of bf16 pairs; else NULL */
    int64_t lines, inner; /* what is computed at a time; the inner dimension is padded to a multiple */
    bool pads_lines;      /* lines are computed, and sums written, up to a multiple of `lines` */
    bool rounds;          /* takes `rounded` */
    int64_t part;         /* values of the inner dimension for which a panel stays in the L1 cache */
    int64_t section;      /* values of the inner dimension that are packed at a time */
    /* Packs columns of the part `inner` of the inner dimension as the unit reads them, AB_PANEL columns wide.
     * buffer: AB_PANEL x part values in fp32. */
    void (*pack)(const ab_blocked_operands *from, void *to, ab_range columns, ab_range inner, float *buffer);
    /* Gives lines of the section `inner`, of turned ones at most AB_BLOCKED_TURN values: in place, or in
     * `copy`, whose lines are `step` values apart. turned: these, as they are stored or widened. */
    ab_blocked_lines (*take)(const ab_blocked_operands *from, ab_range lines, ab_range inner, void *copy,
                             int64_t step, const ab_panel_part *turned);
    void (*multiply)(const ab_blocked_product *product);
};

/* LINES: most of a block. TURN: values of the inner dimension that are turned at a time. */
enum { AB_BLOCKED_LINES = 96, AB_BLOCKED_TURN = 64 };

/* A pass of a linear layer on a unit, which it copies. */
AB_MUST_CHECK ab_status ab_blocked_make(const ab_pass_spec *spec, const ab_blocked_unit *unit,
                                        const char *name, ab_pass **pass);

AB_END_DECLS

#endif
