/* The largest finite magnitude of a stored tensor, and how many values are infinite or no numbers: one pass
 * over bits, memory bound where everything is finite. A census (kernels/census/census.h) says more and costs
 * more. */
#ifndef AB_PROBES_EXTREMES_H
#define AB_PROBES_EXTREMES_H

#include "kernels/ops/tensor.h"

AB_BEGIN_DECLS

typedef struct ab_extremes {
    double largest; /* of the finite magnitudes; 0 without */
    int64_t infinite, nan;
} ab_extremes;

/* Of any format; integers are finite and have no largest. The host must be able to read the tensor. */
ab_extremes ab_extremes_of(const ab_tensor *tensor);
bool ab_extremes_finite(const ab_tensor *tensor);

/* Writes the places of the first values that are not finite, at most `most` of them; returns how many. */
int ab_extremes_places(const ab_tensor *tensor, int64_t *place, int most);

AB_END_DECLS

#endif
