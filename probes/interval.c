/* Confidence intervals of sampled shares. */
#include "probes/interval.h"

#include <math.h>

static const double z = 1.959963984540054; /* 97.5 % point of the normal distribution */

/* 97.5 % point of Student's t; Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5) from 3 degrees of
 * freedom on. */
static double student(int64_t freedom) {
    if (freedom == 1) return 12.706204736432095;
    if (freedom == 2) return 4.302652729911275;
    double n = (double)freedom, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
    return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

void ab_share_add(ab_share_sums *sums, int64_t part, int64_t whole) {
    if (whole == 0) return;
    double p = (double)part, w = (double)whole;
    sums->steps++;
    sums->part += p;
    sums->whole += w;
    sums->part_part += p * p;
    sums->part_whole += p * w;
    sums->whole_whole += w * w;
}

static double clamp(double x) { return fmin(1, fmax(0, x)); }

/* Wilson, "Probable inference", J. Am. Stat. Assoc. 22 (1927). */
static ab_interval wilson(double share, double n) {
    double middle = (share + z * z / (2 * n)) / (1 + z * z / n);
    double half = z / (1 + z * z / n) * sqrt(share * (1 - share) / n + z * z / (4 * n * n));
    return (ab_interval){share, clamp(middle - half), clamp(middle + half)};
}

/* Half the width of the interval, from the variance between steps. */
static double between_steps(const ab_share_sums *s, double share, double unseen) {
    double m = (double)s->steps;
    double spread = s->part_part - 2 * share * s->part_whole + share * share * s->whole_whole;
    double variance = fmax(0, spread) * m / (m - 1) / (s->whole * s->whole);
    return student(s->steps - 1) * sqrt(variance * unseen);
}

ab_interval ab_share_interval(const ab_share_sums *sums, int64_t probed, int64_t total) {
    if (sums->steps == 0) return (ab_interval){0, 0, 1};
    double share = sums->part / sums->whole;
    if (total > 0 && probed >= total) return (ab_interval){share, share, share};
    if (sums->steps == 1) return (ab_interval){share, 0, 1};
    double unseen = total > 0 ? 1 - (double)probed / (double)total : 1;
    double half = between_steps(sums, share, unseen);
    ab_interval values = wilson(share, sums->whole);
    return (ab_interval){share, fmin(values.low, clamp(share - half)),
                         fmax(values.high, clamp(share + half))};
}
