/* The bin of a value in the census: the scalar reference that every kernel, on any device, must match.
 *
 * Mantissa classes. With p bits of precision (hidden bit included), the outcome of a value 1.m * 2^e whose
 * scaled exponent is at one of a format's limits depends on its mantissa m (IEEE 754 round to nearest, ties
 * to even):
 *   flushed to zero   at half the smallest subnormal:  m = 0 (the tie)
 *   becomes normal    one octave below the smallest normal:  1.m >= 2 - 2^(1-p)
 *   overflows         in the top octave:  1.m >= 2 - 2^-p, but e4m3 (NaN follows 448):  1.m > 1.8125
 *
 * The product value * 2^k is itself rounded to fp32.
 * That matters only where it is an fp32 subnormal, so only for the limits of formats with 8 exponent bits:
 * bf16 then flushes m <= 2^-16 and tf32 m <= 2^-13 (both are rounded to the tie first), and their carry
 * points move down by 2^-23.
 *
 * The limits of formats with 8 exponent bits lie at scaled exponents of at most -127 or of at least 127,
 * so with a scale between 2^-60 and 2^60 the unscaled exponents are outside -66 .. 66. Inside, where
 * nearly all values are, the classes of fp16, e4m3 and e5m2 are sufficient. */
#ifndef AB_KERNELS_CENSUS_CENSUS_BIN_H
#define AB_KERNELS_CENSUS_CENSUS_BIN_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum {
    AB_CENSUS_EMIN = -149, /* smallest fp32 subnormal, normalised */
    AB_CENSUS_EMAX = 127,
    AB_CENSUS_EXPONENTS = AB_CENSUS_EMAX - AB_CENSUS_EMIN + 1,
    AB_CENSUS_COMMON_MIN = -66, /* exponents with the common classes only */
    AB_CENSUS_COMMON_MAX = 66,
    AB_CENSUS_BLOCK = 4096 /* values; 16 KiB fit in the L1 cache */
};

/* Smallest 23-bit mantissas of classes; the first class of every exponent is m = 0 alone. */
enum {
    AB_CENSUS_ABOVE_0 = 0x000001,        /* above the tie at half the smallest subnormal */
    AB_CENSUS_ABOVE_BF16_TIE = 0x000081, /* 1 + 2^-16 */
    AB_CENSUS_ABOVE_TF32_TIE = 0x000401, /* 1 + 2^-13 */
    AB_CENSUS_E5M2_CARRY = 0x600000,     /* 1.75 */
    AB_CENSUS_ABOVE_E4M3_MAX = 0x680001, /* above 1.8125: overflow of e4m3 */
    AB_CENSUS_E4M3_CARRY = 0x700000,     /* 1.875, and overflow of e5m2 */
    AB_CENSUS_BF16_CARRY = 0x7effff,     /* 2 - 2^-7 - 2^-23 */
    AB_CENSUS_BF16_OVERFLOW = 0x7f8000,  /* 2 - 2^-8 */
    AB_CENSUS_TF32_CARRY = 0x7fdfff,     /* 2 - 2^-10 - 2^-23 */
    AB_CENSUS_FP16_CARRY = 0x7fe000,     /* 2 - 2^-10 */
    AB_CENSUS_FP16_OVERFLOW = 0x7ff000,  /* 2 - 2^-11, and of tf32 */
    AB_CENSUS_FP32_CARRY = 0x7fffff,     /* 2 - 2^-23 */
    AB_CENSUS_COMMON_CLASSES = 7,
    AB_CENSUS_CLASSES = 13
};

/* Class of a 23-bit mantissa at an exponent of AB_CENSUS_COMMON_MIN .. AB_CENSUS_COMMON_MAX. */
static inline AB_HOST_DEVICE int ab_census_common_class(uint32_t m) {
    return (m >= AB_CENSUS_ABOVE_0) + (m >= AB_CENSUS_E5M2_CARRY) + (m >= AB_CENSUS_ABOVE_E4M3_MAX) +
           (m >= AB_CENSUS_E4M3_CARRY) + (m >= AB_CENSUS_FP16_CARRY) + (m >= AB_CENSUS_FP16_OVERFLOW);
}

/* Class of a 23-bit mantissa at any other exponent. */
static inline AB_HOST_DEVICE int ab_census_outer_class(uint32_t m) {
    return (m >= AB_CENSUS_ABOVE_0) + (m >= AB_CENSUS_ABOVE_BF16_TIE) + (m >= AB_CENSUS_ABOVE_TF32_TIE) +
           (m >= AB_CENSUS_E5M2_CARRY) + (m >= AB_CENSUS_ABOVE_E4M3_MAX) + (m >= AB_CENSUS_E4M3_CARRY) +
           (m >= AB_CENSUS_BF16_CARRY) + (m >= AB_CENSUS_BF16_OVERFLOW) + (m >= AB_CENSUS_TF32_CARRY) +
           (m >= AB_CENSUS_FP16_CARRY) + (m >= AB_CENSUS_FP16_OVERFLOW) + (m >= AB_CENSUS_FP32_CARRY);
}

/* Bin of a finite non-zero value. */
typedef struct ab_census_place {
    int row;    /* exponent - AB_CENSUS_EMIN */
    int column; /* mantissa class */
} ab_census_place;

/* From the value's fp32 bits without the sign. */
static inline AB_HOST_DEVICE ab_census_place ab_census_bin(uint32_t magnitude) {
    int exponent = (int)(magnitude >> 23) - 127;
    ab_census_place place = {0, 0};
    if (magnitude < 0x800000u) { /* subnormal: shift the leading bit to the hidden-bit position */
        for (exponent++; magnitude < 0x800000u; exponent--) magnitude <<= 1;
    }
    place.row = exponent - AB_CENSUS_EMIN;
    place.column = exponent >= AB_CENSUS_COMMON_MIN && exponent <= AB_CENSUS_COMMON_MAX
                       ? ab_census_common_class(magnitude & 0x7fffffu)
                       : ab_census_outer_class(magnitude & 0x7fffffu);
    return place;
}

AB_END_DECLS

#endif
