/* Sums over evenly spaced rows of a stored tensor, a row being its last dimension: how large its values are,
 * and how many of its units (positions in a row) are zero in all of these rows. Tensors may be on any device,
 * as in extremes.h; the bits of the sums do not depend on it. */
#ifndef AB_KERNELS_BACKEND_ROW_SUMS_H
#define AB_KERNELS_BACKEND_ROW_SUMS_H

#include "kernels/backend/reductions.h"

AB_BEGIN_DECLS

/* Row i of `rows` is row i * there / rows of the tensor's `there`. At least one dimension, at most
 * AB_ROW_UNITS units, a floating-point format. A tensor that cannot be read gives zeros. */
ab_row_sums ab_row_sums_of(const ab_tensor *tensor, int64_t rows);

AB_END_DECLS

#endif
