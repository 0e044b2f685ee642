/* sgd, momentum and nesterov: torch.optim.SGD. d = g + wd w; b = m b + (1 - dampening) d, and b = d at the first step;
 * w -= lr (d, b, or d + m b). */
#include "bench/train/optimizer.h"

static void sgd(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                float *const *state, int64_t n) {
    (void)taken;
    (void)state;
    const float lr = (float)config->lr, decay = (float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) weight[i] -= lr * (grad[i] + decay * weight[i]);
}

/* Fills the momentum buffer; with nesterov the caller adds the look-ahead. */
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

extern const ab_optimizer ab_optimizer_sgd, ab_optimizer_momentum, ab_optimizer_nesterov;

const ab_optimizer ab_optimizer_sgd = {.name = "sgd",
                                       .text = "torch.optim.SGD without momentum",
                                       .states = 0,
                                       .defaults = {.lr = 0.1},
                                       .update = sgd};

const ab_optimizer ab_optimizer_momentum = {.name = "momentum",
                                            .text = "torch.optim.SGD with momentum",
                                            .states = 1,
                                            .defaults = {.lr = 0.01, .momentum = 0.9},
                                            .update = momentum_update};

const ab_optimizer ab_optimizer_nesterov = {.name = "nesterov",
                                            .text = "torch.optim.SGD with Nesterov momentum",
                                            .states = 1,
                                            .defaults = {.lr = 0.01, .momentum = 0.9},
                                            .update = nesterov_update};
