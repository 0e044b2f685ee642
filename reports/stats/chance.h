/* How large a gap between two runs must be to be more than chance, from a few runs that differ by chance
 * only. Reads no document. */
#ifndef AB_REPORTS_STATS_CHANCE_H
#define AB_REPORTS_STATS_CHANCE_H

#include "kernels/core/compiler.h"

AB_BEGIN_DECLS

enum { AB_CHANCE_DRAWS_MOST = 20 };

/* draw[n]: differences of n runs from one baseline, which chance alone made; n >= 1. Returns the size that
 * the difference of one more such run from the same baseline exceeds with probability 1/20: the root mean
 * square of the draws times a factor, 11.03 for one draw, 3.84 for two, 2.89 for three, towards 1.96.
 *
 * The factor c(n): final losses are independent and normal with one variance, so the differences from a
 * common baseline are correlated by 1/2. P(|g| > c rms) is that of a quadratic form in normal variables being
 * positive, with one positive eigenvalue l+, one negative l- and n - 1 times -a, where a = c^2 / n,
 * l+- = (2 - a (1 + n) +- sqrt((2 - a (1 + n))^2 + 4 a (n + 2))) / 2; by Imhof's integral (Biometrika 48,
 * 1961). For n = 1, g / draw is Cauchy with centre 1/2 and half width sqrt(3)/2. More than 20 draws count
 * as 20. */
double ab_chance_gap(const double *draw, int n);

AB_END_DECLS

#endif
