/* Tests whether a subset of classified items is a random sample of them. Uses libm: no verdict of the gate
 * depends on it. */
#include "reports/stats/stats.h"

#include <math.h>
#include <stdlib.h>

/* ---- chi-squared ----------------------------------------------------------------------------- */

/* Regularised upper incomplete gamma function Q(a, x): the series of Abramowitz and Stegun 6.5.29 for P below
 * a + 1, the continued fraction 6.5.31 by Lentz's method above. */
static double upper_gamma(double a, double x) {
    const double tiny = 1e-300, front = exp(a * log(x) - x - lgamma(a));
    if (x < a + 1) {
        double term = 1 / a, sum = term;
        for (int n = 1; n < 100000 && term > sum * 1e-17; n++) sum += term *= x / (a + n);
        return 1 - front * sum;
    }
    double b = x + 1 - a, c = 1 / tiny, d = 1 / b, h = d;
    for (int n = 1; n < 100000; n++) {
        const double an = -n * (n - a);
        b += 2;
        d = an * d + b;
        c = b + an / c;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        if (fabs(c) < tiny) c = tiny;
        h *= d * c;
        if (fabs(d * c - 1) < 1e-15) break;
    }
    return front * h;
}

double ab_chi_squared_tail(int df, double x) { return x > 0 ? upper_gamma(0.5 * df, 0.5 * x) : 1; }

/* ---- tables ---------------------------------------------------------------------------------- */

enum { MOST_CLASSES = 256 };

typedef struct counted {
    double part, all;
} counted;

static int fewest_first(const void *a, const void *b) {
    const counted *x = a, *y = b;
    return (x->all > y->all) - (x->all < y->all);
}

/* Pools the rarest classes until each has at least `least` in total; returns the number of remaining
 * classes. */
static int pool(counted *class, int n, double least) {
    int first = 0;
    qsort(class, (size_t)n, sizeof *class, fewest_first);
    while (first + 1 < n && class[first].all < least) {
        class[first + 1].part += class[first].part;
        class[first + 1].all += class[first].all;
        first++;
    }
    for (int i = first; i < n; i++) class[i - first] = class[i];
    return n - first;
}

static double log_choose(double n, double k) { return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1); }

/* Sum over all tables with the same margins that are at most as likely. */
static double fisher(const counted *class, double part, double all) {
    const double slack = 1e-7, low = fmax(0, part - class[1].all), high = fmin(part, class[0].all);
    const double whole = log_choose(all, part);
    double seen = log_choose(class[0].all, class[0].part) + log_choose(class[1].all, class[1].part) - whole;
    double sum = 0;
    for (double k = low; k <= high; k++) {
        const double own = log_choose(class[0].all, k) + log_choose(class[1].all, part - k) - whole;
        if (own <= seen + slack) sum += exp(own);
    }
    return fmin(sum, 1);
}

static double pearson(const counted *class, int n, double part, double all) {
    double sum = 0;
    for (int i = 0; i < n; i++) {
        const double expected = class[i].all * part / all, apart = class[i].part - expected;
        sum += apart * apart / expected + apart * apart / (class[i].all - expected);
    }
    return ab_chi_squared_tail(n - 1, sum);
}

double ab_sample_of_classes_p(const double *part, const double *all, int classes) {
    const double expected = 5;
    counted class[MOST_CLASSES];
    double in_part = 0, in_all = 0;
    int met = 0;
    for (int c = 0; c < classes && met < MOST_CLASSES; c++) {
        if (!(all[c] > 0)) continue;
        class[met++] = (counted){part[c], all[c]};
        in_part += part[c];
        in_all += all[c];
    }
    if (met < 2 || !(in_part > 0) || !(in_part < in_all)) return (double)NAN;
    if (met > 2) met = pool(class, met, expected * in_all / in_part);
    if (met < 2) return (double)NAN;
    return met == 2 ? fisher(class, in_part, in_all) : pearson(class, met, in_part, in_all);
}
