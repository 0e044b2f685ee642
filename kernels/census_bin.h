/* Where the census counts one value: the scalar definition that every kernel, on any device, must reproduce.
 *
 * Mantissa classes. With p bits of precision (hidden bit included), a value 1.m * 2^e whose scaled exponent meets one of a
 * format's limits is decided by its mantissa m (IEEE 754 round to nearest, ties to even):
 *   flushed to zero   at half the smallest subnormal:  m = 0 (the tie)
 *   becomes normal    one octave below the smallest normal:  1.m >= 2 - 2^(1-p)
 *   overflows         in the top octave:  1.m >= 2 - 2^-p, but e4m3 (448 is followed by nan):  1.m > 1.8125
 * The product value * 2^k is itself rounded to fp32. That matters where it is an fp32 subnormal, which only the limits of
 * formats with 8 exponent bits reach: bf16 then flushes m <= 2^-16 and tf32 m <= 2^-13 (both are rounded to the tie first),
 * and their carry points move down by 2^-23. */
#ifndef AB_KERNELS_CENSUS_BIN_H
#define AB_KERNELS_CENSUS_BIN_H

#include "kernels/core/compiler.h"

#include <stdint.h>

AB_BEGIN_DECLS

enum {
    AB_CENSUS_EMIN = -149, /* of the smallest fp32 subnormal, normalised */
    AB_CENSUS_EMAX = 127,
    AB_CENSUS_EXPONENTS = AB_CENSUS_EMAX - AB_CENSUS_EMIN + 1,
    AB_CENSUS_BLOCK = 2048 /* values; 8 KiB stay in the first-level cache */
};

/* Smallest 23-bit mantissa of each class but the first, which holds m = 0 alone. */
enum {
    AB_CENSUS_EDGE_1 = 0x000001,  /* above every tie at half the smallest subnormal */
    AB_CENSUS_EDGE_2 = 0x000081,  /* above 2^-16: bf16 */
    AB_CENSUS_EDGE_3 = 0x000401,  /* above 2^-13: tf32 */
    AB_CENSUS_EDGE_4 = 0x600000,  /* 1.75: carry of e5m2 */
    AB_CENSUS_EDGE_5 = 0x680001,  /* above 1.8125: overflow of e4m3 */
    AB_CENSUS_EDGE_6 = 0x700000,  /* 1.875: carry of e4m3, overflow of e5m2 */
    AB_CENSUS_EDGE_7 = 0x7effff,  /* 2 - 2^-7 - 2^-23: carry of bf16 */
    AB_CENSUS_EDGE_8 = 0x7f8000,  /* 2 - 2^-8: overflow of bf16 */
    AB_CENSUS_EDGE_9 = 0x7fdfff,  /* 2 - 2^-10 - 2^-23: carry of tf32 */
    AB_CENSUS_EDGE_10 = 0x7fe000, /* 2 - 2^-10: carry of fp16 */
    AB_CENSUS_EDGE_11 = 0x7ff000, /* 2 - 2^-11: overflow of fp16 and tf32 */
    AB_CENSUS_EDGE_12 = 0x7fffff, /* 2 - 2^-23: carry of fp32 */
    AB_CENSUS_CLASSES = 13
};

/* Class of a 23-bit mantissa. */
static inline AB_HOST_DEVICE int ab_census_class(uint32_t mantissa) {
    return (mantissa >= AB_CENSUS_EDGE_1) + (mantissa >= AB_CENSUS_EDGE_2) + (mantissa >= AB_CENSUS_EDGE_3) +
           (mantissa >= AB_CENSUS_EDGE_4) + (mantissa >= AB_CENSUS_EDGE_5) + (mantissa >= AB_CENSUS_EDGE_6) +
           (mantissa >= AB_CENSUS_EDGE_7) + (mantissa >= AB_CENSUS_EDGE_8) + (mantissa >= AB_CENSUS_EDGE_9) +
           (mantissa >= AB_CENSUS_EDGE_10) + (mantissa >= AB_CENSUS_EDGE_11) +
           (mantissa >= AB_CENSUS_EDGE_12);
}

/* A finite non-zero value's place in the counters. */
typedef struct ab_census_place {
    int row;    /* exponent - AB_CENSUS_EMIN */
    int column; /* mantissa class */
} ab_census_place;

/* From the value's fp32 bits without the sign. */
static inline AB_HOST_DEVICE ab_census_place ab_census_bin(uint32_t magnitude) {
    ab_census_place place = {(int)(magnitude >> 23) - 127 - AB_CENSUS_EMIN, 0};
    if (magnitude < 0x800000u) { /* subnormal: shift the leading bit to the hidden place */
        for (place.row++; magnitude < 0x800000u; place.row--) magnitude <<= 1;
    }
    place.column = ab_census_class(magnitude & 0x7fffffu);
    return place;
}

AB_END_DECLS

#endif
