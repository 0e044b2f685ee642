/* Histograms of exponents as a record keeps them of a probed tensor: {"first", "counts"}, powers of two. */
#ifndef AB_REPORTS_RECORD_EXPONENTS_H
#define AB_REPORTS_RECORD_EXPONENTS_H

#include "kernels/format/format.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Non-zero values, and about their sum of squares: those of one exponent count as equal, so only ratios mean
 * anything. */
typedef struct ab_exponent_mass {
    double count, energy;
} ab_exponent_mass;

/* Of all values of a tensor of probes.tensors. */
ab_exponent_mass ab_exponents_all(const cJSON *tensor);

/* Of those that a cast to `format` flushes to zero when all are first scaled by 2^octaves. Ties at half the
 * smallest subnormal, which the histogram does not tell apart, count as kept. */
ab_exponent_mass ab_exponents_flushed(const cJSON *tensor, const ab_format *format, double octaves);

AB_END_DECLS

#endif
