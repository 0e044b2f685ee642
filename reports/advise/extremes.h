/* What the largest values of some steps say of the largest values of others: three laws, fitted side by side,
 * and which of them describes the tail best. Arithmetic on numbers; reads no document and knows no scale.
 *
 *   normal   maximum likelihood (Tobin 1958 where values are censored, by expectation-maximisation)
 *   Gumbel   L-moments (Hosking 1990); maximum likelihood where values are censored
 *   Pareto   peaks over a threshold: the share above it times a generalised Pareto law of the excess, maximum
 * likelihood with the shape at -1/2 or more (Pickands 1975, Smith 1985); below the threshold the share of the
 * values themselves
 *
 * A censored value is one of which only a lower bound is known: a step that overflowed says that its largest
 * value was at least this. Counting it as this would make every law too narrow; counting it as infinite, none
 * would fit. */
#ifndef AB_REPORTS_ADVISE_EXTREMES_H
#define AB_REPORTS_ADVISE_EXTREMES_H

#include "reports/advise/scale_advice.h"

AB_BEGIN_DECLS

enum { AB_EXTREMES_TAIL = 5, AB_EXTREMES_LEAST_PEAKS = 8 }; /* the threshold leaves one value in five */

typedef enum ab_extreme_kind {
    AB_EXTREME_NORMAL,
    AB_EXTREME_GUMBEL,
    AB_EXTREME_PARETO,
    AB_EXTREME_KINDS,
    AB_EXTREME_WEIGHTED = AB_EXTREME_KINDS /* all three by their weights */
} ab_extreme_kind;
const char *ab_extreme_name(ab_extreme_kind kind); /* "normal", ... */

typedef struct ab_normal_law {
    double mu, sigma;
} ab_normal_law;

/* Of the excess y >= 0 above a threshold: P(Y > y) = (1 + shape y / scale)^(-1/shape). */
typedef struct ab_pareto_law {
    double scale, shape;
} ab_pareto_law;

/* `censored` may be NULL; n >= 2. A spread of 0 says that all values are equal. */
ab_normal_law ab_normal_fit(const double *value, const bool *censored, int n);
ab_gumbel ab_gumbel_fit_censored(const double *value, const bool *censored, int n);
/* Positive excesses, at least one of them uncensored. */
ab_pareto_law ab_pareto_fit(const double *excess, const bool *censored, int n);

/* The probability that a draw lies above x. */
double ab_normal_exceeds(const ab_normal_law *law, double x);
double ab_gumbel_exceeds(const ab_gumbel *law, double x);
double ab_pareto_exceeds(const ab_pareto_law *law, double excess);

typedef struct ab_extremes {
    int n, censored, peaks; /* values; of them censored; above the threshold */
    double spread;          /* largest minus smallest; 0: no law is needed */
    ab_normal_law normal;
    ab_gumbel gumbel;
    ab_pareto_law pareto;
    bool has_pareto; /* enough peaks */
    double threshold;
    double
        score[AB_EXTREME_KINDS]; /* log likelihood of the peaks, given that they are above the threshold; the
                                    Pareto law, which was fitted to them alone, pays 2 for its parameters */
    ab_extreme_kind chosen;      /* the highest score */
    double weight[AB_EXTREME_KINDS]; /* by score (Akaike weights); they add up to 1 */
    const double *sorted;            /* borrowed */
} ab_extremes;

/* Sorts both arrays by value; `value` must outlive the result. n >= 2. */
void ab_extremes_fit(double *value, bool *censored, int n, ab_extremes *extremes);

/* P(X > x) by one of the laws, or by all of them; the Gumbel law stands in for a missing Pareto law. */
double ab_extremes_exceeds(const ab_extremes *extremes, ab_extreme_kind kind, double x);

AB_END_DECLS

#endif
