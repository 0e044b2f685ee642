/* Conversion of single stored elements to and from fp32, for kernels that must give the same bits on CPU and
 * GPU. Every function is compiled for both, so CPU tests cover the GPU code except for the two conversion
 * instructions.
 *
 * For arrays on the CPU use convert.h, which is faster. Formats without a storage type have no element
 * type. */
#ifndef AB_KERNELS_OPS_ELEMENT_H
#define AB_KERNELS_OPS_ELEMENT_H

#include "kernels/core/elementary.h"

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

AB_BEGIN_DECLS

typedef enum ab_element_type {
    AB_ELEMENT_F32,
    AB_ELEMENT_F16,
    AB_ELEMENT_BF16,
    AB_ELEMENT_NONE
} ab_element_type;

/* Array of elements of one type, in host or device memory. */
typedef struct ab_span {
    void *data;
    int type; /* ab_element_type */
} ab_span;

static inline AB_HOST_DEVICE float ab_bf16_value(uint16_t code) { return ab_float_of((uint32_t)code << 16); }

/* Round to nearest even. A NaN keeps its sign and leading payload bits and becomes quiet. */
static inline AB_HOST_DEVICE uint16_t ab_bf16_code(float x) {
    uint32_t bits = ab_bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* The value of an fp16 code; exact. */
static inline AB_HOST_DEVICE float ab_f16_value(uint16_t code) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half(code));
#else
    uint32_t sign = (uint32_t)(code & 0x8000u) << 16, magnitude = code & 0x7fffu;
    if (magnitude >= 0x7c00u) { /* inf, NaN (made quiet) */
        uint32_t quiet = magnitude > 0x7c00u ? 0x400000u : 0u;
        return ab_float_of(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | quiet);
    }
    if (magnitude >= 0x400u) return ab_float_of(sign | ((magnitude << 13) + (112u << 23)));
    float value = (float)magnitude * 0x1p-24f; /* subnormal or zero: exact */
    return ab_float_of(sign | ab_bits_of(value));
#endif
}

/* Round to nearest even. The GPU instruction returns one NaN for all NaNs. */
static inline AB_HOST_DEVICE uint16_t ab_f16_code(float x) {
#if defined(__CUDA_ARCH__)
    return __half_as_ushort(__float2half_rn(x));
#else
    uint32_t bits = ab_bits_of(x), sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and above */
    if (magnitude >= 0x38800000u) {                                  /* normal: 2^-14 and above */
        magnitude += 0xfffu + (magnitude >> 13 & 1u);
        return (uint16_t)(sign | ((magnitude - (112u << 23)) >> 13));
    }
    /* Adding 0.5 puts the ulp of a half subnormal at the end of the fp32 significand; the addition rounds. */
    float sum = ab_float_of(magnitude) + 0.5f;
    return (uint16_t)(sign | (ab_bits_of(sum) - 0x3f000000u));
#endif
}

/* Element i of an array of `type`, as fp32. */
static inline AB_HOST_DEVICE float ab_load(const void *data, int type, int64_t i) {
    if (type == AB_ELEMENT_F32) return ((const float *)data)[i];
    uint16_t code = ((const uint16_t *)data)[i];
    return type == AB_ELEMENT_F16 ? ab_f16_value(code) : ab_bf16_value(code);
}

/* Stores x as element i of an array of `type`, rounded to nearest even. */
static inline AB_HOST_DEVICE void ab_store(void *data, int type, int64_t i, float x) {
    if (type == AB_ELEMENT_F32)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] = type == AB_ELEMENT_F16 ? ab_f16_code(x) : ab_bf16_code(x);
}

/* Element i of a span, as fp32. */
static inline AB_HOST_DEVICE float ab_span_at(ab_span span, int64_t i) {
    return ab_load(span.data, span.type, i);
}

AB_END_DECLS

#endif
