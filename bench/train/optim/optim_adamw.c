/* adamw: torch.optim.AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", algorithm 2): w
 * *= 1 - lr wd; then adam's step with only the gradient in the moments. apex's FusedAdam (adam_w_mode) is the
 * same formula; it adds wd w to the direction instead of scaling the weight first. */
#include "bench/train/optim/by_op.h"

#include <math.h>

static void adamw(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                  float *const *state, int64_t n) {
    (void)taken;
    float *m = state[0], *v = state[1];
    const float step_size = (float)(config->lr / config->correction1),
                root2 = (float)sqrt(config->correction2);
    const float fresh1 = (float)(1.0 - config->beta1), keep2 = (float)config->beta2,
                fresh2 = (float)(1.0 - config->beta2);
    const float eps = (float)config->eps, shrink = (float)(1.0 - config->lr * config->weight_decay);
    for (int64_t i = 0; i < n; i++) {
        float g = grad[i];
        m[i] += fresh1 * (g - m[i]);
        v[i] = keep2 * v[i] + fresh2 * g * g;
        weight[i] = weight[i] * shrink - step_size * (m[i] / (sqrtf(v[i]) / root2 + eps));
    }
}

static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const double step_size = (double)(float)(config->lr / config->correction1);
    const double root2 = (double)(float)sqrt(config->correction2);
    const double fresh1 = (double)(float)(1.0 - config->beta1), keep2 = (double)(float)config->beta2;
    const double fresh2 = (double)(float)(1.0 - config->beta2), eps = (double)(float)config->eps;
    const double shrink = (double)(float)(1.0 - config->lr * config->weight_decay);
    for (int64_t i = 0; i < n; i++) {
        double m = (double)before->state[0][i], g = (double)before->grad[i];
        double root = sqrt(keep2 * (double)before->state[1][i] + fresh2 * g * g) / root2;
        double per = root + eps > 0 ? step_size / (root + eps) : 0;
        term[AB_TERM_GRADIENT][i] = -per * fresh1 * g;
        term[AB_TERM_WEIGHT_DECAY][i] = (shrink - 1) * (double)before->weight[i];
        term[AB_TERM_MOMENTUM][i] = -per * (1 - fresh1) * m;
        double moment = m + fresh1 * (g - m);
        term[AB_TERM_EPS][i] = root > 0 ? moment * (step_size / root - per) : 0;
    }
    return 1u << AB_TERM_GRADIENT | 1u << AB_TERM_MOMENTUM | 1u << AB_TERM_EPS |
           (unsigned)(config->weight_decay != 0) << AB_TERM_WEIGHT_DECAY;
}

extern const ab_optimizer ab_optimizer_adamw;
const ab_optimizer ab_optimizer_adamw = {
    .name = "adamw",
    .text = "torch.optim.AdamW",
    .states = 2,
    .state = {"exp_avg", "exp_avg_sq"},
    .second_moment = 1,
    .decay = AB_DECAY_DECOUPLED,
    .knobs = AB_KNOB_BETA1 | AB_KNOB_BETA2 | AB_KNOB_EPS,
    .defaults = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .weight_decay = 0.01},
    .update = adamw,
    .update_by_op = ab_optimizer_adamw_by_op,
    .terms = terms};
