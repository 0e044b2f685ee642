/* fusednovograd: apex's FusedNovoGrad (csrc/multi_tensor_novograd.cu; Ginsburg et al., "Stochastic gradient
 * methods with layer-wise adaptive moments"). Per parameter one number n: n^2 = b2 n^2 + (1 - b2) |g|^2, and
 * |g| at the first step unless init_zero; with norm_type 0 (the largest value) n = b2 n + (1 - b2) |g|. Then
 * m = b1 m + (1 - b1) g; w -= lr (m^ / (n^ + eps) + wd w), where n^ = n / sqrt(1 - b2^t). With
 * reg_inside_moment m = b1 m + (1 - b1) (g / (n^ + eps) + wd w); w -= lr m^. */
#include "bench/train/optim/optimizer.h"

#include <math.h>

enum { BIAS_CORRECTION, REG_INSIDE_MOMENT, GRAD_AVERAGING, NORM_TYPE, INIT_ZERO };

/* The scalar state, kept before the step and config->trust after it. */
typedef struct constants {
    float lr, keep, fresh, correction, norm, eps, decay;
    bool inside;
} constants;

static constants constants_of(const ab_optimizer_config *config) {
    const bool corrects = config->value[BIAS_CORRECTION] != 0;
    const float norm = (float)config->trust;
    return (constants){.lr = (float)config->lr,
                       .keep = (float)config->beta1,
                       .fresh = config->value[GRAD_AVERAGING] != 0 ? (float)(1.0 - config->beta1) : 1.0f,
                       .correction = corrects ? (float)config->correction1 : 1.0f,
                       .norm = corrects ? norm / (float)sqrt(config->correction2) : norm,
                       .eps = (float)config->eps,
                       .decay = (float)config->weight_decay,
                       .inside = config->value[REG_INSIDE_MOMENT] != 0};
}

/* `other` counts a first step, whose norm is not averaged, in `weight`. */
static void measure(const ab_optimizer_config *config, int64_t taken, const float *weight, const float *grad,
                    float *const *state, int64_t n, ab_optimizer_sums *sums) {
    (void)config;
    (void)weight;
    (void)state;
    if (taken == 1) sums->weight = 1;
    for (int64_t i = 0; i < n; i++) {
        const double g = fabs((double)grad[i]);
        sums->other += g * g;
        if (!(g <= sums->largest)) sums->largest = g; /* NaN stays */
    }
}

/* The scalar state after the step. */
static double norm_of(const ab_optimizer_config *config, const ab_optimizer_sums *sums) {
    const double b2 = config->beta2, kept = config->kept;
    const bool largest = config->value[NORM_TYPE] == 0, first = sums->weight > 0;
    const double norm = largest ? sums->largest : sqrt(sums->other);
    if (first && config->value[INIT_ZERO] == 0) return norm;
    return largest ? b2 * kept + (1 - b2) * norm : sqrt(b2 * kept * kept + (1 - b2) * norm * norm);
}

static void fusednovograd(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                          float *const *state, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    const float denominator = c.norm + c.eps;
    for (int64_t i = 0; i < n; i++) {
        const float g = c.inside ? grad[i] / denominator + c.decay * weight[i] : grad[i];
        state[0][i] = c.keep * state[0][i] + c.fresh * g;
        const float m = state[0][i] / c.correction;
        weight[i] -= c.lr * (c.inside ? m : m / denominator + c.decay * weight[i]);
    }
}

/* The norm is treated as a constant. Old moments hold steps that were divided by their own norms with
 * reg_inside_moment; eps in those is not told apart. */
static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const constants c = constants_of(config);
    const double norm = (double)c.norm, denominator = norm + (double)c.eps, lr = (double)c.lr;
    const double step = lr / (double)c.correction, per = denominator > 0 ? step / denominator : 0;
    const double old = (c.inside ? step : per) * (double)c.keep, fresh = (double)c.fresh;
    const double decay = (c.inside ? step * fresh : lr) * (double)c.decay;
    for (int64_t i = 0; i < n; i++) {
        const double g = (double)before->grad[i], m = (double)before->state[0][i];
        const double divided = fresh * g + (c.inside ? 0 : (double)c.keep * m);
        term[AB_TERM_GRADIENT][i] = -per * fresh * g;
        term[AB_TERM_WEIGHT_DECAY][i] = -decay * (double)before->weight[i];
        term[AB_TERM_MOMENTUM][i] = -old * m;
        term[AB_TERM_EPS][i] = norm > 0 ? divided * (step / norm - per) : 0;
    }
    return 1u << AB_TERM_GRADIENT | 1u << AB_TERM_MOMENTUM | 1u << AB_TERM_EPS |
           (unsigned)(c.decay != 0) << AB_TERM_WEIGHT_DECAY;
}

extern const ab_optimizer ab_optimizer_fusednovograd;
const ab_optimizer ab_optimizer_fusednovograd = {
    .name = "fusednovograd",
    .text = "apex FusedNovoGrad",
    .states = 2,
    .state = {"exp_avg", "exp_avg_sq"},
    .second_moment = -1,
    .scalar_states = 1u << 1,
    .decay = AB_DECAY_DECOUPLED,
    .other_decay_key = 1 + REG_INSIDE_MOMENT,
    .knobs = AB_KNOB_BETA1 | AB_KNOB_BETA2 | AB_KNOB_EPS,
    .keys = 5,
    .key = {{.name = "bias_correction"},
            {.name = "reg_inside_moment"},
            {.name = "grad_averaging"},
            {.name = "norm_type", .high = 2, .step = 2},
            {.name = "init_zero"}},
    .defaults = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .value = {1, 0, 1, 2, 0}},
    .measure = measure,
    .trust = norm_of,
    .update = fusednovograd,
    .terms = terms};
