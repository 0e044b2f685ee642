/* Dot products in emulated hardware accumulators, and exact ones; used by the accumulator audit. */
#ifndef AB_PROBES_DOT_H
#define AB_PROBES_DOT_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

/* An accumulator: each product is added to a running sum, which is rounded (to nearest even) to `precision`
 * bits in the exponent range of a format. With a chunk, every `chunk` products that sum is added to an fp32
 * sum and reset. */
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
    int64_t addends, swamped; /* non-zero products; those that did not change the sum */
} ab_dot;

/* Sum of a[i] * b[i] in order. */
ab_dot ab_dot_in(const ab_accumulator *accumulator, const float *a, const float *b, int64_t n);

/* The exact sum, rounded faithfully to double (within 1 ulp). All values must be finite, and n < 2^30. */
double ab_dot_exact(const float *a, const float *b, int64_t n);

AB_END_DECLS

#endif
