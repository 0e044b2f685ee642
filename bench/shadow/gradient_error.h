/* How far a gradient of a half pass is from a reference of the same batch and weights: sums over elements, to be added up over
 * steps. Arrays in, numbers out. Definitions: reference g, unscaled; the half pass's h, times the loss scale s, in its format. */
#ifndef AB_BENCH_SHADOW_GRADIENT_ERROR_H
#define AB_BENCH_SHADOW_GRADIENT_ERROR_H

#include "kernels/format.h"

AB_BEGIN_DECLS

typedef struct ab_gradient_error {
    int64_t count;
    int64_t natural_zeros; /* g is 0: nothing to lose */
    int64_t flushed;    /* h is 0, g is not, and g s is below the format's smallest number: true underflow */
    int64_t vanished;   /* h is 0 although g s is not that small: a kink or mask on the other side */
    int64_t overflowed; /* h is not finite, g is */
    int64_t reference_overflowed; /* g is not finite */
    /* Sums over elements where both are finite; d = h / s - g. */
    double energy;             /* g^2 */
    double error;              /* d^2 */
    double found;              /* (h / s)^2 */
    double product;            /* g h / s */
    double bias, bias_squares; /* d sign(g), and its square: growth or shrinking */
    double flushed_energy;     /* g^2 where flushed */
    double rounding;           /* (what one cast of g s makes of it - g)^2: the format's own share */
} ab_gradient_error;

/* Adds n elements. `found` holds them widened. */
void ab_gradient_error_add(ab_gradient_error *sums, const float *reference, const float *found,
                           const ab_format *format, double scale, int64_t n);

/* Shares; NAN without a denominator. */
double ab_gradient_error_relative(const ab_gradient_error *sums); /* sqrt(error / energy) */
double ab_gradient_error_cosine(const ab_gradient_error *sums);

/* sum of d sign(g) in standard deviations of a sum of errors without direction: negative where gradients shrink. */
double ab_gradient_error_bias_z(const ab_gradient_error *sums);

AB_END_DECLS

#endif
