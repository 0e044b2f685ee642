/* Distributions of the largest value per step: three are fitted, and the best fit of the tail is selected.
 * Pure arithmetic, independent of documents and loss scales.
 *
 *   normal   maximum likelihood (with censored values Tobin 1958, by expectation-maximisation)
 *   Gumbel   L-moments (Hosking 1990); with censored values maximum likelihood
 *   Pareto   peaks over a threshold: the share above it times a generalised Pareto distribution of
 *            the excess, maximum likelihood with shape >= -1/2 (Pickands 1975, Smith 1985); below
 *            the threshold the empirical distribution
 *
 * Of a censored value only a lower bound is known: the largest value of a step that overflowed was at least
 * this. Counting it as exact would make every distribution too narrow; counting it as infinite, none would
 * fit. */
#ifndef AB_REPORTS_ADVISE_EXTREMES_H
#define AB_REPORTS_ADVISE_EXTREMES_H

#include "reports/advise/scale_advice.h"

AB_BEGIN_DECLS

enum { AB_EXTREMES_TAIL = 5, AB_EXTREMES_LEAST_PEAKS = 8 }; /* one value in five is above the threshold */

typedef enum ab_extreme_kind {
    AB_EXTREME_NORMAL,
    AB_EXTREME_GUMBEL,
    AB_EXTREME_PARETO,
    AB_EXTREME_KINDS,
    AB_EXTREME_WEIGHTED = AB_EXTREME_KINDS /* weighted mixture of all three */
} ab_extreme_kind;
const char *ab_extreme_name(ab_extreme_kind kind); /* "normal", ... */

typedef struct ab_normal_law {
    double mu, sigma;
} ab_normal_law;

/* Of the excess y >= 0 above a threshold: P(Y > y) = (1 + shape y / scale)^(-1/shape). */
typedef struct ab_pareto_law {
    double scale, shape;
} ab_pareto_law;

/* `censored` may be NULL; n >= 2. sigma or beta is 0 if all values are equal. */
ab_normal_law ab_normal_fit(const double *value, const bool *censored, int n);
ab_gumbel ab_gumbel_fit_censored(const double *value, const bool *censored, int n);
/* Excesses must be positive, at least one of them uncensored. */
ab_pareto_law ab_pareto_fit(const double *excess, const bool *censored, int n);

/* The probability that a draw lies above x. */
double ab_normal_exceeds(const ab_normal_law *law, double x);
double ab_gumbel_exceeds(const ab_gumbel *law, double x);
double ab_pareto_exceeds(const ab_pareto_law *law, double excess);

typedef struct ab_extremes {
    int n, censored, peaks; /* number of values, of censored ones, of those above the threshold */
    double spread;          /* largest minus smallest; 0: nothing is fitted */
    ab_normal_law normal;
    ab_gumbel gumbel;
    ab_pareto_law pareto;
    bool has_pareto; /* enough peaks */
    double threshold;
    double
        score[AB_EXTREME_KINDS]; /* log likelihood of the peaks, conditional on exceeding the threshold; minus
                                    2 for Pareto, whose two parameters were fitted to the peaks alone */
    ab_extreme_kind chosen;      /* the highest score */
    double weight[AB_EXTREME_KINDS]; /* Akaike weights from the scores; sum 1 */
    const double *sorted;            /* borrowed from the caller */
} ab_extremes;

/* Sorts both arrays by value; `value` must outlive the result. n >= 2. */
void ab_extremes_fit(double *value, bool *censored, int n, ab_extremes *extremes);

/* P(X > x) by one distribution or the weighted mixture; Gumbel is used if Pareto was not fitted. */
double ab_extremes_exceeds(const ab_extremes *extremes, ab_extreme_kind kind, double x);

AB_END_DECLS

#endif
