/* Binomial, Student's t, equivalence, power. Decisions depend on the first two, which use + - * / sqrt
 * only; power and detectable effects are display-only and use libm. */
#include "reports/stats/stats.h"

#include <math.h>

static const double pi = 3.141592653589793;

/* ---- binomial -------------------------------------------------------------------------------- */

double ab_binomial_tail(int n, int k, double p) {
    if (k <= 0) return 1;
    if (k > n || p <= 0) return 0;
    if (p >= 1) return 1;
    int mode = (int)((n + 1) * p);
    if (mode > n) mode = n;
    double odds = p / (1 - p), below = 0, above = 0, weight = 1; /* relative to the mode's weight of 1 */
    for (int i = mode; i <= n && weight > 0; i++) {
        if (i >= k)
            above += weight;
        else
            below += weight;
        weight *= odds * (n - i) / (i + 1);
    }
    weight = mode / (odds * (n - mode + 1));
    for (int i = mode - 1; i >= 0 && weight > 0; i--) {
        if (i >= k)
            above += weight;
        else
            below += weight;
        weight *= i / (odds * (n - i + 1));
    }
    return above / (above + below);
}

/* Returns the p in (0, 1) at which a tail that increases with p reaches `wanted`. */
static double solve_tail(int n, int k, double wanted) {
    double low = 0, high = 1;
    for (int i = 0; i < 80; i++) {
        double middle = (low + high) / 2;
        if (ab_binomial_tail(n, k, middle) < wanted)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

void ab_clopper_pearson(int k, int n, double confidence, double *low, double *high) {
    double side = (1 - confidence) / 2;
    *low = k == 0 ? 0 : solve_tail(n, k, side);
    *high = k == n ? 1 : solve_tail(n, k + 1, 1 - side);
}

/* ---- Student's t ----------------------------------------------------------------------------- */

/* arctan of x >= 0: after halving the angle four times, 12 terms of the series suffice. */
static double arc_tangent(double x) {
    for (int i = 0; i < 4; i++) x /= 1 + sqrt(1 + x * x);
    double square = x * x, power = x, sum = 0;
    for (int i = 0; i < 14; i++) {
        sum += (i % 2 ? -power : power) / (2 * i + 1);
        power *= square;
    }
    return 16 * sum;
}

double ab_student_tail(int df, double t) {
    if (t < 0) return 1 - ab_student_tail(df, -t);
    if (!(t <= 1e150)) return 0;
    double length = df + t * t, sine = t / sqrt(length), cosine2 = df / length;
    bool odd = df % 2 != 0;
    double term = odd ? sqrt(cosine2) : 1, sum = df > 1 ? term : 0; /* Abramowitz and Stegun 26.7.3, 26.7.4 */
    for (int i = odd ? 3 : 2; i <= df - 2; i += 2) {
        term *= cosine2 * (i - 1) / i;
        sum += term;
    }
    double inside = odd ? 2 / pi * (arc_tangent(t / sqrt(df)) + sine * sum) : sine * sum;
    return inside < 1 ? (1 - inside) / 2 : 0;
}

double ab_student_point(int df, double alpha) {
    double low = 0, high = 1;
    while (ab_student_tail(df, high) > alpha && high < 1e15) high *= 2;
    for (int i = 0; i < 80; i++) {
        double middle = (low + high) / 2;
        if (ab_student_tail(df, middle) > alpha)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

/* ---- normal, display only -------------------------------------------------------------------- */

static double normal_below(double z) { return erfc(-z / sqrt(2.0)) / 2; }

double ab_normal_point(double alpha) {
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        double middle = (low + high) / 2;
        if (erfc(middle / sqrt(2.0)) / 2 > alpha)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

double ab_detectable(const ab_ratio *ratio, double alpha, double test_alpha, double guard, double tolerance,
                     double power) {
    if (!(ratio->low > 0) || !isfinite(ratio->high)) return HUGE_VAL;
    double spread = (log(ratio->high) - log(ratio->low)) / (2 * ab_normal_point(alpha));
    double reach = ab_normal_point(1 - power); /* negative for a power below a half */
    double by_test = log1p(guard) + (ab_normal_point(test_alpha) + reach) * spread;
    double by_size = log1p(tolerance) + reach * spread;
    return expm1(by_test > by_size ? by_test : by_size);
}

/* ---- equivalence ----------------------------------------------------------------------------- */

/* Integral over the sample's sd s of P(|mean| < margin - t s / sqrt(n)) at a true difference of 0. With x = s
 * / sd, nu x^2 is chi-squared; Simpson's rule. */
double ab_tost_power(int n, double sd, double margin, double alpha) {
    enum { STEPS = 400 };
    if (n < 2 || !(margin > 0)) return 0;
    if (!(sd > 0)) return 1;
    int df = n - 1;
    double error = sd / sqrt(n), t = ab_student_point(df, alpha), widest = margin / (t * error), sum = 0;
    double top = 1 + 10 / sqrt(2.0 * df);
    if (widest < top) top = widest;
    double constant = log(2.0) + 0.5 * df * log(0.5 * df) - lgamma(0.5 * df);
    for (int i = 0; i <= STEPS; i++) {
        double x = top * i / STEPS, weight = i == 0 || i == STEPS ? 1 : i % 2 ? 4 : 2;
        double density = x > 0 || df == 1 ? exp(constant - 0.5 * df * x * x) * pow(x, df - 1) : 0;
        sum += weight * density * (2 * normal_below((margin - t * error * x) / error) - 1);
    }
    return sum * top / (3 * STEPS);
}

static int seeds_needed(double sd, double margin, double alpha) {
    for (int n = 2; n <= 1000; n += n < 40 ? 1 : n / 20)
        if (ab_tost_power(n, sd, margin, alpha) >= 0.8) return n;
    return 0;
}

void ab_tost_paired(const double *difference, int n, double margin, double alpha, ab_tost *result) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) sum += difference[i];
    double mean = sum / n;
    for (int i = 0; i < n; i++) squares += (difference[i] - mean) * (difference[i] - mean);
    double sd = sqrt(squares / (n - 1)), error = sd / sqrt(n);
    double reach = ab_student_point(n - 1, alpha) * error;
    *result = (ab_tost){.n = n, .mean = mean, .sd = sd, .low = mean - reach, .high = mean + reach};
    double room = margin - fabs(mean);
    result->p = error > 0 ? ab_student_tail(n - 1, room / error) : room > 0 ? 0 : 1;
    result->equivalent = result->p <= alpha;
    result->different = result->low > 0 || result->high < 0;
    result->power = ab_tost_power(n, sd, margin, alpha);
    result->n_needed = seeds_needed(sd, margin, alpha);
}

/* The incomplete beta function and the binomial interval of a fraction of a possibly fractional number of
 * values. Uses libm: no verdict of the gate depends on it. */

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
