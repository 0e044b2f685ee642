/* Statistics of the gate: ranks, exact distributions, quality of a series of times.
 *
 * Every number that a verdict compares is computed with + - * / sqrt only, in a fixed order, so that the
 * same data give the same bits with every compiler (-ffp-contract=off). Logarithms are avoided by working
 * on ratios: the median of (ln r_i + ln r_j) / 2 is that of sqrt(r_i r_j). Display-only numbers (power,
 * detectable effects) use libm. Sources: Hodges and Lehmann 1963; Wilcoxon 1945; Mann and Whitney 1947;
 * Holm 1979; Clopper and Pearson 1934; Schuirmann 1987 (two one-sided tests); Abramowitz and Stegun
 * 26.7.3-4 (Student's t). Nothing here reads a document. */
#ifndef AB_REPORTS_STATS_STATS_H
#define AB_REPORTS_STATS_STATS_H

#include "kernels/core/status.h"

#include <stdbool.h>

AB_BEGIN_DECLS

enum { AB_STATS_MAX_PAIRS = 1000, AB_STATS_MAX_UNPAIRED = 100 };

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Median of n >= 1 values; sorts them in place. */
double ab_stats_median(double *value, int n);

/* P(W >= w) for Wilcoxon's signed-rank sum of n pairs without a shift; exact; 1 <= n <= AB_STATS_MAX_PAIRS.
 */
AB_MUST_CHECK ab_status ab_signed_rank_tail(int n, double w, double *p);
/* Largest k with P(W <= k) <= alpha; -1: no k. */
AB_MUST_CHECK ab_status ab_signed_rank_critical(int n, double alpha, int *k);

/* Largest k with P(U <= k) <= alpha for the rank sum U of m against n values, each at most
 * AB_STATS_MAX_UNPAIRED; -1: no k. */
AB_MUST_CHECK ab_status ab_rank_sum_critical(int m, int n, double alpha, int *k);

/* Ratio of `other` to `base`. */
typedef struct ab_ratio {
    int n, n_other; /* pairs; unpaired: values of each side */
    double ratio;   /* Hodges-Lehmann */
    double low,
        high; /* one-sided bounds, each at confidence 1 - alpha; 0 and HUGE_VAL if n cannot reach alpha */
    double p_above; /* p of "the ratio is at most 1 + guard" */
    double p_below; /* p of "the ratio is at least 1 / (1 + guard)" */
    double p_least; /* the smallest p that n can give */
} ab_ratio;

/* All values must be positive and finite; pairs are (base[i], other[i]). Ties with the guard count against
 * a change. */
AB_MUST_CHECK ab_status ab_ratio_paired(const double *base, const double *other, int n, double alpha,
                                        double guard, ab_ratio *result);
AB_MUST_CHECK ab_status ab_ratio_unpaired(const double *base, int n, const double *other, int n_other,
                                          double alpha, double guard, ab_ratio *result);

/* Hodges-Lehmann shift of n paired differences, and p of "the shift is at most `guard`". */
AB_MUST_CHECK ab_status ab_shift_paired(const double *difference, int n, double guard, double *shift,
                                        double *p_above);

/* Holm's adjusted p-values: adjusted[i] for p[i]. */
AB_MUST_CHECK ab_status ab_holm(const double *p, int n, double *adjusted);

/* Returns p <= alpha. An alpha may be reached exactly (2^-n, 1/20); a summed distribution misses it by a
 * few ulps, which counts as reached. */
bool ab_is_significant(double p, double alpha);

/* Fewest pairs whose smallest p (2^-n) is at most `alpha`. */
int ab_pairs_needed(double alpha);

/* ---- distributions --------------------------------------------------------------------------- */

/* P(X >= k) for X binomial (n, p). */
double ab_binomial_tail(int n, int k, double p);
/* Clopper-Pearson interval of k / n at `confidence`. */
void ab_clopper_pearson(int k, int n, double confidence, double *low, double *high);
/* P(X <= x) of the beta distribution, and the Clopper-Pearson interval for a number of values that may be
 * fractional. */
double ab_beta_below(double a, double b, double x);
void ab_binomial_interval(double share, double n, double confidence, double *low, double *high);
/* P(X > x) of chi-squared with `df` >= 1 degrees of freedom. Display only. */
double ab_chi_squared_tail(int df, double x);
/* p-value of the hypothesis that the classes of a subset are those of a random sample of the whole:
 * part[c] of all[c] members of class c, c < classes <= 256. Classes with fewer than 5 expected in the
 * subset are pooled. Two classes: Fisher's exact test (1934), two-sided; more: Pearson's chi-squared
 * (1900) of the table of subset and rest. NAN if fewer than two remain. Display only. */
double ab_sample_of_classes_p(const double *part, const double *all, int classes);
/* P(T > t) of Student's t with `df` >= 1 degrees of freedom, and its upper `alpha` point (0 < alpha <= 0.5).
 */
double ab_student_tail(int df, double t);
double ab_student_point(int df, double alpha);
/* Upper `alpha` point of the normal distribution. Display only. */
double ab_normal_point(double alpha);

/* Two one-sided tests on n >= 2 paired differences. */
typedef struct ab_tost {
    int n;
    double mean, sd, low,
        high; /* interval of the mean at confidence 1 - 2 alpha; inside +-margin: equivalent */
    double p; /* p of "the mean is outside +-margin" */
    bool equivalent, different; /* p <= alpha; zero is outside the interval */
    double power; /* power to show equivalence at a true difference of 0 with this sd; display only */
    int n_needed; /* for a power of 0.8; 0: more than 1000; display only */
} ab_tost;
void ab_tost_paired(const double *difference, int n, double margin, double alpha, ab_tost *result);
double ab_tost_power(int n, double sd, double margin, double alpha);

/* Smallest true slow-down detected with probability `power`, given the bounds of a ratio at one-sided
 * `alpha` and a test at `test_alpha`; as a fraction (0.031 = 3.1 %); HUGE_VAL if n cannot reach alpha.
 * Display only. */
double ab_detectable(const ab_ratio *ratio, double alpha, double test_alpha, double guard, double tolerance,
                     double power);

/* ---- series ---------------------------------------------------------------------------------- */

typedef struct ab_robust {
    double centre, sigma; /* median; 1.4826 MAD, or IQR / 1.349 if that is 0, or `tick` */
} ab_robust;
/* Median and robust spread of value[n]; tick: the resolution of the clock. AB_NO_MEMORY. */
AB_MUST_CHECK ab_status ab_stats_robust(const double *value, int n, double tick, ab_robust *result);

/* Number of leading warm-up values: from there on, the median of 5 stays within 2 robust sigma of the last
 * half. At most 3 in 10; *never_steady: the limit was reached. 0 for fewer than 10 values. */
AB_MUST_CHECK ab_status ab_stats_warmup(const double *value, int n, int *warmup, bool *never_steady);

/* Number of values more than 10 robust sigma from the median. */
AB_MUST_CHECK ab_status ab_stats_outliers(const double *value, int n, int *outliers);

/* Detects two groups of at least 3 values and 20 % each: the widest gap between such groups in the sorted
 * values exceeds 5 robust sigma of the wider group. `mode` receives the groups' medians. */
AB_MUST_CHECK ab_status ab_stats_bimodal(const double *value, int n, bool *bimodal, double mode[2]);

AB_END_DECLS

#endif
