/* Shared by the products of few rows (pass.h): the loops of the CPU level in force, and values as these loops
 * name them.
 *
 * Internal to kernels/ops/product. */
#ifndef AB_KERNELS_OPS_PRODUCT_FEW_ROWS_H
#define AB_KERNELS_OPS_PRODUCT_FEW_ROWS_H

#include "kernels/format/convert.h"
#include "kernels/ops/product/pass.h"
#include "kernels/ops/product/vec_panel.h"
#include "kernels/ops/product/vec_part.h"
#include "kernels/vec/isa.h"

AB_BEGIN_DECLS

AB_BY_ISA(ab_vec_panel, ab_vec_panel)
AB_BY_ISA(ab_vec_part, ab_vec_part)

/* How the loops read values of `format`. */
static inline ab_panel_kind ab_panel_kind_of(const ab_format *format) {
    if (format == &ab_format_fp16) return AB_PANEL_FP16;
    return format == &ab_format_bf16 ? AB_PANEL_BF16 : AB_PANEL_FP32;
}

/* Whether ab_vec_part.store rounds to `format`. */
static inline bool ab_panel_stores(const ab_format *format) {
    return format == &ab_format_fp32 || ab_panel_kind_of(format) != AB_PANEL_FP32;
}

/* rows x columns values from `at` on, `step` from one row to the next. */
static inline ab_panel_part ab_panel_part_of(const ab_values *values, int64_t at, int64_t step, int64_t rows,
                                             int64_t columns) {
    char *data = (char *)(uintptr_t)values->data; /* written only where the caller's tensor may be */
    return (ab_panel_part){.data = data + ab_format_bytes(values->format, at),
                           .kind = ab_panel_kind_of(values->format),
                           .step = step,
                           .rows = rows,
                           .columns = columns};
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
    float *sums;   /* [output][AB_PANEL] */
    float *buffer; /* [row][output], used if dst is not fp32 */
} ab_turned_panel;

/* Adds the bias, turns the panel and rounds it to dst. Changes its sums. */
void ab_turned_panel_store(const ab_turned_panel *panel);

AB_END_DECLS

#endif
