/* Dot products in accumulators that hardware has, and in one that makes no error: what the accumulator audit
 * compares. */
#ifndef AB_PROBES_DOT_H
#define AB_PROBES_DOT_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* A way to add up products: each product is added to a running sum, which is rounded (to nearest even) to
 * `precision` bits in the exponent range of a format. With a chunk, that sum is added to an fp32 sum and
 * starts anew every `chunk` products. */
typedef struct ab_accumulator {
    const char *name;
    ab_format format;
    int chunk; /* 0: none */
} ab_accumulator;

/* fp16, bf16, fp32, 14-bit (fp32's exponents, as fp8 tensor cores do), and chunks of 128 products in 14 bits.
 */
int ab_accumulator_count(void);
const ab_accumulator *ab_accumulator_at(int i);

typedef struct ab_dot {
    double sum;
    int64_t addends, swamped; /* products that are not zero; those that left the sum as it was */
} ab_dot;

/* Sum of a[i] * b[i] in order. */
ab_dot ab_dot_in(const ab_accumulator *accumulator, const float *a, const float *b, int64_t n);

/* The same without error, rounded to double at the end (faithfully: within one unit in the last place). All
 * values must be finite, and n below 2^30. */
double ab_dot_exact(const float *a, const float *b, int64_t n);

AB_END_DECLS

#endif
