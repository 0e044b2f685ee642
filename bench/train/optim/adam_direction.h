/* The direction of an Adam step as apex's kernels and MindSpore compute it: one formula with constants, from
 * which optimizers differ in what they put into the moments and how long the step is. */
#ifndef AB_BENCH_TRAIN_OPTIM_ADAM_DIRECTION_H
#define AB_BENCH_TRAIN_OPTIM_ADAM_DIRECTION_H

#include "bench/train/optim/optimizer.h"

#include <math.h>

AB_BEGIN_DECLS

typedef struct ab_adam_constants {
    float divisor;                  /* of the gradient; 1: none */
    float keep1, fresh1;            /* of the first moment */
    float keep2, fresh2;            /* of the second */
    float correction1, correction2; /* 1: none */
    float eps;
    float inside, beside; /* weight decay in the gradient (L2), and beside the direction (decoupled) */
} ab_adam_constants;

/* correct: bias correction; decoupled: the form of weight decay. divisor 1, fresh1 = 1 - beta1. */
ab_adam_constants ab_adam_constants_of(const ab_optimizer_config *config, bool correct, bool decoupled);

/* Advances the moments of one element and returns m^ / (sqrt(v^) + eps) + beside w. */
static inline float ab_adam_direction(const ab_adam_constants *c, float weight, float grad, float *m,
                                      float *v) {
    const float g = grad / c->divisor + c->inside * weight;
    *m = c->keep1 * *m + c->fresh1 * g;
    *v = c->keep2 * *v + c->fresh2 * g * g;
    return *m / c->correction1 / (sqrtf(*v / c->correction2) + c->eps) + c->beside * weight;
}

/* ab_optimizer.terms of w -= rate * direction; states: the moments. */
unsigned ab_adam_terms(const ab_adam_constants *c, double rate, const ab_optimizer_values *before,
                       double *const *term, int64_t n);

AB_END_DECLS

#endif
