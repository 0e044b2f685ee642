/* How far a gradient of a half pass is from a reference of the same batch and weights: sums over elements, to
 * be added up over steps. Arrays in, numbers out. Definitions: reference g, unscaled; the half pass's h,
 * times the loss scale s, in its format. */
#ifndef AB_BENCH_REFERENCE_GRADIENT_ERROR_H
#define AB_BENCH_REFERENCE_GRADIENT_ERROR_H

#include "kernels/format/format.h"

AB_BEGIN_DECLS

typedef struct ab_gradient_error {
    int64_t count;
    int64_t natural_zeros; /* g is 0: nothing to lose */
    int64_t flushed;    /* h is 0, g is not, and g s is below the format's smallest number: true underflow */
    int64_t vanished;   /* h is 0 although g s is not that small: a kink or mask on the other side */
    int64_t overflowed; /* h is not finite, g is */
    int64_t reference_overflowed; /* g is not finite */
    /* Sums over elements where both are finite; d = h / s - g. */
    double energy;         /* g^2 */
    double error;          /* d^2 */
    double found;          /* (h / s)^2 */
    double product;        /* g h / s */
    double flushed_energy; /* g^2 where flushed */
    double rounding;       /* (what one cast of g s makes of it - g)^2: the format's own share */
    /* Over the looks that are closed: how much each let the gradient grow, and what of it noise alone can be.
     */
    int64_t looks;
    double growth, growth_squares, noise;
    double closed[3]; /* energy, error and product when the last look was closed */
} ab_gradient_error;

/* Adds n elements. `found` holds them widened. */
void ab_gradient_error_add(ab_gradient_error *sums, const float *reference, const float *found,
                           const ab_format *format, double scale, int64_t n);

/* Shares; NAN without a denominator. */
double ab_gradient_error_relative(const ab_gradient_error *sums); /* sqrt(error / energy) */
double ab_gradient_error_cosine(const ab_gradient_error *sums);

/* Ends a look: what was added since the last one is of one step. */
void ab_gradient_error_close(ab_gradient_error *sums);

/* Whether rounding makes a gradient grow or shrink. Elements of one step err together, so a look counts as
 * one observation: growth of a look = sum of (g d + d^2 / 4) / sum of g^2. Honest rounding leaves traces in
 * it that are no bias. Noise that is independent of g: g d is 0 on average, d^2 is not. Kinks and masks that
 * flip both ways: a value that is lost gives -g^2, one that is won nothing. With a quarter of d^2 added these
 * are d^2 / 4 and -d^2 / 4: so `allowed` has a quarter of the error's energy. And a quarter of a unit in the
 * last place (eps): numbers that come back at every look err in the same way each time, half weights and the
 * background of images above all (0.15 eps in Fashion-MNIST). A truncation makes 0.36 eps (1 / (4 ln 2),
 * logarithms uniform), two of them 0.72. z is the part of the mean growth beyond that, as a normal deviate:
 * Student's t over the looks by Wallace's approximation (1959). Beyond what is allowed, |z| > 3 happens to
 * 0.27 % of tensors by chance, and less often within. NAN with fewer than two looks. */
typedef struct ab_gradient_bias {
    double growth, allowed, z; /* negative: gradients shrink */
} ab_gradient_bias;

/* The bias of the gradients summed so far; eps: of the format that stores them. */
ab_gradient_bias ab_gradient_error_bias(const ab_gradient_error *sums, double eps);

AB_END_DECLS

#endif
