/* adagrad: torch.optim.Adagrad (Duchi, Hazan and Singer) with an initial accumulator of 0; apex's
 * FusedAdagrad is the same with lr_decay 0. g += wd w; s += g g; w -= lr / (1 + (t - 1) lr_decay) * g /
 * (sqrt(s) + eps). */
#include "bench/train/optim/optimizer.h"

#include <math.h>

static double rate_of(const ab_optimizer_config *config, int64_t taken) {
    return config->lr / (1.0 + (double)(taken - 1) * config->lr_decay);
}

static void adagrad(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                    float *const *state, int64_t n) {
    const float rate = (float)rate_of(config, taken), eps = (float)config->eps,
                decay = (float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] + decay * weight[i];
        state[0][i] += g * g;
        weight[i] -= rate * (g / (sqrtf(state[0][i]) + eps));
    }
}

static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    const double rate = (double)(float)rate_of(config, taken), eps = (double)(float)config->eps,
                 decay = (double)(float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        double decayed = decay * (double)before->weight[i], g = (double)before->grad[i] + decayed;
        double root = sqrt((double)before->state[0][i] + g * g);
        double per = root + eps > 0 ? rate / (root + eps) : 0;
        term[AB_TERM_GRADIENT][i] = -per * (double)before->grad[i];
        term[AB_TERM_WEIGHT_DECAY][i] = -per * decayed;
        term[AB_TERM_EPS][i] = root > 0 ? g * (rate / root - per) : 0;
    }
    return 1u << AB_TERM_GRADIENT | 1u << AB_TERM_EPS | (unsigned)(decay != 0) << AB_TERM_WEIGHT_DECAY;
}

extern const ab_optimizer ab_optimizer_adagrad;
const ab_optimizer ab_optimizer_adagrad = {.name = "adagrad",
                                           .text = "torch.optim.Adagrad",
                                           .states = 1,
                                           .state = {"sum"},
                                           .second_moment = -1,
                                           .knobs = AB_KNOB_LR_DECAY | AB_KNOB_EPS,
                                           .defaults = {.lr = 0.01, .eps = 1e-10},
                                           .update = adagrad,
                                           .terms = terms};
