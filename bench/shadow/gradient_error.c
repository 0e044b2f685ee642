/* Sums of a comparison, in double and in order. */
#include "bench/shadow/gradient_error.h"

#include "kernels/convert.h"

#include <math.h>

enum { BLOCK = 1024 };

/* What one cast makes of the reference at this scale. */
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
    const double d = h - g, along = g > 0 ? d : -d;
    if (h == 0 || g == 0) add_zero(sums, h == 0 ? g : 0, smallest);
    if (h == 0 && fabs(g) < smallest) sums->flushed_energy += g * g;
    sums->energy += g * g;
    sums->error += d * d;
    sums->found += h * h;
    sums->product += g * h;
    if (g == 0) return;
    sums->bias += along;
    sums->bias_squares += d * d;
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

double ab_gradient_error_bias_z(const ab_gradient_error *sums) {
    return sums->bias_squares > 0 ? sums->bias / sqrt(sums->bias_squares) : (double)NAN;
}
