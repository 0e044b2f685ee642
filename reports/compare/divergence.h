/* First divergence: aligns two recorded traces (`ampbench run --trace`) and finds the first tensor whose
 * difference exceeds what rounding explains.
 *
 * The distance of two tensors is estimated from projections on 8 random sign vectors, within a factor of
 * two. Rounding explains at most C times the sum of:
 * - u max(1, growth) sqrt(1 + ops run so far). u is the unit roundoff of the coarser cell; growth is the
 *   growth of a relative perturbation of 2^-24 up to this tensor, from the trace of the perturbed baseline
 *   (O0 with every weight moved by one ulp);
 * - in the backward pass, sqrt(sum of d) over all relu and max pool ops passed in this step, where d is
 *   the distance of an op's outputs: rounding moves a fraction of about d of the values across the kink,
 *   and each flips a whole gradient value;
 * - for a parameter, what rounding explained of its last gradients times the relative size of their update
 *   (a bias initialised to 0 consists of updates only).
 *
 * C = 4; sound pairs of levels stay below 0.5 of the bound (docs/decisions). A tensor whose bound reaches
 * 1/2 is judged only if its difference exceeds the bound. */
#ifndef AB_REPORTS_COMPARE_DIVERGENCE_H
#define AB_REPORTS_COMPARE_DIVERGENCE_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* If other is NULL: compares every traced cell of `base` with the O0 cell of its seed. Else: every traced
 * cell of `other` with the cell of `base` with the same id, or the only one that differs in level, scale
 * or device. *result: array of objects {base_cell, cell, compared, identical, unjudged, calibrated,
 * verdict, step, tensor, op, pass, difference, bound, largest_share, text}, owned by the caller; verdict:
 * identical, rounding, diverged or not_traced. AB_INPUT if no cell was traced. */
AB_MUST_CHECK ab_status ab_divergence(const cJSON *base, const cJSON *other, cJSON **result);

/* Prints the result as text. */
void ab_divergence_print(const cJSON *result, FILE *out);

AB_END_DECLS

#endif
