/* Rank statistics on ratios: Hodges-Lehmann estimates, exact tests, Holm. Only + - * / sqrt and comparisons.
 */
#include "reports/stats/stats.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double ab_stats_median(double *value, int n) {
    qsort(value, (size_t)n, sizeof *value, ascending);
    return n % 2 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

static ab_status no_memory(void) { return ab_fail(AB_NO_MEMORY, "statistics: out of memory"); }

/* ---- exact null distributions ---------------------------------------------------------------- */

/* p[v] for v = 0 .. most, symmetric; p NULL: `status` holds the error. */
typedef struct density {
    double *p;
    int most;
    ab_status status;
} density;

static density no_density(ab_status status) { return (density){NULL, 0, status}; }

/* P(W = w) for w = 0 .. n (n + 1) / 2, adding one pair at a time: each rank counts with probability 1/2. */
static density signed_rank_density(int n) {
    if (n < 1 || n > AB_STATS_MAX_PAIRS)
        return no_density(
            ab_fail(AB_INTERNAL, "statistics: expected 1 to %d pairs, found %d", AB_STATS_MAX_PAIRS, n));
    int top = n * (n + 1) / 2;
    double *f = calloc((size_t)top + 1, sizeof *f);
    if (!f) return no_density(no_memory());
    f[0] = 1;
    for (int rank = 1, reach = 0; rank <= n; rank++) {
        reach += rank;
        for (int w = reach; w >= 0; w--) f[w] = (f[w] + (w >= rank ? f[w - rank] : 0)) / 2;
    }
    return (density){f, top, AB_OK};
}

/* P(U = u) for u = 0 .. m n: the largest of all values belongs to the first side with probability m / (m +
 * n), and then counts n; row j holds the distribution for i and j values. */
static density rank_sum_density(int m, int n) {
    if (m < 1 || n < 1 || m > AB_STATS_MAX_UNPAIRED || n > AB_STATS_MAX_UNPAIRED)
        return no_density(ab_fail(AB_INTERNAL, "statistics: expected 1 to %d values a side, found %d and %d",
                                  AB_STATS_MAX_UNPAIRED, m, n));
    int top = m * n;
    size_t width = (size_t)top + 1;
    double *rows = calloc((size_t)(n + 1) * width, sizeof *rows), *f = malloc(width * sizeof *f);
    if (!rows || !f) {
        free(rows);
        free(f);
        return no_density(no_memory());
    }
    for (int j = 0; j <= n; j++) rows[(size_t)j * width] = 1; /* no value on the first side */
    for (int i = 1; i <= m; i++) {
        for (int j = 1; j <= n; j++) { /* row 0 is unchanged: no value on the second side */
            double *row = rows + (size_t)j * width;
            const double *left = row - width;
            for (int u = i * j; u >= 0; u--) /* row still holds (i - 1, j), left already (i, j - 1) */
                row[u] = (i * (u >= j ? row[u - j] : 0) + j * left[u]) / (i + j);
        }
    }
    memcpy(f, rows + (size_t)n * width, width * sizeof *f);
    free(rows);
    return (density){f, top, AB_OK};
}

/* Both densities are symmetric: P(X >= x) = P(X <= most - x). */
static double tail_of(const density *d, double x) {
    double sum = 0;
    for (int v = 0; v <= d->most - x; v++) sum += d->p[v];
    return sum < 1 ? sum : 1;
}

bool ab_is_significant(double p, double alpha) { return p <= alpha * (1 + 0x1p-40); }

static int critical_of(const density *d, double alpha) {
    double sum = 0;
    for (int k = 0; k <= d->most; k++) {
        sum += d->p[k];
        if (!ab_is_significant(sum, alpha)) return k - 1;
    }
    return d->most;
}

ab_status ab_signed_rank_tail(int n, double w, double *p) {
    density d = signed_rank_density(n);
    if (!d.p) return d.status;
    *p = tail_of(&d, w);
    free(d.p);
    return AB_OK;
}

ab_status ab_signed_rank_critical(int n, double alpha, int *k) {
    density d = signed_rank_density(n);
    if (!d.p) return d.status;
    *k = critical_of(&d, alpha);
    free(d.p);
    return AB_OK;
}

ab_status ab_rank_sum_critical(int m, int n, double alpha, int *k) {
    density d = rank_sum_density(m, n);
    if (!d.p) return d.status;
    *k = critical_of(&d, alpha);
    free(d.p);
    return AB_OK;
}

/* ---- ratios ---------------------------------------------------------------------------------- */

/* Computes the result from the sorted comparisons (squares of ratios if `squared`) and the null
 * distribution of the number that exceed a limit. */
static void conclude(double *sorted, int count, bool squared, const density *d, double alpha, double guard,
                     ab_ratio *result) {
    double limit = squared ? (1 + guard) * (1 + guard) : 1 + guard;
    int above = 0, below = 0, k = critical_of(d, alpha);
    qsort(sorted, (size_t)count, sizeof *sorted, ascending);
    for (int i = 0; i < count; i++) above += sorted[i] > limit, below += sorted[i] * limit < 1;
    double left = sorted[(count - 1) / 2], right = sorted[count / 2];
    double middle = left == right ? left : sqrt(left) * sqrt(right); /* the mean of two logarithms */
    result->ratio = squared ? sqrt(middle) : middle;
    result->low = k < 0 ? 0 : squared ? sqrt(sorted[k]) : sorted[k];
    result->high = k < 0 ? HUGE_VAL : squared ? sqrt(sorted[count - 1 - k]) : sorted[count - 1 - k];
    result->p_above = tail_of(d, above);
    result->p_below = tail_of(d, below);
    result->p_least = d->p[count];
}

ab_status ab_ratio_paired(const double *base, const double *other, int n, double alpha, double guard,
                          ab_ratio *result) {
    *result = (ab_ratio){.n = n, .n_other = n};
    density d = signed_rank_density(n);
    if (!d.p) return d.status;
    double *ratio = calloc((size_t)n, sizeof *ratio), *product = malloc((size_t)d.most * sizeof *product);
    bool ready = ratio && product;
    int count = 0;
    for (int i = 0; ready && i < n; i++) ratio[i] = other[i] / base[i];
    for (int i = 0; ready && i < n; i++)
        for (int j = i; j < n; j++) product[count++] = ratio[i] * ratio[j];
    if (ready) conclude(product, count, true, &d, alpha, guard, result);
    free(product);
    free(ratio);
    free(d.p);
    return ready ? AB_OK : no_memory();
}

ab_status ab_ratio_unpaired(const double *base, int n, const double *other, int n_other, double alpha,
                            double guard, ab_ratio *result) {
    *result = (ab_ratio){.n = n, .n_other = n_other};
    density d = rank_sum_density(n, n_other);
    if (!d.p) return d.status;
    double *quotient = malloc((size_t)d.most * sizeof *quotient);
    int count = 0;
    for (int i = 0; quotient && i < n; i++)
        for (int j = 0; j < n_other; j++) quotient[count++] = other[j] / base[i];
    if (quotient) conclude(quotient, count, false, &d, alpha, guard, result);
    ab_status status = quotient ? AB_OK : no_memory();
    free(quotient);
    free(d.p);
    return status;
}

ab_status ab_shift_paired(const double *difference, int n, double guard, double *shift, double *p_above) {
    density d = signed_rank_density(n);
    if (!d.p) return d.status;
    double *mean = malloc((size_t)d.most * sizeof *mean);
    int count = 0, above = 0;
    for (int i = 0; mean && i < n; i++)
        for (int j = i; j < n; j++) mean[count++] = (difference[i] + difference[j]) / 2;
    for (int i = 0; i < count; i++) above += mean[i] > guard;
    if (mean) *shift = ab_stats_median(mean, count);
    *p_above = tail_of(&d, above);
    ab_status status = mean ? AB_OK : no_memory();
    free(mean);
    free(d.p);
    return status;
}

/* ---- multiple tests -------------------------------------------------------------------------- */

ab_status ab_holm(const double *p, int n, double *adjusted) {
    bool *done = calloc((size_t)n + 1, sizeof *done);
    double floor = 0;
    if (!done) return no_memory();
    for (int rank = 0; rank < n; rank++) {
        int least = -1;
        for (int i = 0; i < n; i++)
            if (!done[i] && (least < 0 || p[i] < p[least])) least = i;
        double value = p[least] * (n - rank);
        if (value > floor) floor = value;
        adjusted[least] = floor < 1 ? floor : 1;
        done[least] = true;
    }
    free(done);
    return AB_OK;
}

int ab_pairs_needed(double alpha) {
    int n = 1;
    for (double p = 0.5; p > alpha && n < AB_STATS_MAX_PAIRS; p /= 2) n++;
    return n;
}

/* Tests whether a subset of classified items is a random sample of them. Uses libm: no verdict of the gate
 * depends on it. */

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
    for (int64_t i = 0; i <= (int64_t)(high - low); i++) {
        const double k = low + (double)i;
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
