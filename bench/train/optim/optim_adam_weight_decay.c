/* adam_weight_decay: MindSpore's nn.AdamWeightDecay: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g;
 * w -= lr (m / (sqrt(v) + eps) + wd w). The moments are not corrected for their start at 0, so the first
 * steps are (1 - b1) / sqrt(1 - b2) = 3.2 times as long as Adam's. MindSpore leaves parameters called beta
 * and gamma without decay; here --no-decay does. */
#include "bench/train/optim/adam_direction.h"

static void adam_weight_decay(const ab_optimizer_config *config, int64_t taken, float *weight,
                              const float *grad, float *const *state, int64_t n) {
    (void)taken;
    const ab_adam_constants c = ab_adam_constants_of(config, false, true);
    const float lr = (float)config->lr;
    for (int64_t i = 0; i < n; i++)
        weight[i] -= lr * ab_adam_direction(&c, weight[i], grad[i], &state[0][i], &state[1][i]);
}

static unsigned terms(const ab_optimizer_config *config, int64_t taken, const ab_optimizer_values *before,
                      double *const *term, int64_t n) {
    (void)taken;
    const ab_adam_constants c = ab_adam_constants_of(config, false, true);
    return ab_adam_terms(&c, (double)(float)config->lr, before, term, n);
}

extern const ab_optimizer ab_optimizer_adam_weight_decay;
const ab_optimizer ab_optimizer_adam_weight_decay = {
    .name = "adam_weight_decay",
    .text = "MindSpore AdamWeightDecay: no bias correction",
    .states = 2,
    .state = {"moments1", "moments2"},
    .second_moment = 1,
    .decay = AB_DECAY_DECOUPLED,
    .knobs = AB_KNOB_BETA1 | AB_KNOB_BETA2 | AB_KNOB_EPS,
    .defaults = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6},
    .update = adam_weight_decay,
    .terms = terms};
