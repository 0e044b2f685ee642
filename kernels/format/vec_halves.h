/* The loops of halves.h, one table per CPU level. Internal to kernels/format. */
#ifndef AB_KERNELS_FORMAT_VEC_HALVES_H
#define AB_KERNELS_FORMAT_VEC_HALVES_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

typedef struct ab_vec_halves {
    void (*add_fp16)(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n);
    void (*add_bf16)(uint16_t *dst, const uint16_t *a, const uint16_t *b, int64_t n);
    void (*scale_fp16)(uint16_t *dst, const uint16_t *a, const float *factor, int64_t n);
    void (*scale_bf16)(uint16_t *dst, const uint16_t *a, const float *factor, int64_t n);
} ab_vec_halves;

AB_END_DECLS

#endif
