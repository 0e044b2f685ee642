/* Helpers of the procedural image sources: only +, -, *, / and truncation of doubles, so that results do not
 * depend on the math library. */
#ifndef AB_BENCH_DATA_PROCEDURAL_H
#define AB_BENCH_DATA_PROCEDURAL_H

#include <math.h>
#include <stdint.h>

/* First random block of a sample's noise; earlier blocks parametrise the sample. */
enum { AB_PROCEDURAL_NOISE = 16 };

/* Uniform in [low, high) from 32 random bits. */
static inline double ab_between(uint32_t word, double low, double high) {
    return low + (high - low) * ((double)word * 0x1p-32);
}

/* Approximates a sine of period 1 and amplitude 1 by two parabolas; t > -64. */
static inline double ab_approximate_sine(double t) {
    t += 64.0;
    double u = t - (double)(int)t - 0.5;
    return 8.0 * u * (1.0 - 2.0 * fabs(u));
}

#endif
