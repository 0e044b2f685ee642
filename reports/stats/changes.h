/* Where a series changed its level.
 *
 * Method: optimal partitioning (Jackson et al. 2005, the exact search that PELT prunes; Killick, Fearnhead
 * and Eckley 2012) of a series into segments of constant median. The cost of a segment is the sum of
 * distances to its median over sigma, so that single outliers do not count; every further segment costs a
 * penalty of AB_CHANGES_PENALTY ln n. sigma is robust and blind to changes of level: median |difference of
 * neighbours| / (0.6745 sqrt 2). Segments have at least AB_CHANGES_LEAST values: a change is reported once
 * that many runs confirm it. Changes smaller than a guard are merged away, the smallest first. Nothing is
 * drawn at random: the same series gives the same changes.
 *
 * Measured on made-up series (sigma 2 %, guard 1 %, 300 to 1000 each): a change is found in a series that has
 * none in 1.4 % of the cases at n = 6, 0.6 % at 10 and under 0.1 % from 20 on; in 1 to 5 % with neighbours
 * correlated by 0.5. A step of 5 % in the middle is found in 45 % at n = 20 and 95 % at 50, one of 10 % in 88
 * % at 10 and always from 50 on. */
#ifndef AB_REPORTS_STATS_CHANGES_H
#define AB_REPORTS_STATS_CHANGES_H

#include "kernels/core/status.h"

AB_BEGIN_DECLS

enum { AB_CHANGES_LEAST = 3, AB_CHANGES_MOST = 1000 };

#define AB_CHANGES_PENALTY 4.0

typedef struct ab_segment {
    int first, count; /* indices of the series */
    double median;
} ab_segment;

/* Segments of `value`, n (1 to AB_CHANGES_MOST) positive finite numbers, on their logarithms; segment[n] is
 * room enough. `guard`: least relative change between neighbours, e.g. 0.03. */
AB_MUST_CHECK ab_status ab_changes_find(const double *value, int n, double guard, ab_segment *segment,
                                        int *count);

/* Segments of equal values: for numbers that do not scatter. */
void ab_changes_exact(const double *value, int n, ab_segment *segment, int *count);

AB_END_DECLS

#endif
