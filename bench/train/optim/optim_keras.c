/* keras_momentum and keras_nesterov: keras.optimizers.SGD: v = m v - lr g; w += v, or w += m v - lr g with
 * Nesterov momentum. The rate is inside the velocity, so after a change of the rate old gradients keep
 * theirs; torch's buffer holds gradients, and a new rate acts on all of them. Weight decay is decoupled: w -=
 * lr wd w first. MindSpore's nn.Momentum is torch's formula (momentum, nesterov). */
#include "bench/train/optim/optimizer.h"

typedef struct constants {
    float lr, momentum, shrink;
} constants;

static constants constants_of(const ab_optimizer_config *config) {
    return (constants){(float)config->lr, (float)config->momentum,
                       (float)(config->lr * config->weight_decay)};
}

static void momentum_update(const ab_optimizer_config *config, int64_t taken, float *weight,
                            const float *grad, float *const *state, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    for (int64_t i = 0; i < n; i++) {
        state[0][i] = c.momentum * state[0][i] - c.lr * grad[i];
        weight[i] = (weight[i] - c.shrink * weight[i]) + state[0][i];
    }
}

static void nesterov_update(const ab_optimizer_config *config, int64_t taken, float *weight,
                            const float *grad, float *const *state, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    for (int64_t i = 0; i < n; i++) {
        state[0][i] = c.momentum * state[0][i] - c.lr * grad[i];
        weight[i] = (weight[i] - c.shrink * weight[i]) + (c.momentum * state[0][i] - c.lr * grad[i]);
    }
}

/* The step is keep v - fresh lr g with the old velocity v. */
static unsigned split(const constants *c, double keep, double fresh, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        term[AB_TERM_GRADIENT][i] = -fresh * (double)c->lr * (double)before->grad[i];
        term[AB_TERM_WEIGHT_DECAY][i] = -(double)c->shrink * (double)before->weight[i];
        term[AB_TERM_MOMENTUM][i] = keep * (double)before->state[0][i];
    }
    return 1u << AB_TERM_GRADIENT | (unsigned)(c->shrink != 0) << AB_TERM_WEIGHT_DECAY |
           (unsigned)(keep != 0) << AB_TERM_MOMENTUM;
}

static unsigned momentum_terms(const ab_optimizer_config *config, int64_t taken,
                               const ab_optimizer_values *before, double *const *term, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    return split(&c, (double)c.momentum, 1, before, term, n);
}

static unsigned nesterov_terms(const ab_optimizer_config *config, int64_t taken,
                               const ab_optimizer_values *before, double *const *term, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    const double m = (double)c.momentum;
    return split(&c, m * m, 1 + m, before, term, n);
}

extern const ab_optimizer ab_optimizer_keras_momentum, ab_optimizer_keras_nesterov;

const ab_optimizer ab_optimizer_keras_momentum = {.name = "keras_momentum",
                                                  .text = "keras.optimizers.SGD with momentum",
                                                  .states = 1,
                                                  .state = {"velocity"},
                                                  .second_moment = -1,
                                                  .decay = AB_DECAY_DECOUPLED,
                                                  .knobs = AB_KNOB_MOMENTUM,
                                                  .defaults = {.lr = 0.01, .momentum = 0.9},
                                                  .update = momentum_update,
                                                  .terms = momentum_terms};

const ab_optimizer ab_optimizer_keras_nesterov = {.name = "keras_nesterov",
                                                  .text = "keras.optimizers.SGD with Nesterov momentum",
                                                  .states = 1,
                                                  .state = {"velocity"},
                                                  .second_moment = -1,
                                                  .decay = AB_DECAY_DECOUPLED,
                                                  .knobs = AB_KNOB_MOMENTUM,
                                                  .defaults = {.lr = 0.01, .momentum = 0.9},
                                                  .update = nesterov_update,
                                                  .terms = nesterov_terms};
