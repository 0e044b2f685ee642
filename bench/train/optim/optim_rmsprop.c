/* rmsprop, plain, with momentum and centered: torch.optim.RMSprop. g += wd w; s = a s + (1 - a) g g;
 * centered: c += (1 - a)(g - c) and s - c c instead of s; r = sqrt(s) + eps; w -= lr g / r, or with momentum
 * b = m b + g / r; w -= lr b. */
#include "bench/train/optim/optimizer.h"

#include <math.h>

typedef struct constants {
    float lr, keep, fresh, eps, decay, momentum;
} constants;

static constants constants_of(const ab_optimizer_config *config) {
    return (constants){.lr = (float)config->lr,
                       .keep = (float)config->alpha,
                       .fresh = (float)(1.0 - config->alpha),
                       .eps = (float)config->eps,
                       .decay = (float)config->weight_decay,
                       .momentum = (float)config->momentum};
}

static void plain(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                  float *const *state, int64_t n) {
    const constants c = constants_of(config);
    (void)taken;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] + c.decay * weight[i];
        state[0][i] = c.keep * state[0][i] + c.fresh * g * g;
        weight[i] -= c.lr * (g / (sqrtf(state[0][i]) + c.eps));
    }
}

static void with_momentum(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                          float *const *state, int64_t n) {
    const constants c = constants_of(config);
    (void)taken;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] + c.decay * weight[i];
        state[0][i] = c.keep * state[0][i] + c.fresh * g * g;
        state[1][i] = c.momentum * state[1][i] + g / (sqrtf(state[0][i]) + c.eps);
        weight[i] -= c.lr * state[1][i];
    }
}

static void centered(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                     float *const *state, int64_t n) {
    const constants c = constants_of(config);
    (void)taken;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] + c.decay * weight[i];
        state[0][i] = c.keep * state[0][i] + c.fresh * g * g;
        state[1][i] += c.fresh * (g - state[1][i]);
        weight[i] -= c.lr * (g / (sqrtf(state[0][i] - state[1][i] * state[1][i]) + c.eps));
    }
}

/* ---- terms ----------------------------------------------------------------------------------- */

/* mean, buffer: states, or NULL. */
static unsigned split(const constants *c, const ab_optimizer_values *before, const float *mean,
                      const float *buffer, double *const *term, int64_t n) {
    const double lr = (double)c->lr, eps = (double)c->eps, fresh = (double)c->fresh;
    for (int64_t i = 0; i < n; i++) {
        double decayed = (double)c->decay * (double)before->weight[i];
        double g = (double)before->grad[i] + decayed;
        double square = (double)c->keep * (double)before->state[0][i] + fresh * g * g;
        double centre = mean ? (double)mean[i] + fresh * (g - (double)mean[i]) : 0;
        double root = sqrt(fmax(0, square - centre * centre));
        double per = root + eps > 0 ? lr / (root + eps) : 0;
        term[AB_TERM_GRADIENT][i] = -per * (double)before->grad[i];
        term[AB_TERM_WEIGHT_DECAY][i] = -per * decayed;
        if (buffer) term[AB_TERM_MOMENTUM][i] = -lr * (double)c->momentum * (double)buffer[i];
        term[AB_TERM_EPS][i] = root > 0 ? g * (lr / root - per) : 0;
    }
    return 1u << AB_TERM_GRADIENT | 1u << AB_TERM_EPS | (unsigned)(buffer != NULL) << AB_TERM_MOMENTUM |
           (unsigned)(c->decay != 0) << AB_TERM_WEIGHT_DECAY;
}

static unsigned plain_terms(const ab_optimizer_config *config, int64_t taken,
                            const ab_optimizer_values *before, double *const *term, int64_t n) {
    const constants c = constants_of(config);
    (void)taken;
    return split(&c, before, NULL, NULL, term, n);
}

static unsigned momentum_terms(const ab_optimizer_config *config, int64_t taken,
                               const ab_optimizer_values *before, double *const *term, int64_t n) {
    const constants c = constants_of(config);
    (void)taken;
    return split(&c, before, NULL, before->state[1], term, n);
}

static unsigned centered_terms(const ab_optimizer_config *config, int64_t taken,
                               const ab_optimizer_values *before, double *const *term, int64_t n) {
    const constants c = constants_of(config);
    (void)taken;
    return split(&c, before, before->state[1], NULL, term, n);
}

extern const ab_optimizer ab_optimizer_rmsprop, ab_optimizer_rmsprop_momentum, ab_optimizer_rmsprop_centered;

const ab_optimizer ab_optimizer_rmsprop = {.name = "rmsprop",
                                           .text = "torch.optim.RMSprop",
                                           .states = 1,
                                           .state = {"square_avg"},
                                           .second_moment = 0,
                                           .knobs = AB_KNOB_ALPHA | AB_KNOB_EPS,
                                           .defaults = {.lr = 0.01, .alpha = 0.99, .eps = 1e-8},
                                           .update = plain,
                                           .terms = plain_terms};

const ab_optimizer ab_optimizer_rmsprop_momentum = {
    .name = "rmsprop_momentum",
    .text = "torch.optim.RMSprop with momentum",
    .states = 2,
    .state = {"square_avg", "momentum_buffer"},
    .second_moment = 0,
    .knobs = AB_KNOB_ALPHA | AB_KNOB_EPS | AB_KNOB_MOMENTUM,
    .defaults = {.lr = 0.01, .alpha = 0.99, .eps = 1e-8, .momentum = 0.9},
    .update = with_momentum,
    .terms = momentum_terms};

const ab_optimizer ab_optimizer_rmsprop_centered = {.name = "rmsprop_centered",
                                                    .text = "torch.optim.RMSprop, centered",
                                                    .states = 2,
                                                    .state = {"square_avg", "grad_avg"},
                                                    .second_moment = 0,
                                                    .knobs = AB_KNOB_ALPHA | AB_KNOB_EPS,
                                                    .defaults = {.lr = 0.01, .alpha = 0.99, .eps = 1e-8},
                                                    .update = centered,
                                                    .terms = centered_terms};
