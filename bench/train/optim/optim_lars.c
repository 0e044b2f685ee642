/* lars and larc: apex's LARC around torch.optim.SGD with momentum (apex/parallel/LARC.py; You, Gitman and
 * Ginsburg, "Large batch training of convolutional networks"): r = tc |w| / (|g| + wd |w| + eps); larc limits
 * r to 1 / lr, so that the step is never larger than SGD's. d = r (g + wd w); b = m b + d; w -= lr b. A
 * parameter whose weights or gradients are all 0 uses SGD's step without decay, as in apex: r = 1, wd = 0. */
#include "bench/train/optim/optimizer.h"

#include <math.h>

static void measure(const ab_optimizer_config *config, int64_t taken, const float *weight, const float *grad,
                    float *const *state, int64_t n, ab_optimizer_sums *sums) {
    (void)config;
    (void)taken;
    (void)state;
    for (int64_t i = 0; i < n; i++) {
        sums->weight += (double)weight[i] * (double)weight[i];
        sums->other += (double)grad[i] * (double)grad[i];
    }
}

/* Returns 0 for the step without decay. */
static double lars_trust(const ab_optimizer_config *config, const ab_optimizer_sums *sums) {
    double weight = sqrt(sums->weight), grad = sqrt(sums->other);
    if (weight == 0 || grad == 0) return 0;
    return config->trust_coefficient * weight / (grad + weight * config->weight_decay + config->eps);
}

static double larc_trust(const ab_optimizer_config *config, const ab_optimizer_sums *sums) {
    return fmin(lars_trust(config, sums) / config->lr, 1.0);
}

static void lars(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                 float *const *state, int64_t n) {
    (void)taken;
    const bool plain = config->trust == 0;
    const float lr = (float)config->lr, momentum = (float)config->momentum;
    const float rate = plain ? 1.0f : (float)config->trust,
                decay = plain ? 0.0f : (float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        state[0][i] = momentum * state[0][i] + rate * (grad[i] + decay * weight[i]);
        weight[i] -= lr * state[0][i];
    }
}

static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const bool plain = config->trust == 0;
    const double lr = (double)(float)config->lr, momentum = (double)(float)config->momentum;
    const double rate = lr * (plain ? 1.0 : (double)(float)config->trust);
    const double decay = plain ? 0.0 : (double)(float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        term[AB_TERM_GRADIENT][i] = -rate * (double)before->grad[i];
        term[AB_TERM_WEIGHT_DECAY][i] = -rate * decay * (double)before->weight[i];
        term[AB_TERM_MOMENTUM][i] = -lr * momentum * (double)before->state[0][i];
    }
    return 1u << AB_TERM_GRADIENT | (unsigned)(decay != 0) << AB_TERM_WEIGHT_DECAY |
           (unsigned)(momentum != 0) << AB_TERM_MOMENTUM;
}

extern const ab_optimizer ab_optimizer_lars, ab_optimizer_larc;

const ab_optimizer ab_optimizer_lars = {
    .name = "lars",
    .text = "apex LARC(SGD with momentum, clip=False): You et al.'s LARS",
    .states = 1,
    .state = {"momentum_buffer"},
    .second_moment = -1,
    .knobs = AB_KNOB_MOMENTUM | AB_KNOB_EPS | AB_KNOB_TRUST_COEFFICIENT,
    .defaults = {.lr = 0.01, .momentum = 0.9, .eps = 1e-8, .trust_coefficient = 0.02, .trust = 1},
    .measure = measure,
    .trust = lars_trust,
    .update = lars,
    .terms = terms};

const ab_optimizer ab_optimizer_larc = {
    .name = "larc",
    .text = "apex LARC(SGD with momentum): lars, never longer than SGD's step",
    .states = 1,
    .state = {"momentum_buffer"},
    .second_moment = -1,
    .knobs = AB_KNOB_MOMENTUM | AB_KNOB_EPS | AB_KNOB_TRUST_COEFFICIENT,
    .defaults = {.lr = 0.01, .momentum = 0.9, .eps = 1e-8, .trust_coefficient = 0.02, .trust = 1},
    .measure = measure,
    .trust = larc_trust,
    .update = lars,
    .terms = terms};
