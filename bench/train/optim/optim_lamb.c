/* lamb: apex's FusedLAMB (csrc/multi_tensor_lamb.cu; You et al., "Large batch optimization for deep
 * learning", algorithm 2) with its defaults adam_w_mode, grad_averaging and bias_correction: d = m^ /
 * (sqrt(v^) + eps) + wd w; w -= lr * |w| / |d| * d. As in apex, a parameter without decay, or with a norm of
 * 0, uses the plain step lr d. apex also clips the global gradient norm to 1 by default; here --clip-norm
 * does that. */
#include "bench/train/optim/optimizer.h"

#include <math.h>

typedef struct constants {
    float keep1, fresh1, keep2, fresh2, correction1, correction2, eps, decay;
} constants;

static constants constants_of(const ab_optimizer_config *config) {
    return (constants){.keep1 = (float)config->beta1,
                       .fresh1 = (float)(1.0 - config->beta1),
                       .keep2 = (float)config->beta2,
                       .fresh2 = (float)(1.0 - config->beta2),
                       .correction1 = (float)config->correction1,
                       .correction2 = (float)config->correction2,
                       .eps = (float)config->eps,
                       .decay = (float)config->weight_decay};
}

/* Advances the moments of one element and returns the direction. */
static inline float direction(const constants *c, float weight, float g, float *m, float *v) {
    *m = c->keep1 * *m + c->fresh1 * g;
    *v = c->keep2 * *v + c->fresh2 * g * g;
    return *m / c->correction1 / (sqrtf(*v / c->correction2) + c->eps) + c->decay * weight;
}

static void measure(const ab_optimizer_config *config, int64_t taken, const float *weight, const float *grad,
                    float *const *state, int64_t n, ab_optimizer_sums *sums) {
    (void)taken;
    const constants c = constants_of(config);
    for (int64_t i = 0; i < n; i++) {
        double d = (double)direction(&c, weight[i], grad[i], &state[0][i], &state[1][i]);
        sums->weight += (double)weight[i] * (double)weight[i];
        sums->other += d * d;
    }
}

static double trust(const ab_optimizer_config *config, const ab_optimizer_sums *sums) {
    if (config->weight_decay == 0 || sums->weight == 0 || sums->other == 0) return 1;
    return sqrt(sums->weight) / sqrt(sums->other);
}

static void lamb(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                 float *const *state, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    const float rate = (float)(config->lr * config->trust);
    for (int64_t i = 0; i < n; i++)
        weight[i] -= rate * direction(&c, weight[i], grad[i], &state[0][i], &state[1][i]);
}

/* The trust ratio is treated as constant: the effect of eps on it is not included. */
static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    const double rate = (double)(float)(config->lr * config->trust), eps = (double)c.eps;
    for (int64_t i = 0; i < n; i++) {
        double g = (double)before->grad[i], m = (double)before->state[0][i];
        double v = (double)c.keep2 * (double)before->state[1][i] + (double)c.fresh2 * g * g;
        double root = sqrt(v / (double)c.correction2);
        double per = root + eps > 0 ? rate / (double)c.correction1 / (root + eps) : 0;
        double moment = (double)c.keep1 * m + (double)c.fresh1 * g;
        term[AB_TERM_GRADIENT][i] = -per * (double)c.fresh1 * g;
        term[AB_TERM_WEIGHT_DECAY][i] = -rate * (double)c.decay * (double)before->weight[i];
        term[AB_TERM_MOMENTUM][i] = -per * (double)c.keep1 * m;
        term[AB_TERM_EPS][i] = root > 0 ? moment * (rate / (double)c.correction1 / root - per) : 0;
    }
    return 1u << AB_TERM_GRADIENT | 1u << AB_TERM_MOMENTUM | 1u << AB_TERM_EPS |
           (unsigned)(config->weight_decay != 0) << AB_TERM_WEIGHT_DECAY;
}

extern const ab_optimizer ab_optimizer_lamb;
const ab_optimizer ab_optimizer_lamb = {
    .name = "lamb",
    .text = "apex FusedLAMB without its own gradient clipping",
    .states = 2,
    .state = {"exp_avg", "exp_avg_sq"},
    .second_moment = 1,
    .decay = AB_DECAY_DECOUPLED,
    .knobs = AB_KNOB_BETA1 | AB_KNOB_BETA2 | AB_KNOB_EPS,
    .defaults = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6, .weight_decay = 0.01, .trust = 1},
    .measure = measure,
    .trust = trust,
    .update = lamb,
    .terms = terms};
