/* The product of two square matrices by the library, with one of them packed beforehand: besides the ops'
 * own code a measure of what the machine's arithmetic units reach. */
#ifndef AB_KERNELS_OPS_PRODUCT_SQUARE_H
#define AB_KERNELS_OPS_PRODUCT_SQUARE_H

#include "kernels/core/status.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

typedef struct ab_square ab_square;

/* c = a b^T of `side` rows and columns; a and b, of small numbers, are stored in `format`, c in fp32. *square
 * is NULL if the library has no fast implementation, or is not built in. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_square_open(int64_t side, const ab_format *format, ab_square **square);

/* Computes c with all threads. */
AB_MUST_CHECK ab_status ab_square_run(ab_square *square);

/* c, [side, side], of the last run; valid until the square is closed. */
const float *ab_square_result(const ab_square *square);

void ab_square_close(ab_square *square); /* NULL is a no-op */

/* Element i of a and of b, row by row: exact in every format. */
float ab_square_element(int64_t i);
/* A matrix of these elements, stored in `format`; the caller frees it. AB_NO_MEMORY, and *matrix is NULL. */
AB_MUST_CHECK ab_status ab_square_matrix(int64_t side, const ab_format *format, void **matrix);

AB_END_DECLS

#endif
