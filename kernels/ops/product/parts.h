/* Tensors as the loops of vec_part.h name them, and these loops at the CPU level in force.
 *
 * Internal to kernels/ops. */
#ifndef AB_KERNELS_OPS_PRODUCT_PARTS_H
#define AB_KERNELS_OPS_PRODUCT_PARTS_H

#include "kernels/format/convert.h"
#include "kernels/format/halves.h"
#include "kernels/format/stored.h"
#include "kernels/ops/product/pass.h"
#include "kernels/ops/product/vec_part.h"
#include "kernels/vec/isa.h"

AB_BEGIN_DECLS

AB_BY_ISA(ab_vec_part, ab_vec_part)

/* rows x columns values from `at` on, `step` from one row to the next. */
static inline ab_panel_part ab_panel_part_of(const ab_values *values, int64_t at, int64_t step, int64_t rows,
                                             int64_t columns) {
    char *data = (char *)(uintptr_t)values->data; /* written only where the caller's tensor may be */
    return (ab_panel_part){.data = data + ab_format_bytes(values->format, at),
                           .stored = ab_container_of(values->format),
                           .step = step,
                           .rows = rows,
                           .columns = columns};
}

AB_END_DECLS

#endif
