/* sgd, momentum and nesterov: torch.optim.SGD. d = g + wd w; b = m b + (1 - dampening) d, and b = d at the
 * first step; w -= lr (d, b, or d + m b). */
#include "bench/train/optim/by_op.h"

static void sgd(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                float *const *state, int64_t n) {
    (void)taken;
    (void)state;
    const float lr = (float)config->lr, decay = (float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) weight[i] -= lr * (grad[i] + decay * weight[i]);
}

/* Updates the momentum buffer; with nesterov the caller adds the look-ahead. */
static void advance(const ab_optimizer_config *config, int64_t taken, const float *weight, const float *grad,
                    float *buffer, int64_t n) {
    const float momentum = (float)config->momentum, decay = (float)config->weight_decay;
    const float fresh = taken == 1 ? 1.0f : (float)(1.0 - config->dampening);
    for (int64_t i = 0; i < n; i++) buffer[i] = momentum * buffer[i] + fresh * (grad[i] + decay * weight[i]);
}

static void momentum_update(const ab_optimizer_config *config, int64_t taken, float *weight,
                            const float *grad, float *const *state, int64_t n) {
    const float lr = (float)config->lr;
    advance(config, taken, weight, grad, state[0], n);
    for (int64_t i = 0; i < n; i++) weight[i] -= lr * state[0][i];
}

static void nesterov_update(const ab_optimizer_config *config, int64_t taken, float *weight,
                            const float *grad, float *const *state, int64_t n) {
    const float lr = (float)config->lr, momentum = (float)config->momentum,
                decay = (float)config->weight_decay;
    advance(config, taken, weight, grad, state[0], n);
    for (int64_t i = 0; i < n; i++)
        weight[i] -= lr * ((grad[i] + decay * weight[i]) + momentum * state[0][i]);
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* -lr * (fresh * (g + wd w) + keep * b); keep 0: no momentum. */
static unsigned split(const ab_optimizer_config *config, const ab_optimizer_values *before, double fresh,
                      double keep, double *const *term, int64_t n) {
    const double lr = (double)(float)config->lr, decay = (double)(float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        term[AB_TERM_GRADIENT][i] = -lr * fresh * (double)before->grad[i];
        term[AB_TERM_WEIGHT_DECAY][i] = -lr * fresh * (decay * (double)before->weight[i]);
    }
    for (int64_t i = 0; i < n && keep != 0; i++)
        term[AB_TERM_MOMENTUM][i] = -lr * keep * (double)before->state[0][i];
    return 1u << AB_TERM_GRADIENT | (unsigned)(decay != 0) << AB_TERM_WEIGHT_DECAY |
           (unsigned)(keep != 0) << AB_TERM_MOMENTUM;
}

static double fresh_of(const ab_optimizer_config *config, int64_t taken) {
    return taken == 1 ? 1.0 : (double)(float)(1.0 - config->dampening);
}

static unsigned sgd_terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                          double *const *term, int64_t n) {
    (void)taken;
    return split(config, before, 1.0, 0.0, term, n);
}

static unsigned momentum_terms(const ab_optimizer_config *config, int64_t taken,
                               const ab_optimizer_values *before, double *const *term, int64_t n) {
    return split(config, before, fresh_of(config, taken), (double)(float)config->momentum, term, n);
}

/* The look-ahead adds momentum times the new buffer: d (1 + m fresh) + m m b. */
static unsigned nesterov_terms(const ab_optimizer_config *config, int64_t taken,
                               const ab_optimizer_values *before, double *const *term, int64_t n) {
    const double m = (double)(float)config->momentum;
    return split(config, before, 1.0 + m * fresh_of(config, taken), m * m, term, n);
}

extern const ab_optimizer ab_optimizer_sgd, ab_optimizer_momentum, ab_optimizer_nesterov;

const ab_optimizer ab_optimizer_sgd = {.name = "sgd",
                                       .text = "torch.optim.SGD without momentum",
                                       .states = 0,
                                       .second_moment = -1,
                                       .defaults = {.lr = 0.1},
                                       .update = sgd,
                                       .update_by_op = ab_optimizer_sgd_by_op,
                                       .terms = sgd_terms};

const ab_optimizer ab_optimizer_momentum = {.name = "momentum",
                                            .text = "torch.optim.SGD with momentum",
                                            .knobs = AB_KNOB_MOMENTUM | AB_KNOB_DAMPENING,
                                            .states = 1,
                                            .state = {"momentum_buffer"},
                                            .second_moment = -1,
                                            .defaults = {.lr = 0.01, .momentum = 0.9},
                                            .update = momentum_update,
                                            .update_by_op = ab_optimizer_momentum_by_op,
                                            .terms = momentum_terms};

const ab_optimizer ab_optimizer_nesterov = {.name = "nesterov",
                                            .text = "torch.optim.SGD with Nesterov momentum",
                                            .knobs = AB_KNOB_MOMENTUM,
                                            .states = 1,
                                            .state = {"momentum_buffer"},
                                            .second_moment = -1,
                                            .defaults = {.lr = 0.01, .momentum = 0.9},
                                            .update = nesterov_update,
                                            .update_by_op = ab_optimizer_nesterov_by_op,
                                            .terms = nesterov_terms};
