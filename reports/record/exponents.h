/* Exponent histograms of probed tensors as stored in a record: {"first", "counts"}, powers of two. */
#ifndef AB_REPORTS_RECORD_EXPONENTS_H
#define AB_REPORTS_RECORD_EXPONENTS_H

#include "kernels/format/format.h"

#include <cjson/cJSON.h>

AB_BEGIN_DECLS

/* Number of non-zero values and their approximate sum of squares. Values with the same exponent count as
 * equal, so only ratios of energies are meaningful. */
typedef struct ab_exponent_mass {
    double count, energy;
} ab_exponent_mass;

/* Mass of all values of a tensor of probes.tensors. */
ab_exponent_mass ab_exponents_all(const cJSON *tensor);

/* Mass of the values that a cast to `format` flushes to zero after scaling by 2^octaves. Ties at half the
 * smallest subnormal, which the histogram cannot distinguish, count as kept. */
ab_exponent_mass ab_exponents_flushed(const cJSON *tensor, const ab_format *format, double octaves);

AB_END_DECLS

#endif
