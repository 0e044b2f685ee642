/* Distributions of extreme values: fits by maximum likelihood and L-moments. */
#include "reports/advise/extremes.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

static const double sqrt2 = 1.41421356237309505, log_sqrt_2pi = 0.91893853320467274;

static bool is_censored(const bool *censored, int i) { return censored && censored[i]; }

static int count_censored(const bool *censored, int n) {
    int count = 0;
    for (int i = 0; i < n; i++) count += is_censored(censored, i);
    return count;
}

const char *ab_extreme_name(ab_extreme_kind kind) {
    static const char *const name[] = {"normal", "gumbel", "pareto", "weighted"};
    return name[kind];
}

/* ---- normal ---------------------------------------------------------------------------------- */

/* phi(z) / P(Z > z); by its asymptotic series where both underflow. */
static double hazard(double z) {
    if (z > 25) return z + 1 / z - 2 / (z * z * z);
    return exp(-z * z / 2 - log_sqrt_2pi) / (erfc(z / sqrt2) / 2);
}

/* One step of expectation-maximisation. */
static ab_normal_law improve(const double *value, const bool *censored, int n, const ab_normal_law *law) {
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        double mean = value[i], variance = 0;
        if (is_censored(censored, i)) {
            const double z = (value[i] - law->mu) / law->sigma, h = hazard(z);
            mean = law->mu + law->sigma * h;
            variance = law->sigma * law->sigma * (1 + z * h - h * h);
        }
        sum += mean;
        squares += mean * mean + variance;
    }
    const double mu = sum / n;
    return (ab_normal_law){mu, sqrt(fmax(squares / n - mu * mu, 0))};
}

ab_normal_law ab_normal_fit(const double *value, const bool *censored, int n) {
    enum { MOST = 20000 };
    ab_normal_law law = {0, 0};
    double squares = 0;
    for (int i = 0; i < n; i++) law.mu += value[i] / n;
    for (int i = 0; i < n; i++) squares += (value[i] - law.mu) * (value[i] - law.mu) / n;
    law.sigma = sqrt(squares);
    if (count_censored(censored, n) == 0 || law.sigma == 0) return law;
    for (int i = 0; i < MOST; i++) {
        const ab_normal_law next = improve(value, censored, n, &law);
        const double moved = fabs(next.mu - law.mu) + fabs(next.sigma - law.sigma);
        law = next;
        if (moved <= 1e-13 * (fabs(law.mu) + law.sigma) || law.sigma == 0) break;
    }
    return law;
}

double ab_normal_exceeds(const ab_normal_law *law, double x) {
    if (law->sigma <= 0) return x < law->mu ? 1 : 0;
    return erfc((x - law->mu) / law->sigma / sqrt2) / 2;
}

/* ---- Gumbel ---------------------------------------------------------------------------------- */

double ab_gumbel_exceeds(const ab_gumbel *law, double x) {
    if (law->beta <= 0) return x < law->mu ? 1 : 0;
    return -expm1(-exp(-(x - law->mu) / law->beta));
}

/* Without censoring the likelihood has a closed form for the best mu, and its derivative by beta has one
 * zero. With censoring mu has no closed form: mu is found by bisection on the score for a given beta, beta by
 * golden-section search on the profile likelihood. */
typedef struct gumbel_sample {
    const double *value;
    const bool *censored;
    int n;
    double low, high; /* of the values */
} gumbel_sample;

/* beta * d log L / d mu; decreasing in mu. */
static double score_of_mu(const gumbel_sample *s, double mu, double beta) {
    double score = 0;
    for (int i = 0; i < s->n; i++) {
        const double t = exp(-(s->value[i] - mu) / beta);
        if (!is_censored(s->censored, i))
            score += 1 - t;
        else
            score += t < 1e-12 ? 1 : isinf(t) ? 0 : t * exp(-t) / -expm1(-t);
    }
    return score;
}

static double best_mu(const gumbel_sample *s, double beta) {
    double low = s->low - 60 * beta, high = s->high + 60 * beta;
    for (int i = 0; i < 200 && high - low > 1e-14 * (fabs(low) + fabs(high)); i++) {
        const double middle = (low + high) / 2;
        if (score_of_mu(s, middle, beta) > 0)
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

static double gumbel_likelihood(const gumbel_sample *s, double beta) {
    const double mu = best_mu(s, beta);
    double sum = 0;
    for (int i = 0; i < s->n; i++) {
        const double z = (s->value[i] - mu) / beta, t = exp(-z);
        if (is_censored(s->censored, i))
            sum += t < 1e-12 ? -z : log(-expm1(-t));
        else
            sum += -log(beta) - z - t;
    }
    return sum;
}

/* Golden-section search: the maximum of a unimodal `f` in [low, high]. */
static double golden(double (*f)(const void *, double), const void *context, double low, double high) {
    const double ratio = 0.61803398874989485;
    double a = high - ratio * (high - low), b = low + ratio * (high - low), fa = f(context, a),
           fb = f(context, b);
    for (int i = 0; i < 120 && high - low > 1e-13 * (fabs(low) + fabs(high)); i++) {
        if (fa >= fb) {
            high = b;
            b = a;
            fb = fa;
            a = high - ratio * (high - low);
            fa = f(context, a);
        } else {
            low = a;
            a = b;
            fa = fb;
            b = low + ratio * (high - low);
            fb = f(context, b);
        }
    }
    return (low + high) / 2;
}

static double gumbel_by_log_beta(const void *context, double log_beta) {
    return gumbel_likelihood(context, exp(log_beta));
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static ab_gumbel gumbel_by_moments(const double *value, int n) {
    ab_gumbel law = {0, 0};
    double *sorted = malloc((size_t)n * sizeof *sorted);
    if (!sorted) return law;
    for (int i = 0; i < n; i++) sorted[i] = value[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare_doubles);
    law = ab_gumbel_fit(sorted, n);
    free(sorted);
    return law;
}

ab_gumbel ab_gumbel_fit_censored(const double *value, const bool *censored, int n) {
    gumbel_sample sample = {value, censored, n, value[0], value[0]};
    if (count_censored(censored, n) == 0) return gumbel_by_moments(value, n);
    for (int i = 1; i < n; i++) {
        sample.low = fmin(sample.low, value[i]);
        sample.high = fmax(sample.high, value[i]);
    }
    const double spread = sample.high - sample.low;
    if (spread <= 0) return (ab_gumbel){value[0], 0};
    const double beta = exp(golden(gumbel_by_log_beta, &sample, log(spread / 1e3), log(spread * 10)));
    return (ab_gumbel){best_mu(&sample, beta), beta};
}

/* ---- Pareto ---------------------------------------------------------------------------------- */

typedef struct pareto_sample {
    const double *excess;
    const bool *censored;
    int n, exact; /* number of values, of uncensored ones */
    double mean, largest;
} pareto_sample;

/* theta = shape / scale; for a given theta the maximum likelihood shape is a mean of logarithms (Grimshaw
 * 1993, with censoring). */
static ab_pareto_law pareto_of(const pareto_sample *s, double theta) {
    double sum = 0;
    if (fabs(theta) * s->largest < 1e-9) return (ab_pareto_law){s->mean * s->n / s->exact, 0};
    for (int i = 0; i < s->n; i++) sum += log1p(theta * s->excess[i]);
    const double shape = sum / s->exact;
    return (ab_pareto_law){shape / theta, shape};
}

static double pareto_density_log(const ab_pareto_law *law, double y, bool censored) {
    if (fabs(law->shape) < 1e-12) return -y / law->scale - (censored ? 0 : log(law->scale));
    const double grown = log1p(law->shape * y / law->scale) / law->shape;
    return censored ? -grown : -grown * (1 + law->shape) - log(law->scale);
}

static double pareto_likelihood(const void *context, double theta) {
    const pareto_sample *s = context;
    const ab_pareto_law law = pareto_of(s, theta);
    double sum = 0;
    if (!(law.scale > 0) || law.shape < -0.5) return -DBL_MAX;
    for (int i = 0; i < s->n; i++) sum += pareto_density_log(&law, s->excess[i], is_censored(s->censored, i));
    return sum;
}

/* The best theta of a grid, then golden-section search between its neighbours. */
ab_pareto_law ab_pareto_fit(const double *excess, const bool *censored, int n) {
    enum { GRID = 160 };
    pareto_sample sample = {excess, censored, n, n - count_censored(censored, n), 0, 0};
    double theta[GRID + 1], best = -(double)INFINITY;
    int at = 0;
    for (int i = 0; i < n; i++) {
        sample.mean += excess[i] / n;
        sample.largest = fmax(sample.largest, excess[i]);
    }
    for (int i = 0; i <= GRID; i++) { /* theta times the largest from -0.9999 to about 1000 */
        theta[i] = (exp(-9.2 + 16.1 * i / GRID) - 1) / sample.largest;
        const double likelihood = pareto_likelihood(&sample, theta[i]);
        if (likelihood > best) {
            best = likelihood;
            at = i;
        }
    }
    return pareto_of(&sample, golden(pareto_likelihood, &sample, theta[at > 0 ? at - 1 : 0],
                                     theta[at < GRID ? at + 1 : GRID]));
}

double ab_pareto_exceeds(const ab_pareto_law *law, double excess) {
    if (excess <= 0) return 1;
    if (fabs(law->shape) < 1e-12) return exp(-excess / law->scale);
    const double grown = 1 + law->shape * excess / law->scale;
    return grown <= 0 ? 0 : pow(grown, -1 / law->shape);
}

/* ---- selection ------------------------------------------------------------------------------- */

static double exceeds_by_all(const ab_extremes *e, double x) {
    double p = 0;
    for (int kind = 0; kind < AB_EXTREME_KINDS; kind++)
        if (e->weight[kind] > 0) p += e->weight[kind] * ab_extremes_exceeds(e, (ab_extreme_kind)kind, x);
    return p;
}

double ab_extremes_exceeds(const ab_extremes *e, ab_extreme_kind kind, double x) {
    int above = 0;
    if (e->spread <= 0) return x < e->sorted[0] ? 1 : 0;
    if (kind == AB_EXTREME_WEIGHTED) return exceeds_by_all(e, x);
    if (kind == AB_EXTREME_NORMAL) return ab_normal_exceeds(&e->normal, x);
    if (kind == AB_EXTREME_GUMBEL || !e->has_pareto) return ab_gumbel_exceeds(&e->gumbel, x);
    if (x >= e->threshold) return (double)e->peaks / e->n * ab_pareto_exceeds(&e->pareto, x - e->threshold);
    while (above < e->n && e->sorted[e->n - 1 - above] > x) above++;
    return (double)above / e->n;
}

static double normal_density_log(const ab_normal_law *law, double x) {
    const double z = (x - law->mu) / law->sigma;
    return -z * z / 2 - log_sqrt_2pi - log(law->sigma);
}

static double gumbel_density_log(const ab_gumbel *law, double x) {
    const double z = (x - law->mu) / law->beta;
    return -z - exp(-z) - log(law->beta);
}

/* Scores the distributions on the peaks from `first` on, conditional on exceeding the threshold. */
static void judge(ab_extremes *e, const bool *censored, int first) {
    const double u = e->threshold, normal = log(fmax(ab_normal_exceeds(&e->normal, u), DBL_MIN)),
                 gumbel = log(fmax(ab_gumbel_exceeds(&e->gumbel, u), DBL_MIN));
    e->score[AB_EXTREME_PARETO] = e->has_pareto ? -2 : -DBL_MAX;
    for (int i = first; i < e->n; i++) {
        const double x = e->sorted[i];
        const bool cut = is_censored(censored, i);
        e->score[AB_EXTREME_NORMAL] +=
            (cut ? log(fmax(ab_normal_exceeds(&e->normal, x), DBL_MIN)) : normal_density_log(&e->normal, x)) -
            normal;
        e->score[AB_EXTREME_GUMBEL] +=
            (cut ? log(fmax(ab_gumbel_exceeds(&e->gumbel, x), DBL_MIN)) : gumbel_density_log(&e->gumbel, x)) -
            gumbel;
        if (e->has_pareto) e->score[AB_EXTREME_PARETO] += pareto_density_log(&e->pareto, x - u, cut);
    }
    e->chosen = AB_EXTREME_NORMAL;
    for (int kind = 1; kind < AB_EXTREME_KINDS; kind++)
        if (e->score[kind] > e->score[e->chosen]) e->chosen = (ab_extreme_kind)kind;
    double sum = 0;
    for (int kind = 0; kind < AB_EXTREME_KINDS; kind++) {
        e->weight[kind] = exp(fmax(e->score[kind] - e->score[e->chosen], -700));
        sum += e->weight[kind];
    }
    for (int kind = 0; kind < AB_EXTREME_KINDS; kind++) e->weight[kind] /= sum;
}

static void sort_together(double *value, bool *censored, int n) {
    for (int i = 1; i < n; i++) {
        const double x = value[i];
        const bool cut = is_censored(censored, i);
        int j = i;
        for (; j > 0 && value[j - 1] > x; j--) {
            value[j] = value[j - 1];
            if (censored) censored[j] = censored[j - 1];
        }
        value[j] = x;
        if (censored) censored[j] = cut;
    }
}

void ab_extremes_fit(double *value, bool *censored, int n, ab_extremes *e) {
    sort_together(value, censored, n);
    *e = (ab_extremes){.n = n, .censored = count_censored(censored, n), .sorted = value};
    e->spread = value[n - 1] - value[0];
    e->chosen = AB_EXTREME_GUMBEL;
    e->threshold = value[n - 1];
    if (e->spread <= 0) return;
    e->normal = ab_normal_fit(value, censored, n);
    e->gumbel = ab_gumbel_fit_censored(value, censored, n);
    int first = n - (n + AB_EXTREMES_TAIL - 1) / AB_EXTREMES_TAIL;
    if (first < 1) first = 1;
    e->threshold = value[first - 1];
    while (first < n && value[first] <= e->threshold) first++;
    e->peaks = n - first;
    double *excess = malloc(((size_t)e->peaks + 1) * sizeof *excess);
    const bool *cut = censored ? censored + first : NULL;
    e->has_pareto = excess && e->peaks >= AB_EXTREMES_LEAST_PEAKS && count_censored(cut, e->peaks) < e->peaks;
    for (int i = 0; excess && i < e->peaks; i++) excess[i] = value[first + i] - e->threshold;
    if (e->has_pareto) e->pareto = ab_pareto_fit(excess, cut, e->peaks);
    free(excess);
    judge(e, censored, first);
}
