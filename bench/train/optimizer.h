/* Optimizers with torch's formulas (torch/optim/sgd.py, adam.py: single tensor, not capturable).
 *
 * An update is computed in fp32 from the stored weight, gradient and state; each of state and weight is rounded once when it
 * is stored, and the weight uses the unrounded state (as fused optimizers do). With fp32 storage that is torch's
 * arithmetic exactly; torch's unfused half optimizers round after every elementary operation instead. */
#ifndef AB_BENCH_TRAIN_OPTIMIZER_H
#define AB_BENCH_TRAIN_OPTIMIZER_H

#include "kernels/tensor.h"

AB_BEGIN_DECLS

enum { AB_OPTIMIZER_STATES = 3 };

typedef struct ab_optimizer_config {
    double lr, momentum, dampening, weight_decay;
    double beta1, beta2, eps;
} ab_optimizer_config;

typedef struct ab_optimizer {
    const char *name, *text;
    int states; /* buffers per parameter, zero at first */
    ab_optimizer_config defaults;
    /* One update of n elements in place. taken: 1 for the first step that was not skipped. state[i]: n values. */
    void (*update)(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                   float *const *state, int64_t n);
} ab_optimizer;

int ab_optimizer_count(void);
const ab_optimizer *ab_optimizer_at(int i);
AB_MUST_CHECK ab_status ab_optimizer_find(const char *name, const ab_optimizer **optimizer);

/* Updates one parameter: weight, gradient and states in their stored formats, same shape. */
void ab_optimizer_step(const ab_optimizer *optimizer, const ab_optimizer_config *config, int64_t taken,
                       ab_tensor *weight, const ab_tensor *grad, ab_tensor *const *state);

AB_END_DECLS

#endif
