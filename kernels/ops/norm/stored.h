/* The formats that vector loops of norms read and write themselves.
 *
 * Internal to kernels/ops/norm. */
#ifndef AB_KERNELS_OPS_NORM_STORED_H
#define AB_KERNELS_OPS_NORM_STORED_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

typedef enum ab_stored { AB_STORED_FP32, AB_STORED_FP16, AB_STORED_BF16, AB_STORED_COUNT } ab_stored;

/* AB_STORED_COUNT: the loops do not know the format. */
static inline ab_stored ab_stored_as(const ab_format *format) {
    if (format == &ab_format_fp32) return AB_STORED_FP32;
    if (format == &ab_format_fp16) return AB_STORED_FP16;
    return format == &ab_format_bf16 ? AB_STORED_BF16 : AB_STORED_COUNT;
}

AB_END_DECLS

#endif
