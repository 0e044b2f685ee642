/* fusedadam: apex's FusedAdam (csrc/multi_tensor_adam.cu): d = m^ / (sqrt(v^) + eps) + wd w; w -= lr d.
 * Without adam_w_mode the decay is added to the gradient; without bias_correction m^ = m and v^ = v. */
#include "bench/train/optim/adam_direction.h"

enum { ADAM_W_MODE, BIAS_CORRECTION };

static ab_adam_constants constants_of(const ab_optimizer_config *config) {
    return ab_adam_constants_of(config, config->value[BIAS_CORRECTION] != 0, config->value[ADAM_W_MODE] != 0);
}

static void fusedadam(const ab_optimizer_config *config, int64_t taken, float *weight, const float *grad,
                      float *const *state, int64_t n) {
    (void)taken;
    const ab_adam_constants c = constants_of(config);
    const float lr = (float)config->lr;
    for (int64_t i = 0; i < n; i++)
        weight[i] -= lr * ab_adam_direction(&c, weight[i], grad[i], &state[0][i], &state[1][i]);
}

static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const ab_adam_constants c = constants_of(config);
    return ab_adam_terms(&c, (double)(float)config->lr, before, term, n);
}

extern const ab_optimizer ab_optimizer_fusedadam;
const ab_optimizer ab_optimizer_fusedadam = {
    .name = "fusedadam",
    .text = "apex FusedAdam",
    .states = 2,
    .state = {"exp_avg", "exp_avg_sq"},
    .second_moment = 1,
    .decay = AB_DECAY_DECOUPLED,
    .other_decay_key = 1 + ADAM_W_MODE,
    .knobs = AB_KNOB_BETA1 | AB_KNOB_BETA2 | AB_KNOB_EPS,
    .keys = 2,
    .key = {{.name = "adam_w_mode"}, {.name = "bias_correction"}},
    .defaults = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .value = {1, 1}},
    .update = fusedadam,
    .terms = terms};
