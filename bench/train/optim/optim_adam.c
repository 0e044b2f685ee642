/* adam: torch.optim.Adam (Kingma and Ba, "Adam: a method for stochastic optimization", algorithm 1, with
 * torch's grouping): m += (1 - b1)(g - m); v = b2 v + (1 - b2) g g; w -= lr / (1 - b1^t) * m / (sqrt(v) /
 * sqrt(1 - b2^t) + eps). Weight decay is L2: g + wd w. */
#include "bench/train/optim/by_op.h"

#include <math.h>

static void adam(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                 float *const *state, int64_t n) {
    (void)taken;
    float *m = state[0], *v = state[1];
    const float step_size = (float)(config->lr / config->correction1),
                root2 = (float)sqrt(config->correction2);
    const float fresh1 = (float)(1.0 - config->beta1), keep2 = (float)config->beta2,
                fresh2 = (float)(1.0 - config->beta2);
    const float eps = (float)config->eps, decay = (float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i] + decay * weight[i];
        m[i] += fresh1 * (g - m[i]);
        v[i] = keep2 * v[i] + fresh2 * g * g;
        weight[i] -= step_size * (m[i] / (sqrtf(v[i]) / root2 + eps));
    }
}

/* The terms share the denominator. The eps term is the change due to eps in it. */
static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const double step_size = (double)(float)(config->lr / config->correction1);
    const double root2 = (double)(float)sqrt(config->correction2);
    const double fresh1 = (double)(float)(1.0 - config->beta1), keep2 = (double)(float)config->beta2;
    const double fresh2 = (double)(float)(1.0 - config->beta2), eps = (double)(float)config->eps;
    const double decay = (double)(float)config->weight_decay;
    for (int64_t i = 0; i < n; i++) {
        double decayed = decay * (double)before->weight[i], m = (double)before->state[0][i];
        double g = (double)before->grad[i] + decayed;
        double root = sqrt(keep2 * (double)before->state[1][i] + fresh2 * g * g) / root2;
        double per = root + eps > 0 ? step_size / (root + eps) : 0;
        term[AB_TERM_GRADIENT][i] = -per * fresh1 * (double)before->grad[i];
        term[AB_TERM_WEIGHT_DECAY][i] = -per * fresh1 * decayed;
        term[AB_TERM_MOMENTUM][i] = -per * (1 - fresh1) * m;
        double moment = m + fresh1 * (g - m);
        term[AB_TERM_EPS][i] = root > 0 ? moment * (step_size / root - per) : 0;
    }
    return 1u << AB_TERM_GRADIENT | 1u << AB_TERM_MOMENTUM | 1u << AB_TERM_EPS |
           (unsigned)(decay != 0) << AB_TERM_WEIGHT_DECAY;
}

extern const ab_optimizer ab_optimizer_adam;
const ab_optimizer ab_optimizer_adam = {.name = "adam",
                                        .text = "torch.optim.Adam",
                                        .states = 2,
                                        .state = {"exp_avg", "exp_avg_sq"},
                                        .second_moment = 1,
                                        .knobs = AB_KNOB_BETA1 | AB_KNOB_BETA2 | AB_KNOB_EPS,
                                        .defaults = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8},
                                        .update = adam,
                                        .update_by_op = ab_optimizer_adam_by_op,
                                        .terms = terms};
