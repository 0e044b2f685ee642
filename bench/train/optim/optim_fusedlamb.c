/* fusedlamb: apex's FusedLAMB (csrc/multi_tensor_lamb.cu; You et al., "Large batch optimization for deep
 * learning", algorithm 2), with its clipping: gradients are divided by |all gradients| / max_grad_norm where
 * that is above 1. d = m^ / (sqrt(v^) + eps) + wd w; w -= lr |w| / |d| d, and lr d for a parameter with a
 * norm of 0 or (without use_nvlamb) without decay. The norm of all gradients is computed in double, apex's in
 * fp32. */
#include "bench/train/optim/adam_direction.h"

enum { MAX_GRAD_NORM, USE_NVLAMB, ADAM_W_MODE, GRAD_AVERAGING, BIAS_CORRECTION };

static ab_adam_constants constants_of(const ab_optimizer_config *config) {
    ab_adam_constants c =
        ab_adam_constants_of(config, config->value[BIAS_CORRECTION] != 0, config->value[ADAM_W_MODE] != 0);
    if (config->total_norm > config->value[MAX_GRAD_NORM])
        c.divisor = (float)(config->total_norm / config->value[MAX_GRAD_NORM]);
    if (config->value[GRAD_AVERAGING] == 0) c.fresh1 = 1;
    return c;
}

static void measure(const ab_optimizer_config *config, int64_t taken, const float *weight, const float *grad,
                    float *const *state, int64_t n, ab_optimizer_sums *sums) {
    (void)taken;
    const ab_adam_constants c = constants_of(config);
    for (int64_t i = 0; i < n; i++) {
        const double d = (double)ab_adam_direction(&c, weight[i], grad[i], &state[0][i], &state[1][i]);
        sums->weight += (double)weight[i] * (double)weight[i];
        sums->other += d * d;
    }
}

static double trust(const ab_optimizer_config *config, const ab_optimizer_sums *sums) {
    const bool adapts = config->value[USE_NVLAMB] != 0 || config->weight_decay != 0;
    if (!adapts || sums->weight == 0 || sums->other == 0) return 1;
    return sqrt(sums->weight) / sqrt(sums->other);
}

static void fusedlamb(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                      float *const *state, int64_t n) {
    (void)taken;
    const ab_adam_constants c = constants_of(config);
    const float rate = (float)(config->lr * config->trust);
    for (int64_t i = 0; i < n; i++)
        weight[i] -= rate * ab_adam_direction(&c, weight[i], grad[i], &state[0][i], &state[1][i]);
}

/* The trust ratio and the clipping are treated as constants. */
static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const ab_adam_constants c = constants_of(config);
    return ab_adam_terms(&c, (double)(float)(config->lr * config->trust), before, term, n);
}

extern const ab_optimizer ab_optimizer_fusedlamb;
const ab_optimizer ab_optimizer_fusedlamb = {
    .name = "fusedlamb",
    .text = "apex FusedLAMB with its own clipping of the norm of all gradients",
    .states = 2,
    .state = {"exp_avg", "exp_avg_sq"},
    .second_moment = 1,
    .decay = AB_DECAY_DECOUPLED,
    .other_decay_key = 1 + ADAM_W_MODE,
    .knobs = AB_KNOB_BETA1 | AB_KNOB_BETA2 | AB_KNOB_EPS,
    .keys = 5,
    .key = {{.name = "max_grad_norm", .low = 0x1p-126, .high = 1e30},
            {.name = "use_nvlamb"},
            {.name = "adam_w_mode"},
            {.name = "grad_averaging"},
            {.name = "bias_correction"}},
    .needs_total_norm = true,
    .defaults = {.lr = 1e-3,
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .eps = 1e-6,
                 .weight_decay = 0.01,
                 .trust = 1,
                 .value = {1, 0, 1, 1, 1}},
    .measure = measure,
    .trust = trust,
    .update = fusedlamb,
    .terms = terms};
