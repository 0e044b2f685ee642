/* Shared by the products of few rows (pass.h): the loops of the CPU level in force, and values as these loops
 * name them.
 *
 * Internal to kernels/ops/product. */
#ifndef AB_KERNELS_OPS_PRODUCT_FEW_ROWS_H
#define AB_KERNELS_OPS_PRODUCT_FEW_ROWS_H

#include "kernels/format/convert.h"
#include "kernels/ops/product/parts.h"
#include "kernels/ops/product/vec_panel.h"
#include "kernels/vec/isa.h"

AB_BEGIN_DECLS

AB_BY_ISA(ab_vec_panel, ab_vec_panel)

/* Whether ab_vec_part.store rounds to `format`. */
static inline bool ab_panel_stores(const ab_format *format) {
    return ab_stored_as(format) != AB_STORED_COUNT;
}

/* Rounds rows of src to the part at `at` of `to`; ab_emit for formats that the loops do not know. */
static inline void ab_panel_store(const ab_pass_args *args, const ab_values *to, int64_t at,
                                  const ab_panel_part *part, const float *src, int64_t src_step) {
    if (ab_panel_stores(to->format))
        ab_vec_part_get()->store(part, src, src_step);
    else
        for (int64_t r = 0; r < part->rows; r++)
            ab_emit(args->stored->exec, args->stored->dst, at + r * part->step, src + r * src_step,
                    part->columns);
}

/* Sums of some outputs for at most AB_PANEL rows of the input, to be stored as {rows, outputs}. */
typedef struct ab_turned_panel {
    const ab_pass_args *args;
    ab_values dst;
    int64_t outputs;      /* of the layer */
    int64_t first, count; /* outputs */
    int64_t row, rows;
    float *sums;   /* [output][AB_PANEL], room for a multiple of AB_PANEL_STEP outputs */
    float *buffer; /* [row][output], for formats that the loops do not know */
} ab_turned_panel;

/* Adds the bias, turns the panel and rounds it to dst. Changes its sums. */
void ab_turned_panel_store(const ab_turned_panel *panel);

AB_END_DECLS

#endif
