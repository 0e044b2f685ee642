/* The fit to intervals, and what follows from it. */
#include "reports/advise/advise_log.h"

#include "reports/stats/stats.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* SLICES: equal intervals side by side are one, but no longer than the log over SLICES, for the trend. WORK:
 * intervals times rounds, at most. */
enum { SLICES = 128, ROUNDS = 4000, WORK = 40000000 };
static const double narrowest = 1.0 / 64; /* octaves: the fit's spread is not less */

typedef struct interval {
    double low, high, at, weight; /* at: of the log, from -1/2 to 1/2 */
} interval;

typedef struct fit {
    interval *list;
    int count;
    double middle, slope, spread; /* slope: octaves over the log */
} fit;

/* ---- the normal distribution ------------------------------------------------------------------ */

static double density(double x) { return isinf(x) ? 0 : exp(-x * x / 2) * 0.3989422804014327; }

static double above(double x) { return erfc(x / sqrt(2)) / 2; }

/* P(a < X < b) without cancellation in the tails. */
static double between(double a, double b) { return a > 0 ? above(a) - above(b) : above(-b) - above(-a); }

/* Mean and variance of a standard normal variable in [a, b]. */
static void moments(double a, double b, double *mean, double *variance) {
    const double p = between(a, b);
    if (p < 1e-290) { /* far out: all of it is at the nearer end */
        *mean = fabs(a) < fabs(b) ? a : b;
        *variance = 0;
        return;
    }
    const double da = density(a), db = density(b), ea = isinf(a) ? 0 : a * da, eb = isinf(b) ? 0 : b * db;
    *mean = (da - db) / p;
    *variance = fmax(1 + (ea - eb) / p - *mean * *mean, 0);
}

/* ---- expectation-maximisation ----------------------------------------------------------------- */

static double line_at(const fit *f, double at) { return f->middle + f->slope * at; }

/* One round; returns how far the parameters moved. */
static double improve(fit *f) {
    double w = 0, x = 0, xx = 0, y = 0, xy = 0, yy = 0;
    for (int i = 0; i < f->count; i++) {
        const interval *v = &f->list[i];
        const double line = line_at(f, v->at);
        double mean, variance;
        moments((v->low - line) / f->spread, (v->high - line) / f->spread, &mean, &variance);
        const double expected = line + f->spread * mean;
        w += v->weight;
        x += v->weight * v->at;
        xx += v->weight * v->at * v->at;
        y += v->weight * expected;
        xy += v->weight * v->at * expected;
        yy += v->weight * (expected * expected + f->spread * f->spread * variance);
    }
    const double sxx = xx - x * x / w, slope = sxx > 0 ? (xy - x * y / w) / sxx : 0,
                 middle = (y - slope * x) / w;
    const double left = yy - 2 * middle * y - 2 * slope * xy + middle * middle * w + 2 * middle * slope * x +
                        slope * slope * xx,
                 spread = fmax(sqrt(fmax(left, 0) / w), narrowest);
    const double moved = fabs(middle - f->middle) + fabs(slope - f->slope) + fabs(spread - f->spread);
    f->middle = middle;
    f->slope = slope;
    f->spread = spread;
    return moved;
}

static bool joins(const interval *v, const ab_advise_step *s, double most) {
    return v->low == s->low && v->high == s->high && v->weight < most;
}

/* Equal steps side by side become one interval. */
static ab_status collect(const ab_advise_step *step, int64_t steps, fit *f) {
    const double most = ceil((double)steps / SLICES);
    f->list = malloc((size_t)steps * sizeof *f->list);
    if (!f->list) return ab_fail(AB_NO_MEMORY, "advise: out of memory for %lld steps", (long long)steps);
    for (int64_t t = 0; t < steps; t++) {
        const double at = ((double)t + 0.5) / (double)steps - 0.5;
        interval *last = f->count ? &f->list[f->count - 1] : NULL;
        if (last && joins(last, &step[t], most)) {
            last->at += (at - last->at) / (last->weight + 1);
            last->weight++;
        } else
            f->list[f->count++] = (interval){step[t].low, step[t].high, at, 1};
    }
    return AB_OK;
}

/* Begins between the limits of the scales that overflowed and those that did not. */
static void start(const ab_advise_step *step, int64_t steps, fit *f) {
    double over = 0, under = 0, overs = 0;
    for (int64_t t = 0; t < steps; t++) {
        over += step[t].overflowed ? step[t].low : 0;
        overs += step[t].overflowed;
        under += step[t].overflowed ? 0 : step[t].high;
    }
    *f = (fit){.list = f->list, .count = f->count, .spread = 1};
    f->middle = (over / overs + under / ((double)steps - overs)) / 2 - 1;
}

static ab_status make_fit(const ab_advise_step *step, int64_t steps, ab_advise_log *a) {
    fit f = {.list = NULL};
    AB_TRY(collect(step, steps, &f));
    start(step, steps, &f);
    int rounds = WORK / (f.count + 1);
    rounds = rounds > ROUNDS ? ROUNDS : rounds < 50 ? 50 : rounds;
    while (rounds-- > 0 && improve(&f) > 1e-7) {
    }
    a->fitted = true;
    a->middle = f.middle;
    a->spread = f.spread;
    a->drift = f.slope / (double)steps * 1000;
    free(f.list);
    return AB_OK;
}

static double share_at(const ab_advise_log *a, double scale, double at) {
    const double line = a->middle + a->drift * (double)a->steps / 1000 * at;
    return above((a->limit_log2 - log2(scale) - line) / a->spread);
}

double ab_advise_log_share(const ab_advise_log *a, double scale) {
    double sum = 0;
    if (!a->fitted) return (double)NAN;
    for (int i = 0; i < SLICES; i++) sum += share_at(a, scale, (i + 0.5) / SLICES - 0.5);
    return sum / SLICES;
}

/* ---- scales of the log ------------------------------------------------------------------------ */

static ab_advise_scale *scale_called(ab_advise_log *a, double scale) {
    for (int i = 0; i < a->scales; i++)
        if (a->scale[i].scale == scale) return &a->scale[i];
    if (a->scales < AB_ADVISE_SCALES) {
        a->scale[a->scales] = (ab_advise_scale){.scale = scale};
        return &a->scale[a->scales++];
    }
    ab_advise_scale *least = &a->scale[0];
    for (int i = 1; i < a->scales; i++)
        if (a->scale[i].steps < least->steps) least = &a->scale[i];
    *least = (ab_advise_scale){.scale = scale};
    return least;
}

static int by_scale(const void *x, const void *y) {
    const double a = ((const ab_advise_scale *)x)->scale, b = ((const ab_advise_scale *)y)->scale;
    return (a > b) - (a < b);
}

static void count_scales(const ab_advise_step *step, int64_t steps, ab_advise_log *a) {
    ab_advise_scale *s = NULL;
    for (int64_t t = 0; t < steps; t++) {
        if (!s || s->scale != step[t].scale) s = scale_called(a, step[t].scale);
        s->steps++;
        s->overflows += step[t].overflowed;
        a->overflows += step[t].overflowed;
    }
    qsort(a->scale, (size_t)a->scales, sizeof *a->scale, by_scale);
}

/* The fit's shares are those of the steps in which each scale was in use. */
static void judge_scales(const ab_advise_step *step, ab_advise_log *a) {
    for (int i = 0; i < a->scales; i++) {
        ab_advise_scale *s = &a->scale[i];
        ab_clopper_pearson((int)s->overflows, (int)s->steps, 0.95, &s->share_low, &s->share_high);
        s->expected = a->fitted ? 0 : (double)NAN;
    }
    for (int64_t t = 0; t < a->steps && a->fitted; t++)
        for (int i = 0; i < a->scales; i++)
            if (a->scale[i].scale == step[t].scale)
                a->scale[i].expected +=
                    share_at(a, step[t].scale, ((double)t + 0.5) / (double)a->steps - 0.5) /
                    (double)a->scale[i].steps;
}

/* ---- the advice ------------------------------------------------------------------------------- */

static void choose(ab_advise_log *a) {
    enum { K_MIN = -40, K_MAX = 60 };
    const double sure = 3; /* of 1 / n: 95 % bound of the share of what never happened in n steps */
    if (!a->fitted) {
        const ab_advise_scale *top = &a->scale[a->scales - 1];
        a->k_hi = (int)floor(log2(top->scale));
        a->share = fmin(sure / (double)top->steps, 1);
        a->known = a->share <= a->alpha;
        return;
    }
    int k = K_MAX;
    while (k > K_MIN && ab_advise_log_share(a, ldexp(1, k)) > a->alpha) k--;
    a->k_hi = k;
    a->share = ab_advise_log_share(a, ldexp(1, k));
    a->known = true;
}

ab_status ab_advise_log_make(const ab_advise_step *step, int64_t steps, double limit, double alpha,
                             double asked, ab_advise_log *a) {
    *a = (ab_advise_log){.steps = steps, .alpha = alpha, .limit_log2 = log2(limit), .asked = asked};
    count_scales(step, steps, a);
    if (a->overflows == steps)
        return ab_fail(AB_INPUT, "advise: the log has no step that was taken: no scale in it is low enough");
    if (a->overflows > 0) AB_TRY(make_fit(step, steps, a));
    judge_scales(step, a);
    choose(a);
    a->asked_share = asked > 0 ? ab_advise_log_share(a, asked) : 0;
    return AB_OK;
}
