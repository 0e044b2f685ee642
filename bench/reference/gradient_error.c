/* Sums of a comparison, in double and in a fixed order. */
#include "bench/reference/gradient_error.h"

#include "kernels/format/convert.h"

#include <math.h>

enum { BLOCK = 1024 };

/* Adds the error of one cast of the reference at this scale. */
static void add_rounding(ab_gradient_error *sums, const float *reference, const ab_format *format,
                         double scale, int64_t n) {
    static const ab_rounding nearest = {.mode = AB_ROUND_NEAREST_EVEN};
    float cast[BLOCK];
    for (int64_t i = 0; i < n; i++) cast[i] = (float)((double)reference[i] * scale);
    ab_round_array(cast, format, &nearest, n);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)cast[i] / scale - (double)reference[i];
        if (isfinite(d)) sums->rounding += d * d;
    }
}

static void add_zero(ab_gradient_error *sums, double g, double smallest) {
    if (g == 0)
        sums->natural_zeros++;
    else if (fabs(g) < smallest)
        sums->flushed++;
    else
        sums->vanished++;
}

static void add_element(ab_gradient_error *sums, double g, double h, double smallest) {
    if (!isfinite(g) || !isfinite(h)) {
        sums->reference_overflowed += !isfinite(g);
        sums->overflowed += isfinite(g) && !isfinite(h);
        return;
    }
    const double d = h - g;
    if (h == 0 || g == 0) add_zero(sums, h == 0 ? g : 0, smallest);
    if (h == 0 && fabs(g) < smallest) sums->flushed_energy += g * g;
    sums->energy += g * g;
    sums->error += d * d;
    sums->found += h * h;
    sums->product += g * h;
}

void ab_gradient_error_add(ab_gradient_error *sums, const float *reference, const float *found,
                           const ab_format *format, double scale, int64_t n) {
    const double smallest = ab_format_min_subnormal(format) / scale;
    for (int64_t first = 0; first < n; first += BLOCK) {
        const int64_t end = n - first < BLOCK ? n : first + BLOCK;
        for (int64_t i = first; i < end; i++)
            add_element(sums, (double)reference[i], (double)found[i] / scale, smallest);
        add_rounding(sums, reference + first, format, scale, end - first);
    }
    sums->count += n;
}

double ab_gradient_error_relative(const ab_gradient_error *sums) {
    return sums->energy > 0 ? sqrt(sums->error / sums->energy) : (double)NAN;
}

double ab_gradient_error_cosine(const ab_gradient_error *sums) {
    const double norms = sqrt(sums->energy) * sqrt(sums->found);
    return norms > 0 ? sums->product / norms : (double)NAN;
}

void ab_gradient_error_close(ab_gradient_error *sums) {
    const double energy = sums->energy - sums->closed[0], error = sums->error - sums->closed[1];
    const double along = sums->product - sums->closed[2] - energy; /* sum of g d */
    const double growth = (along + error / 4) / energy;
    sums->closed[0] = sums->energy;
    sums->closed[1] = sums->error;
    sums->closed[2] = sums->product;
    if (!(energy > 0) || !isfinite(growth)) return;
    sums->looks++;
    sums->growth += growth;
    sums->growth_squares += growth * growth;
    sums->noise += error / energy / 4;
}

/* Wallace's normal deviate of Student's t. */
static double normal_of(double t, double freedom) {
    return (8 * freedom + 1) / (8 * freedom + 3) * sqrt(freedom * log1p(t * t / freedom));
}

ab_gradient_bias ab_gradient_error_bias(const ab_gradient_error *sums, double eps) {
    const double n = (double)sums->looks, mean = sums->growth / n;
    ab_gradient_bias bias = {.growth = mean, .allowed = sums->noise / n + eps / 4, .z = (double)NAN};
    if (sums->looks < 2) return bias;
    const double variance = fmax(sums->growth_squares - n * mean * mean, 0) / (n - 1);
    const double beyond = fmax(fabs(mean) - bias.allowed, 0);
    const double t = beyond / fmax(sqrt(variance / n), 1e-9 * fabs(mean) + 1e-300);
    bias.z = copysign(normal_of(t, n - 1), mean);
    return bias;
}
