/* The largest finite magnitude of a stored tensor, and counts of inf and NaN: one pass over the bits, memory
 * bound if all values are finite. A census (kernels/census/census.h) counts more at a higher cost. */
#ifndef AB_PROBES_EXTREMES_H
#define AB_PROBES_EXTREMES_H

#include "kernels/ops/tensor.h"

AB_BEGIN_DECLS

typedef struct ab_extremes {
    double largest; /* finite magnitude; 0 if there is none */
    int64_t infinite, nan;
} ab_extremes;

/* Any format; integers count as finite and have no largest. The tensor must be host-readable. */
ab_extremes ab_extremes_of(const ab_tensor *tensor);
bool ab_extremes_finite(const ab_tensor *tensor);

/* Whether the first `front` values, at most 32, of every row (first dimension) are finite. */
bool ab_extremes_rows_finite(const ab_tensor *tensor, int front);

/* Writes the indices of the first non-finite values, at most `most`; returns their number. */
int ab_extremes_places(const ab_tensor *tensor, int64_t *place, int most);

AB_END_DECLS

#endif
