/* How values lie in memory that vector loops read and write themselves. Results are computed in fp32.
 *
 * Internal to kernels/. */
#ifndef AB_KERNELS_VEC_STORED_H
#define AB_KERNELS_VEC_STORED_H

#include "kernels/core/compiler.h"

#include <stddef.h>
#include <stdint.h>

AB_BEGIN_DECLS

typedef enum ab_stored { AB_STORED_FP32, AB_STORED_FP16, AB_STORED_BF16, AB_STORED_COUNT } ab_stored;

/* Bytes of n values. */
static inline size_t ab_stored_bytes(ab_stored stored, int64_t n) {
    return (size_t)n * (stored == AB_STORED_FP32 ? sizeof(float) : sizeof(uint16_t));
}

AB_END_DECLS

#endif
