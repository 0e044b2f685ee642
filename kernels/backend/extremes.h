/* The largest finite magnitude of a stored tensor, and counts of inf and NaN: one pass over the bits, memory
 * bound if all values are finite. A census (kernels/census/census.h) counts more at a higher cost.
 *
 * Tensors may be on any device. A device with reductions (reductions.h) computes them where the tensor is,
 * with the same results; values of others are downloaded. A tensor that cannot be read counts as zeros: the
 * device's error is that of the next call that waits for it. */
#ifndef AB_KERNELS_BACKEND_EXTREMES_H
#define AB_KERNELS_BACKEND_EXTREMES_H

#include "kernels/backend/reductions.h"

AB_BEGIN_DECLS

/* Any format; integers count as finite and have no largest. */
ab_tensor_extremes ab_extremes_of(const ab_tensor *tensor);
bool ab_extremes_finite(const ab_tensor *tensor);

/* The same of several tensors of one device, which is asked once: found[count]. */
void ab_extremes_of_all(const ab_tensor *const *tensor, int count, ab_tensor_extremes *found);

/* Whether the first `front` values, at most 32, of every row (first dimension) are finite. Host tensors
 * only. */
bool ab_extremes_rows_finite(const ab_tensor *tensor, int front);

/* Writes the indices of the first non-finite values, at most `most`, in ascending order; returns their
 * number. */
int ab_extremes_places(const ab_tensor *tensor, int64_t *place, int most);

/* Values at n places of a floating tensor in any memory, widened to fp32. */
AB_MUST_CHECK ab_status ab_elements_of(const ab_tensor *tensor, const int64_t *place, int64_t n,
                                       float *values);

AB_END_DECLS

#endif
