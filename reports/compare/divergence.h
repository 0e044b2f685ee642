/* First divergence: two recorded traces (`ampbench run --trace`) side by side, and the first tensor whose
 * difference is more than rounding explains.
 *
 * The distance of two tensors follows from projections on 8 random signs, within a factor of two. What
 * rounding explains at a tensor is at most C times the sum of u max(1, growth) sqrt(1 + ops run so far): u is
 * the unit roundoff of the coarser of the two cells, and the noise floor's own trace (O0 again with every
 * weight moved by one ulp) tells how much a relative perturbation of 2^-24 has grown here; sqrt(d), backward,
 * of every relu and max pool passed in this step whose outputs differ by d: rounding moves values across the
 * kink, a share of about d of them, and each flips a whole gradient value; for a parameter, what rounding
 * explained of its last gradients times how far they moved it (a bias that started at 0 is all update). C =
 * 4; sound pairs of levels stay below 0.5 of the bound (docs/decisions). A tensor whose bound exceeds 1/2 is
 * judged only if it differs by more than that. */
#ifndef AB_REPORTS_COMPARE_DIVERGENCE_H
#define AB_REPORTS_COMPARE_DIVERGENCE_H

#include "kernels/core/status.h"

#include <cjson/cJSON.h>
#include <stdio.h>

AB_BEGIN_DECLS

/* With other NULL: every traced cell of `base` against the O0 cell of its seed. Else: every traced cell of
 * `other` against the cell of `base` with the same id, or the only one that differs in level, scale or
 * device. *result: array of objects {base_cell, cell, compared, identical, unjudged, calibrated, verdict,
 * step, tensor, op, pass, difference, bound, largest_share, text}; verdict: identical, rounding, diverged or
 * not_traced. AB_INPUT if no cell was traced. */
AB_MUST_CHECK ab_status ab_divergence(const cJSON *base, const cJSON *other, cJSON **result);

/* The result for people. */
void ab_divergence_print(const cJSON *result, FILE *out);

AB_END_DECLS

#endif
