/* Formats as vector loops name them.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_FORMAT_STORED_H
#define AB_KERNELS_FORMAT_STORED_H

#include "kernels/format/format.h"
#include "kernels/vec/stored.h"

AB_BEGIN_DECLS

/* What loops read, and round results to; AB_STORED_COUNT: a format that they do not know. */
static inline ab_stored ab_stored_as(const ab_format *format) {
    if (format == &ab_format_fp32) return AB_STORED_FP32;
    if (format == &ab_format_fp16) return AB_STORED_FP16;
    return format == &ab_format_bf16 ? AB_STORED_BF16 : AB_STORED_COUNT;
}

/* What loops read: values of formats without a storage type are kept in fp32. */
static inline ab_stored ab_container_of(const ab_format *format) {
    const ab_stored stored = ab_stored_as(format);
    return stored == AB_STORED_COUNT ? AB_STORED_FP32 : stored;
}

AB_END_DECLS

#endif
