/* Reference gradients: every n-th step of a cell, its gradients are computed a second time without underflow
 * and compared element by element. The reference is either an fp32 copy of the cell in the same process, with
 * the batch, the weights and the random numbers of the step; or the cell itself at a loss scale 2^octaves
 * higher, which distinguishes flushed zeros from exact ones without an fp32 copy (de-censoring). The results
 * of the cell do not change. */
#ifndef AB_BENCH_REFERENCE_FP32_REFERENCE_H
#define AB_BENCH_REFERENCE_FP32_REFERENCE_H

#include "bench/train/cell/cell.h"
#include "kernels/format/format.h"

AB_BEGIN_DECLS

typedef enum ab_reference_kind { AB_REFERENCE_FP32, AB_REFERENCE_DECENSOR } ab_reference_kind;

enum { AB_REFERENCE_OCTAVES = 10 };

typedef struct ab_fp32_reference ab_fp32_reference;

/* `config`: of the cell; it and what it points to are borrowed until ab_fp32_reference_destroy. AB_CONFIG if
 * losses have their own scales. */
AB_MUST_CHECK ab_status ab_fp32_reference_create(const ab_cell_config *config, ab_reference_kind kind,
                                                 int octaves, ab_fp32_reference **fp32);
void ab_fp32_reference_destroy(ab_fp32_reference *fp32); /* NULL is a no-op */

/* To be called before and after a step of the cell that is to be compared. */
AB_MUST_CHECK ab_status ab_fp32_reference_before(ab_fp32_reference *fp32, ab_cell *cell);
AB_MUST_CHECK ab_status ab_fp32_reference_after(ab_fp32_reference *fp32, ab_cell *cell,
                                                const ab_step_result *result);

/* Writes "reference", "octaves", "looks", "loss_error" and "tensors" into the open object. */
void ab_fp32_reference_report(const ab_fp32_reference *fp32, ab_probe_sink *sink);

/* The error of a gradient from a half-precision pass against a reference for the same batch and weights: sums
 * over elements, accumulated over steps. Pure functions of arrays. Definitions: g is the reference, unscaled;
 * h is the gradient of the half pass, multiplied by the loss scale s, in its format. */

typedef struct ab_gradient_error {
    int64_t count;
    int64_t natural_zeros; /* g is 0 */
    int64_t flushed;    /* h is 0, g is not, and g s is below the format's smallest number: true underflow */
    int64_t vanished;   /* h is 0 although g s is not that small: the other side of a kink or mask */
    int64_t overflowed; /* h is non-finite, g is finite */
    int64_t reference_overflowed; /* g is non-finite */
    /* Sums over elements where both are finite; d = h / s - g. */
    double energy;         /* g^2 */
    double error;          /* d^2 */
    double found;          /* (h / s)^2 */
    double product;        /* g h / s */
    double flushed_energy; /* g^2 where flushed */
    double rounding;       /* (cast(g s) / s - g)^2: the error of one cast to the format */
    /* Over the closed looks (one step each): growth of the gradient, and the part that noise alone can
     * explain. */
    int64_t looks;
    double growth, growth_squares, noise;
    double closed[3]; /* energy, error and product when the last look was closed */
} ab_gradient_error;

/* Adds n elements. `found`: h, widened to fp32. */
void ab_gradient_error_add(ab_gradient_error *sums, const float *reference, const float *found,
                           const ab_format *format, double scale, int64_t n);

/* Ratios; NAN if the denominator is 0. */
double ab_gradient_error_relative(const ab_gradient_error *sums); /* sqrt(error / energy) */
double ab_gradient_error_cosine(const ab_gradient_error *sums);

/* Closes a look: the elements added since the last one belong to one step. */
void ab_gradient_error_close(ab_gradient_error *sums);

/* Whether rounding makes a gradient grow or shrink. Errors of the elements of one step are correlated, so a
 * look counts as one observation: growth of a look = sum of (g d + d^2 / 4) / sum of g^2. Unbiased rounding
 * also contributes to it. Noise that is independent of g: g d is 0 on average, d^2 is not. Kinks and masks
 * that flip both ways: a lost value contributes -g^2, a gained one nothing. With d^2 / 4 added these are d^2
 * / 4 and -d^2 / 4: so `allowed` includes a quarter of the error's energy. It also includes a quarter of a
 * unit in the last place (eps): values that recur at every look have the same error each time, above all half
 * weights and the background of images (0.15 eps in Fashion-MNIST). A truncation gives 0.36 eps (1 / (4 ln
 * 2), logarithms uniform), two of them 0.72. z is the part of the mean growth beyond `allowed` as a normal
 * deviate: Student's t over the looks by Wallace's approximation (1959). At the limit, |z| > 3 occurs by
 * chance in 0.27 % of tensors; within it, less often. NAN with fewer than two looks. */
typedef struct ab_gradient_bias {
    double growth, allowed, z; /* negative: gradients shrink */
} ab_gradient_bias;

/* Computes the bias of the gradients added so far; eps: of the format that stores them. */
ab_gradient_bias ab_gradient_error_bias(const ab_gradient_error *sums, double eps);

AB_END_DECLS

#endif
