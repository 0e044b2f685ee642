/* The incomplete beta function and the binomial interval of a fraction of a possibly fractional number of
 * values. Uses libm: no verdict of the gate depends on it. */
#include "reports/stats/stats.h"

#include <math.h>

/* Continued fraction of Abramowitz and Stegun 26.5.8 by Lentz's method. */
static double fraction(double a, double b, double x) {
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1), h;
    d = 1 / (fabs(d) < tiny ? tiny : d);
    h = d;
    for (int m = 1; m < 200000; m++) {
        const double m2 = 2.0 * m, even = m * (b - m) * x / ((a + m2 - 1) * (a + m2)),
                     odd = -(a + m) * (a + b + m) * x / ((a + m2) * (a + m2 + 1));
        d = 1 + even * d;
        c = 1 + even / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        h *= d * c;
        d = 1 + odd * d;
        c = 1 + odd / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        h *= d * c;
        if (fabs(d * c - 1) < 1e-14) break;
    }
    return h;
}

double ab_beta_below(double a, double b, double x) {
    if (x <= 0) return 0;
    if (x >= 1) return 1;
    const double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * fraction(a, b, x) / a : 1 - front * fraction(b, a, 1 - x) / b;
}

static double beta_quantile(double a, double b, double p) {
    double low = 0, high = 1;
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        if (ab_beta_below(a, b, middle) < p)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

void ab_binomial_interval(double share, double n, double confidence, double *low, double *high) {
    const double k = share * n, side = (1 - confidence) / 2;
    *low = k <= 0 ? 0 : beta_quantile(k, n - k + 1, side);
    *high = k >= n ? 1 : beta_quantile(k + 1, n - k, 1 - side);
}
